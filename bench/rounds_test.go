package main

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// roundTime is how long one contestant is asked before the next has its turn.
const roundTime = 250 * time.Millisecond

// contestant answers one check, for any of the callers at once.
type contestant func(caller int) error

// figures are what one round came to.
type figures struct {
	perSecond float64
	p50, p99  time.Duration
}

// race asks the contestants in turn, in short rounds, so that other load of the machine affects all
// of them, and returns the median figures of each. The N of the benchmark is the number of rounds
// of each.
func race(b *testing.B, callers int, contestants ...contestant) []figures {
	rounds := make([][]figures, len(contestants))
	load := newLoad(callers)
	turn := func(i int) figures {
		f, err := load.round(roundTime, contestants[i])
		if err != nil {
			b.Fatal(err)
		}
		return f
	}
	for i := range contestants {
		turn(i)
	}
	for n := 0; b.Loop(); n++ {
		for i := range contestants {
			i = (i + n) % len(contestants) // no contestant always follows the same other
			rounds[i] = append(rounds[i], turn(i))
		}
	}
	b.ReportMetric(0, "ns/op")
	return each(rounds, func(all []figures) figures {
		return figures{
			perSecond: median(each(all, func(f figures) float64 { return f.perSecond })),
			p50:       median(each(all, func(f figures) time.Duration { return f.p50 })),
			p99:       median(each(all, func(f figures) time.Duration { return f.p99 })),
		}
	})
}

// report names the figures after the prefix.
func (f figures) report(b *testing.B, prefix, rate string) {
	b.ReportMetric(f.perSecond, rate)
	b.ReportMetric(microseconds(f.p50), prefix+"p50-µs")
	b.ReportMetric(microseconds(f.p99), prefix+"p99-µs")
}

// load is so many callers, each of which asks again as soon as it is answered.
type load struct {
	latencies [][]time.Duration // of each caller; kept, so that a round allocates nothing
	errs      []error
	all       []time.Duration
}

func newLoad(callers int) *load {
	return &load{latencies: make([][]time.Duration, callers), errs: make([]error, callers)}
}

func (l *load) round(d time.Duration, ask contestant) (figures, error) {
	var callers sync.WaitGroup
	gate := make(chan struct{})
	var start time.Time
	for c := range l.latencies {
		callers.Go(func() {
			took := l.latencies[c][:0]
			<-gate
			for at := time.Duration(0); at < d; {
				if l.errs[c] = ask(c); l.errs[c] != nil {
					break
				}
				now := time.Since(start)
				took = append(took, now-at)
				at = now
			}
			l.latencies[c] = took
		})
	}
	start = time.Now()
	close(gate)
	callers.Wait()
	took := time.Since(start)
	l.all = l.all[:0]
	for c, latencies := range l.latencies {
		if l.errs[c] != nil {
			return figures{}, fmt.Errorf("caller %d of %d: %w", c, len(l.errs), l.errs[c])
		}
		l.all = append(l.all, latencies...)
	}
	slices.Sort(l.all)
	return figures{
		perSecond: float64(len(l.all)) / took.Seconds(),
		p50:       l.all[len(l.all)/2],
		p99:       l.all[len(l.all)*99/100],
	}, nil
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
