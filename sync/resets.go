package countsync

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
)

// reset is the tombstone of a count. Each state and spend contains the number of the last reset
// that its sender knew. If this number is lower than that of the tombstone, the state or spend
// belongs to a count that no longer exists.
type reset struct {
	number uint64
	made   int64  // time of the reset, by the clock of this node
	passed stamps // stamps of the members for which the reset was queued, or which have sent it
}

// A tombstone is in effect for the time effectiveFor. It is kept for three times as long, so that
// no node takes the number of a forgotten tombstone for a new one. During the first two thirds,
// other members also record the number when a count brings it.
const (
	effectiveFor = int64(10 * time.Minute)
	learnedFor   = 2 * effectiveFor
	tombstoneFor = 3 * effectiveFor
	maxResets    = 1 << 20
)

// resets contains the tombstones, and the order in which they became known.
//
// The number of tombstones is bounded. If there are more than maxResets within the time for which
// they are kept, the oldest ones are forgotten early. The data of a member that has not heard of
// such a reset is then accepted as if there had been no reset. At worst, the count is as it was
// before the reset, and denies until it has recovered. No additional units are admitted: a reset
// that arrives again after it was forgotten early is recorded again, but resets no count
// (forgot).
//
// The caller must hold the lock of the stream for all methods except effectiveNumber, which does
// not wait for that lock. Methods that change the map therefore also hold byIDMu.
type resets struct {
	byIDMu   sync.RWMutex
	byID     map[bucket.ID]reset
	notEmpty atomic.Bool // whether byID is not empty

	order deque[known] // oldest first
	most  int

	forgotten uint64 // number of elements that were ever removed from the front of order
	dropped   uint64 // tombstones that were forgotten early
	last      int64  // time of the latest reset that was forgotten
}

// known is an element of the order, for a reset of id at the time made. Each tombstone has an
// element with the same id and time. Other elements of that id stand for resets that a later
// reset has replaced.
type known struct {
	id   bucket.ID
	made int64
}

// Approximate sizes of a tombstone and of an element of the order.
const (
	resetBytes = 88
	knownBytes = 24
)

// ResetSlack is how far the number of a reset may be ahead of the clock of a node that learns of
// the reset. The number is the time of the reset, unless a later number was known. The slack
// allows for clocks that are wrong by a day, such as a clock with the local time instead of UTC.
// A number that is further ahead changes nothing and is not passed on. Otherwise, for as long as a
// number of the year 2100 is in effect, all resets of that id would fail if the resetting node does
// not know that number.
const ResetSlack = 24 * time.Hour

// ResetInTime reports whether a reset with the given number is accepted at the time now.
func ResetInTime(number uint64, now int64) bool {
	return number <= uint64(max(0, now))+uint64(ResetSlack)
}

func newResets() *resets {
	return &resets{byID: make(map[bucket.ID]reset), most: maxResets, last: math.MinInt64}
}

// effectiveNumber returns the number of the reset of an id, or 0 if no reset is known and in
// effect.
func (r *resets) effectiveNumber(id bucket.ID, now int64) uint64 {
	if !r.notEmpty.Load() {
		return 0
	}
	r.byIDMu.RLock()
	t, ok := r.byID[id]
	r.byIDMu.RUnlock()
	if !ok || !t.isEffective(now) {
		return 0
	}
	return t.number
}

// set sets the tombstone of id to t.
func (r *resets) set(id bucket.ID, t reset) {
	r.byIDMu.Lock()
	defer r.byIDMu.Unlock()
	r.byID[id] = t
	r.notEmpty.Store(true)
}

func (r *resets) delete(id bucket.ID) {
	r.byIDMu.Lock()
	defer r.byIDMu.Unlock()
	delete(r.byID, id)
	r.notEmpty.Store(len(r.byID) > 0)
}

func (r *resets) get(id bucket.ID) (reset, bool) {
	if len(r.byID) == 0 {
		return reset{}, false
	}
	t, ok := r.byID[id]
	return t, ok
}

func (r *resets) put(id bucket.ID, t reset) {
	r.set(id, t)
	r.order.push(known{id, t.made})
	// The order also has the elements that a later reset of the same id has replaced.
	const step = 4
	for range step {
		if len(r.byID) <= r.most && r.order.len() <= 2*r.most {
			return
		}
		if r.forget() {
			r.dropped++
		}
	}
}

// pass records that the tombstone of id was queued for the receiver with the given stamp.
func (r *resets) pass(id bucket.ID, receiver stamp) {
	if t, ok := r.get(id); ok && !t.passed.contains(receiver) {
		t.passed.add(receiver)
		r.set(id, t)
	}
}

// forget removes the oldest element. forget reports whether the element stood for a tombstone and
// had not been replaced.
func (r *resets) forget() bool {
	k, t, stands := r.pop()
	if stands {
		r.delete(k.id)
		r.last = max(r.last, t.made)
	}
	return stands
}

// pop removes the oldest element of the order, and reports whether it stands for a tombstone.
func (r *resets) pop() (k known, t reset, stands bool) {
	k = r.order.pop()
	r.forgotten++
	t, ok := r.byID[k.id]
	return k, t, ok && t.made == k.made
}

// forgot reports whether an unknown reset that was made at the given time may have been forgotten
// for want of room. The time of a reset differs between members, because each member has its own
// clock and a frame takes time to arrive.
func (r *resets) forgot(made int64) bool {
	const apart = int64(time.Second)
	return made <= r.last+apart
}

// sweep examines at most the given number of elements, and forgets old tombstones. If a reset has
// a future time, the clock has stepped back since. sweep sets that time to the time now, because otherwise all
// later resets would be kept until the clock reaches that time again.
func (r *resets) sweep(now int64, most int) {
	r.last = min(r.last, now)
	for n := 0; n < most && r.order.len() > 0; n++ {
		switch made := r.order.element(0).made; {
		case made > now:
			r.redate(now)
		case now-made > tombstoneFor:
			r.forget()
		default:
			return
		}
	}
}

// redate sets the time of the oldest element to the time now, if it stands for a tombstone.
func (r *resets) redate(now int64) {
	k, t, stands := r.pop()
	if stands {
		t.made = now
		r.set(k.id, t)
		r.order.push(known{k.id, now})
	}
}

func (t reset) isEffective(now int64) bool { return now-t.made <= effectiveFor }
