package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

// steadyCallers are enough that checks do not wait for one another.
const steadyCallers = 64

// steady is a load that does not depend on how fast it is answered: each of its
// callers has its times to ask. A caller that is late because its check before
// took too long counts from the time that it had, and so one stall is not one slow
// check but as many as it has kept waiting.
type steady struct {
	callers sync.WaitGroup
	ended   atomic.Bool

	mu  sync.Mutex
	lap Lap
}

// Lap is what a load has seen since the last one.
type Lap struct {
	Latencies []time.Duration
	Strays    int // decisions that were not made by who has authority
}

func merge(laps []Lap) (all Lap) {
	for _, l := range laps {
		all.Latencies = append(all.Latencies, l.Latencies...)
		all.Strays += l.Strays
	}
	slices.Sort(all.Latencies)
	return all
}

// p99 is of a merged lap.
func (l Lap) p99() time.Duration { return l.Latencies[len(l.Latencies)*99/100] }

// newSteady begins so many checks a second.
func newSteady(perSecond int, check func() weir.Source) *steady {
	s := new(steady)
	every := steadyCallers * time.Second / time.Duration(perSecond)
	begun := time.Now()
	for c := range steadyCallers {
		s.callers.Go(func() { s.ask(check, begun.Add(every*time.Duration(c)/steadyCallers), every) })
	}
	return s
}

func (s *steady) ask(check func() weir.Source, due time.Time, every time.Duration) {
	for ; !s.ended.Load(); due = due.Add(every) {
		begun := due
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
			begun = time.Now() // if the timer is late, no check is to blame
		}
		source := check()
		s.note(time.Since(begun), source)
	}
}

func (s *steady) note(took time.Duration, source weir.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lap.Latencies = append(s.lap.Latencies, took)
	if !byAuthority(source) {
		s.lap.Strays++
	}
}

// cut ends a lap.
func (s *steady) cut() Lap {
	s.mu.Lock()
	defer s.mu.Unlock()
	lap := s.lap
	s.lap = Lap{}
	return lap
}

func (s *steady) end() {
	s.ended.Store(true)
	s.callers.Wait()
}
