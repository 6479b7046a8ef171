package main

import (
	"math/bits"
	"time"
)

// latencies is how long requests took: counts by microseconds, each power of two
// in 32 steps, so that a quantile is at most 1/32 too high.
type latencies struct {
	counts [32 * 32]uint32
	total  int
	most   time.Duration
}

const latencySteps = 32

func (l *latencies) add(d time.Duration) {
	l.counts[latencyStep(d)]++
	l.total++
	l.most = max(l.most, d)
}

func (l *latencies) merge(o *latencies) {
	for i, n := range o.counts {
		l.counts[i] += n
	}
	l.total += o.total
	l.most = max(l.most, o.most)
}

// quantile is the time that the part q of all did not exceed, 0 if there are none.
func (l *latencies) quantile(q float64) time.Duration {
	rest := int(q * float64(l.total))
	for i, n := range l.counts {
		if rest -= int(n); rest < 0 {
			return min(latencyOf(i), l.most)
		}
	}
	return l.most
}

func latencyStep(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < latencySteps {
		return int(us)
	}
	power := bits.Len64(us) - 6 // us>>power is 32 to 63
	return min(power*latencySteps+int(us>>power), len(latencies{}.counts)-1)
}

// latencyOf is the upper end of a step.
func latencyOf(step int) time.Duration {
	if step < latencySteps {
		return time.Duration(step+1) * time.Microsecond
	}
	power := step/latencySteps - 1
	return time.Duration(uint64(step%latencySteps+latencySteps+1)<<power) * time.Microsecond
}
