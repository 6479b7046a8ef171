package stats

import (
	"slices"
	"sync/atomic"
	"time"
)

// Latency is the distribution of the durations of checks. A measured check counts as all the checks
// that it represents. Buckets contains, for each bound, the number of checks that took at most that
// long.
type Latency struct {
	Count   uint64
	Sum     time.Duration
	Buckets []uint64
}

// bounds contains the upper bounds of the buckets, and is never modified.
var bounds = [...]time.Duration{
	250, 500, 1 * time.Microsecond, 2500,
	5 * time.Microsecond, 10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, 1 * time.Millisecond, 2500 * time.Microsecond,
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
}

// LatencyBounds returns the upper bounds of the buckets of a Latency.
func LatencyBounds() []time.Duration { return slices.Clone(bounds[:]) }

// histogram counts durations. Usually only one check in 64 is measured, so the counters need no
// stripes.
type histogram struct {
	buckets [len(bounds) + 1]atomic.Uint64 // not cumulative; the last bucket counts the durations above all bounds
	sum     atomic.Int64
}

func (h *histogram) add(took time.Duration, weight uint64) {
	i, _ := slices.BinarySearch(bounds[:], took)
	h.buckets[i].Add(weight)
	h.sum.Add(int64(took) * int64(weight))
}

func (h *histogram) latency() (l Latency) {
	l.Buckets = make([]uint64, len(bounds))
	for i := range h.buckets {
		l.Count += h.buckets[i].Load()
		if i < len(l.Buckets) {
			l.Buckets[i] = l.Count
		}
	}
	l.Sum = time.Duration(h.sum.Load())
	return l
}
