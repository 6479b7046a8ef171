package main

import (
	"math/bits"
	"time"
)

// latencies is how long requests took: counts by microseconds, each power of two
// in 32 steps, so that a quantile is at most 1/32 too high. Gateways report them.
type latencies struct {
	Counts [32 * 32]uint32
	Total  int
	Most   time.Duration
}

const latencySteps = 32

func (l *latencies) add(d time.Duration) {
	l.Counts[latencyStep(d)]++
	l.Total++
	l.Most = max(l.Most, d)
}

func (l *latencies) merge(o *latencies) {
	for i, n := range o.Counts {
		l.Counts[i] += n
	}
	l.Total += o.Total
	l.Most = max(l.Most, o.Most)
}

// quantile is the time that the part q of all did not exceed, 0 if there are none.
func (l *latencies) quantile(q float64) time.Duration {
	rest := int(q * float64(l.Total))
	for i, n := range l.Counts {
		if rest -= int(n); rest < 0 {
			return min(latencyOf(i), l.Most)
		}
	}
	return l.Most
}

func latencyStep(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < latencySteps {
		return int(us)
	}
	power := bits.Len64(us) - 6 // us>>power is 32 to 63
	return min(power*latencySteps+int(us>>power), len(latencies{}.Counts)-1)
}

// latencyOf is the upper end of a step.
func latencyOf(step int) time.Duration {
	if step < latencySteps {
		return time.Duration(step+1) * time.Microsecond
	}
	power := step/latencySteps - 1
	return time.Duration(uint64(step%latencySteps+latencySteps+1)<<power) * time.Microsecond
}
