package countsync

import (
	"time"

	"github.com/weir-go/weir/bucket"
)

// reset is the tombstone of a count that was reset. States and tallies carry
// its number: those with a lower one tell of a count that is no more.
type reset struct {
	number uint64
	at     int64 // the stream's time: what was queued here up to then is void
	made   int64 // when it was made, by this node's clock
}

// A tombstone is heeded for a time and then kept for as long again, so that no
// node takes the number of one that it has forgotten for a new one.
const (
	heeded    = int64(10 * time.Minute)
	kept      = 2 * heeded
	maxResets = 1 << 20
)

// resets has the tombstones, and the order in which they became known.
type resets struct {
	of    map[bucket.ID]reset
	order []known // oldest first

	forgotten uint64 // from the front of order, ever
}

// known is that an id was reset. Only the last one of an id stands for its tombstone.
type known struct {
	id   bucket.ID
	made int64
}

func newResets() resets { return resets{of: make(map[bucket.ID]reset)} }

func (r *resets) get(id bucket.ID) (reset, bool) {
	if len(r.of) == 0 {
		return reset{}, false
	}
	t, ok := r.of[id]
	return t, ok
}

func (r *resets) put(id bucket.ID, t reset) {
	if len(r.order) >= 2*maxResets {
		r.forget(len(r.order) / 2)
	}
	r.of[id] = t
	r.order = append(r.order, known{id, t.made})
}

// forget drops the oldest. Their places are let go of as order grows.
func (r *resets) forget(oldest int) {
	for _, k := range r.order[:oldest] {
		if t, ok := r.of[k.id]; ok && t.made <= k.made {
			delete(r.of, k.id)
		}
	}
	r.order = r.order[oldest:]
	r.forgotten += uint64(oldest)
}

// sweep forgets up to so many that are old.
func (r *resets) sweep(now int64, most int) {
	n := 0
	for n < min(most, len(r.order)) && now-r.order[n].made > kept {
		n++
	}
	if n > 0 {
		r.forget(n)
	}
}

func (t reset) heeded(now int64) bool { return now-t.made <= heeded }
