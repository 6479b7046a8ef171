package lab

import (
	"context"
	"slices"
	"sync"
	"time"
)

// SchedulingDelay measures the delay of this process: how much later than planned a
// goroutine wakes from its sleep. A process is delayed while other work has the cores,
// and after a stop. A test must not count this time against the code under test.
//
// A sleep that ends late by more than the slack is a stand-still, from the planned end of
// the sleep to the actual end. At most maxStandStills are kept; beyond that, the oldest
// is dropped. TakeStandStills drops all. Total and Worst include every sleep, even if its
// stand-still was dropped. DelayWithin and WorstSince count only kept stand-stills, so they
// return too little rather than too much: a stand-still that did not happen never excuses
// a check.
//
// Total, Worst, WorstSince and DelayWithin count a sleep that is overdue at the time of the
// call, because the caller may wake before the measuring goroutine. All methods are safe
// for concurrent use. The zero value has measured no sleep and is ready for Start.
type SchedulingDelay struct {
	// Idle, if set before Start, subtracts the CPU time of this process during a sleep
	// from the delay of the sleep. In the rest of the delay, the cores ran other
	// processes. Time in which the cores ran this process is no excuse, because the
	// process may have delayed its own wake-up.
	Idle bool

	mu      sync.Mutex // guards the fields below together: a reader sees a sleep as overdue or as logged, not as both or neither
	slack   time.Duration
	total   time.Duration
	worst   time.Duration
	kept    []Interval           // stand-stills, in the order of time
	due     time.Time            // planned end of the current sleep; zero if none is measured
	cpu     func() time.Duration // CPU, except in tests
	taken   time.Duration        // value of cpu when the current sleep began
	stop    context.CancelFunc   // nil before Start
	stopped chan struct{}        // closed when the measuring goroutine has ended
}

// maxStandStills bounds the memory of a SchedulingDelay to about 64 KB. A process that
// stands still for 2 ms out of every 3 ms reaches this bound in 12 s.
const maxStandStills = 4096

// Start begins the measurement, in a goroutine that repeatedly sleeps for the duration
// every. A sleep that ends late by more than the duration slack is a stand-still. The
// caller must call Stop. Start panics if it was called before.
func (l *SchedulingDelay) Start(every, slack time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil {
		panic("lab: SchedulingDelay.Start was called twice")
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop, l.stopped = stop, make(chan struct{})
	if l.cpu == nil {
		l.cpu = CPU
	}
	l.slack, l.due, l.taken = slack, time.Now().Add(every), l.cpu()
	go func() {
		defer close(l.stopped)
		for Sleep(ctx, every) {
			l.woken(every)
		}
		l.woken(0)
	}()
}

// woken ends the current sleep, and plans a sleep of the given length, or none if the length is zero.
func (l *SchedulingDelay) woken(next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.add(l.overdue(now))
	if l.due = (time.Time{}); next > 0 {
		l.due, l.taken = now.Add(next), l.cpu()
	}
}

// TakeStandStills returns the kept stand-stills, in the order of time, and drops them.
func (l *SchedulingDelay) TakeStandStills() (standStills []Interval) {
	l.mu.Lock()
	defer l.mu.Unlock()
	standStills, l.kept = l.kept, nil
	return standStills
}

// Stop ends the measurement, and returns when the goroutine has ended. The results
// remain. Stop has no effect if Start was not called, or Stop was called before.
func (l *SchedulingDelay) Stop() {
	l.mu.Lock()
	stop, stopped := l.stop, l.stopped
	l.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	<-stopped
}

// Add records a sleep that should have ended at s.From and ended at s.To, as if the sleep
// had been measured. Add is for tests of code that reads a SchedulingDelay. Sleeps must
// be added in the order of time.
func (l *SchedulingDelay) Add(s Interval) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(s)
}

// Total returns the sum of the delays of all sleeps so far. The time of a check, minus
// the growth of Total meanwhile, is the time of the check itself.
func (l *SchedulingDelay) Total() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total + l.overdue(time.Now()).Length()
}

// Worst returns the longest delay of a sleep so far.
func (l *SchedulingDelay) Worst() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.worst, l.overdue(time.Now()).Length())
}

// WorstSince returns the length of the longest stand-still that ended after a moment, in
// Unix nanoseconds, or that is not over yet. The whole length counts, also if the
// stand-still began before that moment.
func (l *SchedulingDelay) WorstSince(since int64) (worst time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.standStills {
		if s.To <= since {
			break
		}
		worst = max(worst, s.Length())
	}
	return worst
}

// DelayWithin returns how much of an interval was part of a stand-still.
func (l *SchedulingDelay) DelayWithin(i Interval) (sum time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.standStills {
		if s.To <= i.From {
			break
		}
		sum += max(0, Between(max(s.From, i.From), min(s.To, i.To)).Length())
	}
	return sum
}

// standStills yields the kept stand-stills and the current stand-still, the latest first.
// The caller must hold mu.
func (l *SchedulingDelay) standStills(yield func(Interval) bool) {
	if s := l.overdue(time.Now()); s.Length() > l.slack && !yield(s) {
		return
	}
	for _, s := range slices.Backward(l.kept) {
		if !yield(s) {
			return
		}
	}
}

// overdue returns the interval from the planned end of the current sleep until now. If
// Idle is set, the interval begins later, by the CPU time of this process. The interval
// is empty if the sleep is not late. Its length does not depend on steps of the machine's
// clock. The caller must hold mu.
func (l *SchedulingDelay) overdue(now time.Time) Interval {
	late := time.Duration(0)
	if !l.due.IsZero() {
		late = now.Sub(l.due)
	}
	if late > 0 && l.Idle {
		late -= l.cpu() - l.taken
	}
	end := now.UnixNano()
	return Between(end-int64(max(0, late)), end)
}

// add implements Add. The caller must hold mu.
func (l *SchedulingDelay) add(s Interval) {
	late := max(0, s.Length())
	l.total += late
	l.worst = max(l.worst, late)
	if late > l.slack {
		l.kept = append(slices.Delete(l.kept, 0, max(0, len(l.kept)+1-maxStandStills)), s)
	}
}
