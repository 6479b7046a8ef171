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

// pushbackFor bounds how long a denial is remembered, and with it for how long a
// Refund elsewhere may go unnoticed.
const pushbackFor = time.Second

// A node remembers pushbackSets*pushbackWays denials at most, in 1.6 MB. An id has its
// place in one of the sets; where that is full, the denial that ends soonest is
// forgotten, and its key is asked for at its owner again.
const (
	pushbackSets = 1 << 12
	pushbackWays = 4
)

// pushbacks are the denials that other members have answered this node's takes with, so
// that a flood of a denied key ends here and not at the owner.
//
// Every take that a pushback denies would have been denied by the owner as well, as
// long as nothing is given back there: a denied take spends nothing, other takes only
// add to what is used, and the owner calls a denial firm only if it does not rest on
// units that may be given back (wire.Result.Firm). The memory begins when the take was sent,
// not when its answer came, so that it ends no later than the same ask, sent then, is
// admitted. What gives back on this node ends it at once (end); elsewhere it lasts for
// pushbackFor. A reset that reaches this node ends it as well (reset), and of an owner that
// the reset has not reached yet nothing is remembered.
//
// Time passes by the clock that checks read and by the steady one, whichever is ahead:
// neither a clock that steps back nor one that stands still makes a denial last.
type pushbacks struct {
	// until is when the last of a set ends, by the monotonic clock: from then on a take does
	// not wait for the set's lock, which those of a key that is not denied would share.
	// They are contiguous in memory, because each take that leaves the node reads one of them.
	until [pushbackSets]atomic.Int64
	// sets is nil until the first take leaves the node.
	sets atomic.Pointer[[pushbackSets]pushbackSet]
	// number is Owner.ResetNumber: a denial of a lower one is of a count that is no more.
	number func(id bucket.ID, now int64) uint64
}

// pushbackSet fills whole cache lines.
type pushbackSet struct {
	mu sync.Mutex
	// ended is when units were last given back of an id in this set. The answer to a take
	// that was sent before may know nothing of that.
	ended int64 // by the monotonic clock
	of    [pushbackWays]pushback
	_     [16]byte
}

// pushback is one denial. An id has several where asks for fewer units were denied
// after one for more, or where its limit has several numbers.
type pushback struct {
	id               bucket.ID
	numbers          uint64 // of the limit that it was asked by
	units            int64  // that were denied; fewer may yet be admitted
	sent             countsync.Time
	retry, reset     time.Duration // as answered
	limit, remaining int64
	resetNumber      uint64 // as answered
}

// past is how long ago the take was sent.
func (p *pushback) past(t countsync.Time) time.Duration {
	return time.Duration(max(t.Monotonic-p.sent.Monotonic, t.Now-p.sent.Now))
}

// lasts is for how long p denies from when the take was sent.
func (p *pushback) lasts() time.Duration { return min(p.retry, pushbackFor) }

// ends is when p denies no more at the latest, by the monotonic clock.
func (p *pushback) ends() int64 { return p.sent.Monotonic + int64(p.lasts()) }

// deny reports whether a take is denied by what is remembered, and answers it. Of
// several denials the longest counts: it is the one for the most units. For more units
// than were denied its RetryAfter is the least that it can be.
func (p *pushbacks) deny(a *wire.Ask, t countsync.Time, r *wire.Result) bool {
	if t.Monotonic >= p.until[a.ID.Lo%pushbackSets].Load() {
		if p.sets.Load() == nil {
			p.sets.CompareAndSwap(nil, new([pushbackSets]pushbackSet)) // before the take is sent, so that end finds it
		}
		return false
	}
	s := p.set(a.ID)
	s.mu.Lock()
	denied, least := false, time.Duration(0)
	for i := range s.of {
		b := &s.of[i]
		if b.id != a.ID || b.units > a.Units || b.numbers != wire.NumbersHash(a.Limit) {
			continue
		}
		past := b.past(t)
		if past >= b.lasts() || b.retry-past <= least {
			continue
		}
		denied, least = true, b.retry-past
		r.Allowed = false
		r.Limit = b.limit
		r.Remaining = b.remaining
		r.RetryAfter = least
		r.ResetAfter = b.reset - past
		r.Receipt = 0
		r.Source = wire.Pushback
	}
	s.mu.Unlock()
	return denied
}

// learn remembers a firm denial of a take that was sent then.
func (p *pushbacks) learn(a *wire.Ask, r *wire.Result, sent countsync.Time) {
	if !r.Firm {
		return
	}
	s := p.set(a.ID)
	if s == nil {
		return
	}
	b := pushback{a.ID, wire.NumbersHash(a.Limit), a.Units, sent, r.RetryAfter, r.ResetAfter, r.Limit, r.Remaining, r.ResetNumber}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.Monotonic <= s.ended || r.ResetNumber < p.number(a.ID, sent.Now) {
		return
	}
	at := 0
	for i := range s.of {
		o := &s.of[i]
		if o.id == b.id && o.numbers == b.numbers && o.units == b.units {
			at = i
			break
		}
		if o.ends() < s.of[at].ends() {
			at = i
		}
	}
	s.of[at] = b
	if until := &p.until[a.ID.Lo%pushbackSets]; b.ends() > until.Load() {
		until.Store(b.ends())
	}
}

// end forgets what is remembered of an id, as units were given back. An answer that is
// still under way is not remembered either.
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

// reset forgets what was denied of an id before the reset of this number. What is denied
// by members that know of it stays.
func (p *pushbacks) reset(id bucket.ID, number uint64) {
	s := p.set(id)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id, number)
}

// forget forgets the denials of an id from before the reset of the given number. The caller must hold mu.
func (s *pushbackSet) forget(id bucket.ID, number uint64) {
	for i := range s.of {
		if b := &s.of[i]; b.id == id && b.resetNumber < number {
			*b = pushback{}
		}
	}
}

func (p *pushbacks) set(id bucket.ID) *pushbackSet {
	sets := p.sets.Load()
	if sets == nil {
		return nil
	}
	return &sets[id.Lo%pushbackSets]
}
