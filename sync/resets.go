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

// resets has the tombstones, and their ids in the order they were made.
type resets struct {
	of    map[bucket.ID]reset
	order []bucket.ID // oldest first; an id can be there twice
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
	r.order = append(r.order, id)
}

func (r *resets) forget(oldest int) {
	for _, id := range r.order[:oldest] {
		delete(r.of, id)
	}
	r.order = append([]bucket.ID(nil), r.order[oldest:]...)
}

// sweep forgets up to so many that are old.
func (r *resets) sweep(now int64, most int) {
	n := 0
	for n < min(most, len(r.order)) && now-r.of[r.order[n]].made > kept {
		n++
	}
	if n > 0 {
		r.forget(n)
	}
}

func (t reset) heeded(now int64) bool { return now-t.made <= heeded }
