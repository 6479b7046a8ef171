package asker

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// pushbackFor is the maximum time for which a denial is cached, unless its key is banned or paused. A
// Refund on another member may have no effect on this node for as long.
const pushbackFor = time.Second

// banPushbackFor is the maximum time for which the denial of a banned or paused key is cached. It is longer than
// pushbackFor, because no refund ends a ban or a pause. A node that a reset has not reached may deny for as long.
const banPushbackFor = 10 * time.Second

// pausedKey is the value of pushback.numbers for the denial of a paused key.
const pausedKey = 1

// A node caches at most pushbackSets*pushbackWays denials, in 1.8 MB. Each ID belongs to one of the
// sets. If a set is full, the denial that ends first is replaced, and takes of its key are sent to
// the owner again. So the denials of banned keys, which last longest, are replaced last.
const (
	pushbackSets = 1 << 12
	pushbackWays = 4
)

// pushbacks contains the denials with which other members answered takes, strikes and pauses of this
// node, and the denials of pauses that callers of this node begin, so
// that a flood of takes of a denied key does not reach the owner.
//
// The owner would deny every take that a pushback denies, as long as the count there is not reset
// or judged by a higher Version, and no units are refunded: a denied take spends no units, other
// takes only add to the used units, and a denial is firm only if it does not depend on units that
// may be returned (wire.Result.Firm). The time of a pushback begins when the take was sent, not
// when the result arrived. So the pushback ends no later than the earliest time at which the owner
// can admit the same take. A refund on this node ends a pushback at once (end). After a refund on another member,
// a pushback lasts for at most pushbackFor. A pushback also ends when a reset reaches this node
// (reset). A denial of an owner that the reset has not reached yet is not cached.
//
// The age of a pushback is measured by both clocks of the node (env.Clock), and the greater age counts. So no
// denial is prolonged by a clock that steps back or stops.
type pushbacks struct {
	// until has the end of the last denial of each set, by the monotonic clock. After that time, a
	// take does not lock the set, so that takes of keys without a denial do not wait for each
	// other. The values are contiguous in memory, because each take that leaves the node reads one
	// of them.
	until [pushbackSets]atomic.Int64
	// sets is nil until the first take leaves the node, or a pause or a ban is learned.
	sets atomic.Pointer[[pushbackSets]pushbackSet]
	// number is Owner.ResetNumber. A denial with a lower number belongs to a count that was
	// reset.
	number func(id bucket.ID, now int64) uint64
}

// pushbackSet is a set of denials. Its size is a multiple of a cache line.
type pushbackSet struct {
	mu sync.Mutex
	// ended is the time at which units of an ID in this set were last refunded. The result of
	// a take that was sent before may not include the refund.
	ended   int64 // monotonic time
	entries [pushbackWays]pushback
	_       [48]byte
}

// pushback is a denial. An ID has several denials if asks for fewer units were denied after
// an ask for more units, or if its limit has several numbers.
type pushback struct {
	id               bucket.ID
	numbers          uint64 // wire.NumbersHash of the limit of the ask; for a ban 0, and for a pause pausedKey
	units            int64  // denied units; fewer units may still be admitted. 0 for a ban or a pause, which denies any ask
	sent             countsync.Time
	retry, reset     time.Duration // RetryAfter and ResetAfter in the result of the owner
	limit, remaining int64
	resetNumber      uint64 // ResetNumber in the result of the owner
	at               int64  // At in the result of the owner
}

// age returns the time since the take was sent.
func (p *pushback) age(t countsync.Time) time.Duration {
	return time.Duration(max(t.Monotonic-p.sent.Monotonic, t.Now-p.sent.Now))
}

// duration returns how long p denies, from the time at which the take was sent.
func (p *pushback) duration() time.Duration {
	if p.units == 0 {
		return min(p.retry, banPushbackFor)
	}
	return min(p.retry, pushbackFor)
}

// denies reports whether p denies the ask a until p ends.
func (p *pushback) denies(a *wire.Ask) bool {
	switch {
	case p.id != a.ID:
		return false
	case p.units == 0:
		return a.BansKeys || a.Pauses
	}
	return p.units <= a.LeastUnits() && p.numbers == wire.NumbersHash(a.Limit)
}

// endTime returns the latest time at which p ends, by the monotonic clock.
func (p *pushback) endTime() int64 { return p.sent.Monotonic + int64(p.duration()) }

// deny reports whether a cached denial denies a take, and sets the result. If there are
// several denials, the denial with the longest RetryAfter applies. For more units than were
// denied, this RetryAfter is a lower bound.
func (p *pushbacks) deny(a *wire.Ask, t countsync.Time, r *wire.Result) bool {
	if t.Monotonic >= p.until[a.ID.Lo%pushbackSets].Load() {
		p.allocate() // before the take is sent, so that end finds the set
		return false
	}
	s := p.set(a.ID)
	s.mu.Lock()
	denied, least := false, time.Duration(0)
	for i := range s.entries {
		b := &s.entries[i]
		if !b.denies(a) {
			continue
		}
		age := b.age(t)
		if age >= b.duration() || b.retry-age <= least {
			continue
		}
		denied, least = true, b.retry-age
		r.Allowed = false
		r.Limit = b.limit
		r.Banned = b.units == 0
		r.Paused = r.Banned && b.numbers == pausedKey
		if r.Banned {
			r.Limit = a.Limit.Usable()
		}
		r.Remaining = b.remaining
		r.RetryAfter = least
		r.ResetAfter = b.reset - age
		r.Receipt = 0
		r.Source, r.At = wire.Pushback, t.Now
		if b.at != 0 { // the owner has denied a take
			r.At = b.at + int64(age)
		}
	}
	s.mu.Unlock()
	return denied
}

// learn caches the result r if it is a firm denial. The ask was sent at the time sent.
func (p *pushbacks) learn(a *wire.Ask, r *wire.Result, sent countsync.Time) {
	if !r.Firm {
		return
	}
	p.allocate()
	s := p.set(a.ID)
	b := pushback{a.ID, wire.NumbersHash(a.Limit), a.LeastUnits(), sent, r.RetryAfter, r.ResetAfter, r.Limit, r.Remaining, r.ResetNumber, r.At}
	if r.Banned {
		b.numbers, b.units = 0, 0
	}
	if r.Paused {
		b.numbers = pausedKey
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.Monotonic <= s.ended || r.ResetNumber < p.number(a.ID, sent.Now) {
		return
	}
	at := 0
	for i := range s.entries {
		o := &s.entries[i]
		if o.id == b.id && o.numbers == b.numbers && o.units == b.units {
			if r.Paused && o.endTime() > sent.Monotonic && o.sent.Monotonic+int64(o.retry) > sent.Monotonic+int64(r.RetryAfter) {
				return // a pause that this node begins must not shorten the cached denial of a longer pause
			}
			at = i
			break
		}
		if o.endTime() < s.entries[at].endTime() {
			at = i
		}
	}
	s.entries[at] = b
	if until := &p.until[a.ID.Lo%pushbackSets]; b.endTime() > until.Load() {
		until.Store(b.endTime())
	}
}

// end forgets the denials of an ID, because units were refunded at the monotonic time steady. The
// result of a take that was sent before is not cached either.
func (p *pushbacks) end(id bucket.ID, steady int64) {
	s := p.set(id)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = steady
	s.forget(id, math.MaxUint64)
}

// reset forgets the denials of an ID from before the reset with the given number. Denials of
// members that know of the reset are kept.
func (p *pushbacks) reset(id bucket.ID, number uint64) {
	s := p.set(id)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id, number)
}

// forget forgets the denials of an ID from before the reset with the given number. The caller
// must hold mu.
func (s *pushbackSet) forget(id bucket.ID, number uint64) {
	for i := range s.entries {
		if b := &s.entries[i]; b.id == id && b.resetNumber < number {
			*b = pushback{}
		}
	}
}

// allocate allocates the sets, once.
func (p *pushbacks) allocate() {
	if p.sets.Load() == nil {
		p.sets.CompareAndSwap(nil, new([pushbackSets]pushbackSet))
	}
}

func (p *pushbacks) set(id bucket.ID) *pushbackSet {
	sets := p.sets.Load()
	if sets == nil {
		return nil
	}
	return &sets[id.Lo%pushbackSets]
}
