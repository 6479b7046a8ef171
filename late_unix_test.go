//go:build unix

package weir

import (
	"sync"
	"time"
)

// lateness is how much later than asked this process is woken, summed up. What a check
// took, less what the process was late meanwhile, is the check's own.
type lateness struct {
	stop, stopped chan struct{}

	mu         sync.Mutex
	sum, worst time.Duration
	woken      time.Time
}

// lateEvery is how long it sleeps in between.
const lateEvery = time.Millisecond

// watchLateness looks until end is called.
func watchLateness() *lateness {
	l := &lateness{stop: make(chan struct{}), stopped: make(chan struct{}), woken: time.Now()}
	go func() {
		defer close(l.stopped)
		for {
			select {
			case <-l.stop:
				return
			case <-time.After(lateEvery):
			}
			l.mu.Lock()
			late := l.overdue()
			l.sum, l.worst, l.woken = l.sum+late, max(l.worst, late), time.Now()
			l.mu.Unlock()
		}
	}()
	return l
}

func (l *lateness) overdue() time.Duration { return max(0, time.Since(l.woken)-lateEvery) }

// end ends the watch, and says how late the process was woken at worst.
func (l *lateness) end() time.Duration {
	close(l.stop)
	<-l.stopped
	return l.worst
}

// soFar is the sum, and what the next waking is late already.
func (l *lateness) soFar() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum + l.overdue()
}
