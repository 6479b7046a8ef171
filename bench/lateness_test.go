package main

import (
	"sync"
	"time"
)

// lateness watches how late this process is: how much later than asked a goroutine
// that only sleeps is woken. end must follow.
type lateness struct {
	stop, stopped chan struct{}

	mu     sync.Mutex
	sleeps []sleep   // that are over, in order
	due    time.Time // when the one under way should end
}

type sleep struct {
	over time.Time
	late time.Duration
}

const lateEvery = time.Millisecond

func newLateness() *lateness {
	l := &lateness{stop: make(chan struct{}), stopped: make(chan struct{}), due: time.Now().Add(lateEvery)}
	go l.watch()
	return l
}

func (l *lateness) watch() {
	defer close(l.stopped)
	for timer := time.NewTimer(lateEvery); ; timer.Reset(lateEvery) {
		select {
		case <-l.stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		l.mu.Lock()
		now := time.Now()
		l.sleeps = append(l.sleeps, sleep{now, now.Sub(l.due)})
		l.due = now.Add(lateEvery)
		l.mu.Unlock()
	}
}

// since is how late this process was at worst between begun and now.
func (l *lateness) since(begun time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	worst := max(0, time.Since(l.due))
	for i := len(l.sleeps) - 1; i >= 0 && l.sleeps[i].over.After(begun); i-- {
		worst = max(worst, l.sleeps[i].late)
	}
	return worst
}

// end stops watching, and returns how late the process was at worst.
func (l *lateness) end() time.Duration {
	close(l.stop)
	<-l.stopped
	return l.since(time.Time{})
}
