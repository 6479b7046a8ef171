package countsync

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
)

// reset is the tombstone of a count that was reset. States and tallies carry
// its number: those with a lower one tell of a count that is no more.
type reset struct {
	number uint64
	at     int64  // the stream's time: what was queued here up to then is void
	made   int64  // when it was made, by this node's clock
	passed stamps // the members that it was queued for
}

// A tombstone is heeded for a time, and kept for three times as long, so that no node takes the
// number of a forgotten tombstone for a new one. For the first two of the three, other members
// remember the number too when a count brings it.
const (
	heeded    = int64(10 * time.Minute)
	learned   = 2 * heeded
	kept      = 3 * heeded
	maxResets = 1 << 20
)

// resets has the tombstones, and the order in which they became known.
//
// They are bounded: of more than maxResets within the time that they are kept, the
// oldest are forgotten before their time. What a member that has not heard of such a
// reset sends is then taken as if there had been none: at worst the count is back as
// it was before, and denies until it has recovered. Nothing is admitted more for it,
// since a reset that comes once again after it was forgotten so is remembered once
// more, but resets nothing (forgot).
//
// The stream's lock is held for all methods but heeded, which does not wait for it: what
// changes the map holds reading as well.
type resets struct {
	reading sync.RWMutex
	of      map[bucket.ID]reset
	any     atomic.Bool // of is not empty

	order deque[known] // oldest first
	most  int

	forgotten uint64 // from the front of order, ever
	dropped   uint64 // tombstones, before their time
	last      int64  // when the latest of the forgotten was made
}

// known is that an id was reset. Of an id's, the one that has its tombstone's made stands
// for that, and there always is one; later resets have replaced the others.
type known struct {
	id   bucket.ID
	made int64
}

// What a tombstone takes, about, and a place in the order.
const (
	resetBytes = 88
	knownBytes = 24
)

// ResetSlack is how far the number of a reset, which is the time at which it was made
// unless a later one was known, may be ahead of the clock of a node that learns of it.
// It is for clocks that are wrong by a day, as one that has the local time for UTC.
// What is further ahead changes nothing and is not passed on: else one node with a
// number of the year 2100 would have all resets by nodes that do not know of it fail,
// for as long as the number is heeded.
const ResetSlack = 24 * time.Hour

// ResetInTime reports whether a reset of this number is taken at a time.
func ResetInTime(number uint64, now int64) bool {
	return number <= uint64(max(0, now))+uint64(ResetSlack)
}

func newResets() *resets {
	return &resets{of: make(map[bucket.ID]reset), most: maxResets, last: math.MinInt64}
}

// heeded returns the number of an id's reset, 0 if none is known or heeded.
func (r *resets) heeded(id bucket.ID, now int64) uint64 {
	if !r.any.Load() {
		return 0
	}
	r.reading.RLock()
	t, ok := r.of[id]
	r.reading.RUnlock()
	if !ok || !t.heeded(now) {
		return 0
	}
	return t.number
}

// set makes t an id's tombstone.
func (r *resets) set(id bucket.ID, t reset) {
	r.reading.Lock()
	defer r.reading.Unlock()
	r.of[id] = t
	r.any.Store(true)
}

func (r *resets) delete(id bucket.ID) {
	r.reading.Lock()
	defer r.reading.Unlock()
	delete(r.of, id)
	r.any.Store(len(r.of) > 0)
}

func (r *resets) get(id bucket.ID) (reset, bool) {
	if len(r.of) == 0 {
		return reset{}, false
	}
	t, ok := r.of[id]
	return t, ok
}

func (r *resets) put(id bucket.ID, t reset) {
	r.set(id, t)
	r.order.push(known{id, t.made})
	// Those that a later one of the same id has replaced take a place each.
	const step = 4
	for range step {
		if len(r.of) <= r.most && r.order.len() <= 2*r.most {
			return
		}
		if r.forget() {
			r.dropped++
		}
	}
}

// pass notes that an id's tombstone was passed on.
func (r *resets) pass(id bucket.ID, to stamp) {
	if t, ok := r.get(id); ok && !t.passed.has(to) {
		t.passed.add(to)
		r.set(id, t)
	}
}

// forget drops the oldest. It reports whether that was a tombstone, and not one that
// had been replaced.
func (r *resets) forget() bool {
	k, t, stands := r.pop()
	if stands {
		r.delete(k.id)
		r.last = max(r.last, t.made)
	}
	return stands
}

// pop takes the oldest out of the order, and reports whether it stands for a tombstone.
func (r *resets) pop() (k known, t reset, stands bool) {
	k = r.order.pop()
	r.forgotten++
	t, ok := r.of[k.id]
	return k, t, ok && t.made == k.made
}

// forgot reports whether a reset that was made at a time, and is not known, may have
// been forgotten for want of room. Each member has its own clock for when it was made,
// and a frame takes its time.
func (r *resets) forgot(made int64) bool {
	const apart = int64(time.Second)
	return made <= r.last+apart
}

// sweep looks at up to so many and forgets those that are old. One from the future was
// made before the clock stepped back: it counts as made now, since everything that is
// reset after it would be kept until the clock is there again.
func (r *resets) sweep(now int64, most int) {
	r.last = min(r.last, now)
	for n := 0; n < most && r.order.len() > 0; n++ {
		switch made := r.order.at(0).made; {
		case made > now:
			r.redate(now)
		case now-made > kept:
			r.forget()
		default:
			return
		}
	}
}

// redate dates the oldest now, if it stands for a tombstone.
func (r *resets) redate(now int64) {
	k, t, stands := r.pop()
	if stands {
		t.made = now
		r.set(k.id, t)
		r.order.push(known{k.id, now})
	}
}

func (t reset) heeded(now int64) bool { return now-t.made <= heeded }
