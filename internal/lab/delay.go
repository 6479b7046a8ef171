package lab

import (
	"slices"
	"sync"
	"time"
)

// SchedulingDelay measures how late this process runs: by how much a goroutine that only sleeps
// is woken later than planned. A process runs late while other work has the cores, and
// after it was stopped. Time that passed meanwhile must not be held against the code under
// test.
//
// A sleep that ends late by more than the slack is a stand-still. It lasts from the planned
// end of the sleep to the actual one. At most maxStandStills are kept; beyond that the
// oldest is dropped. Take drops all. Total and Worst include every sleep, even if it was dropped.
// Within and WorstSince count the kept stand-stills alone, so they return too little rather
// than too much: a check is never excused by a stand-still that did not happen.
//
// Total, Worst, WorstSince and Within count a sleep that is overdue at the moment of the call: the
// caller may be woken before the measuring goroutine is. All methods are safe for concurrent use. The
// zero value has measured nothing and is ready for Start.
type SchedulingDelay struct {
	// Idle, if set before Start, takes from each sleep's lateness the CPU time that this process
	// took during the sleep. The rest is time in which the cores ran other processes. Time in
	// which they ran this process is no excuse, because the process may have delayed its own wake-up.
	Idle bool

	mu      sync.Mutex // guards what follows together: a reader sees a sleep as overdue or as logged, not as both or neither
	slack   time.Duration
	total   time.Duration
	worst   time.Duration
	kept    []Span               // stand-stills, in the order of time
	due     time.Time            // planned end of the current sleep; zero if none is measured
	cpu     func() time.Duration // CPU, but in tests
	taken   time.Duration        // of cpu, when the current sleep began
	stop    chan struct{}        // nil before Start
	stopped chan struct{}
	once    sync.Once
}

// maxStandStills bounds the memory of a SchedulingDelay to about 200 KB. A process that stands still
// for 2 ms out of every 3 ms reaches this bound in 12 s.
const maxStandStills = 4096

// A Span is the time between two moments. Both belong to it. Moments without a monotonic
// clock reading, such as those of time.Unix, are compared by the wall clock.
type Span struct{ From, To time.Time }

func (s Span) length() time.Duration { return s.To.Sub(s.From) }

// Start begins to measure, in a goroutine that sleeps for every at a time. A sleep that ends
// late by more than slack is a stand-still. Stop must follow. Start panics if it was called
// before.
func (l *SchedulingDelay) Start(every, slack time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil {
		panic("lab: SchedulingDelay.Start was called twice")
	}
	l.stop, l.stopped = make(chan struct{}), make(chan struct{})
	if l.cpu == nil {
		l.cpu = CPU
	}
	l.slack, l.due, l.taken = slack, time.Now().Add(every), l.cpu()
	go l.measure(every)
}

func (l *SchedulingDelay) measure(every time.Duration) {
	defer close(l.stopped)
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-l.stop:
			l.woken(0)
			return
		case <-timer.C:
		}
		l.woken(every)
		timer.Reset(every)
	}
}

// woken ends the current sleep, and plans one of the length next, or none if next is zero.
func (l *SchedulingDelay) woken(next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.add(Span{l.excused(), now})
	if l.due = (time.Time{}); next > 0 {
		l.due, l.taken = now.Add(next), l.cpu()
	}
}

// excused returns the end of the current sleep as it may be: as planned or, if Idle, so much
// later. The caller holds mu.
func (l *SchedulingDelay) excused() time.Time {
	if !l.Idle {
		return l.due
	}
	return l.due.Add(l.cpu() - l.taken)
}

// Take returns the kept stand-stills, in the order of time, and forgets them.
func (l *SchedulingDelay) Take() (standStills []Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	standStills, l.kept = l.kept, nil
	return standStills
}

// Stop ends the measurement. It returns once the goroutine has ended. What was measured
// remains. It does nothing if Start was not called, or Stop was called before.
func (l *SchedulingDelay) Stop() {
	l.mu.Lock()
	stop, stopped := l.stop, l.stopped
	l.mu.Unlock()
	if stop == nil {
		return
	}
	l.once.Do(func() { close(stop) })
	<-stopped
}

// Add records a sleep that should have ended at s.From and ended at s.To, as if it had been
// measured. It is for tests of code that reads a SchedulingDelay. Sleeps are added in the order of
// time.
func (l *SchedulingDelay) Add(s Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(s)
}

// Total returns the sum of all lateness so far. What a check took, less the growth of
// Total meanwhile, is the check's own.
func (l *SchedulingDelay) Total() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total + l.overdue().length()
}

// Worst returns the largest lateness of any one sleep so far.
func (l *SchedulingDelay) Worst() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.worst, l.overdue().length())
}

// WorstSince returns the length of the longest stand-still that ended after from, or that
// lasts now. It is counted in full, also where it began before from.
func (l *SchedulingDelay) WorstSince(from time.Time) (worst time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.standStills {
		if !s.To.After(from) {
			break
		}
		worst = max(worst, s.length())
	}
	return worst
}

// Within returns how much of the time between two moments was part of a stand-still.
func (l *SchedulingDelay) Within(from, to time.Time) (sum time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.standStills {
		if !s.To.After(from) {
			break
		}
		sum += max(0, min(s.length(), to.Sub(from), to.Sub(s.From), s.To.Sub(from)))
	}
	return sum
}

// standStills yields the kept stand-stills and the one that lasts now, the latest first. The
// caller holds mu.
func (l *SchedulingDelay) standStills(yield func(Span) bool) {
	if s := l.overdue(); s.length() > l.slack && !yield(s) {
		return
	}
	for _, s := range slices.Backward(l.kept) {
		if !yield(s) {
			return
		}
	}
}

// overdue returns by how much the current sleep should have ended. The caller holds mu.
func (l *SchedulingDelay) overdue() Span {
	now := time.Now()
	if l.due.IsZero() || now.Before(l.excused()) {
		return Span{now, now}
	}
	return Span{l.excused(), now}
}

// add is Add. The caller holds mu.
func (l *SchedulingDelay) add(s Span) {
	late := s.length()
	if late <= 0 {
		return
	}
	l.total += late
	l.worst = max(l.worst, late)
	if late <= l.slack {
		return
	}
	l.kept = append(slices.Delete(l.kept, 0, max(0, len(l.kept)+1-maxStandStills)), s)
}
