package weir

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/wire"
)

// Latency is how long checks took that one source decided: from when the check had read
// the clock to its answer, which leaves out the hash of its key. A check is measured by
// chance, one in 64 and then for 64, but the first few: so that figures are of all
// checks, and Count is about that of Decisions.
type Latency struct {
	Count uint64
	Sum   time.Duration
	// Buckets says for each of LatencyBounds how many took no longer than that.
	Buckets []uint64
}

// latencyBounds are never written to.
var latencyBounds = [...]time.Duration{
	250, 500, 1 * time.Microsecond, 2500,
	5 * time.Microsecond, 10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, 1 * time.Millisecond, 2500 * time.Microsecond,
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
}

// LatencyBounds returns the upper bounds of the buckets of a Latency, 250 ns to 1 s.
func LatencyBounds() []time.Duration { return slices.Clone(latencyBounds[:]) }

// histogram counts durations, mostly of checks that are one in 64: so it needs no stripes.
type histogram struct {
	buckets [len(latencyBounds) + 1]atomic.Uint64 // each by itself; in the last place what took longer
	sum     atomic.Int64
}

func (h *histogram) add(took time.Duration, weight uint64) {
	i, _ := slices.BinarySearch(latencyBounds[:], took)
	h.buckets[i].Add(weight)
	h.sum.Add(int64(took) * int64(weight))
}

func (h *histogram) read() (l Latency) {
	l.Buckets = make([]uint64, len(latencyBounds))
	for i := range h.buckets {
		l.Count += h.buckets[i].Load()
		if i < len(l.Buckets) {
			l.Buckets[i] = l.Count
		}
	}
	l.Sum = time.Duration(h.sum.Load())
	return l
}

// latency is the Latency of each source that has any.
func (m *meters) latency() map[Source]Latency {
	of := make(map[Source]Latency)
	for source := Owner; source <= Leased; source++ {
		if l := m.latencies[source].read(); l.Count > 0 {
			of[source] = l
		}
	}
	return of
}

// sampled takes in a decision of this node's that stands for so many. asked is false of
// what only looked at a count.
func (n *Node) sampled(l *Limiter, key string, a *wire.Ask, r *wire.Result, asked bool, weight uint64) {
	now := n.steady()
	n.meters.latencies[r.Source].add(time.Duration(max(0, now-a.Began)), weight)
	if asked {
		n.topKeys.add(a.ID, l.limit.Name, key, r.Allowed, weight, now)
	}
}
