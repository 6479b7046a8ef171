package owner

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// lent is what this node has lent of the counts that it has authority over, as far as it
// may be unspent: what a denial may rest on that others give back, and what a refund
// must not take for usage. Nothing else of a lease is known here: its units are spent
// when they are lent, and that is in the counts, and their copies.
//
// lentSets*lentWays counts are lent of at most. An id has its place in one of the sets;
// where that is full, nothing is lent of it. All times are by the monotonic clock.
//
// What is lent is of the present count. A reset takes the set's lock (lock), so that what
// was lent before it is marked with a lower reset number, by which it is not taken back.
//
// Authority moves only when nothing is lent: the member that has it next knows of no lease, so that
// nothing would be given back. So before it gives some away, a node lends nothing for as
// long as what it has lent may last.
type lent struct {
	sets   atomic.Pointer[[lentSets]lentSet] // nil until the first lease
	until  atomic.Int64                      // when the last lease ends
	ceases atomic.Bool                       // nothing is lent now
}

const (
	lentSets = 1 << 11
	lentWays = 4
)

type lentSet struct {
	until atomic.Int64 // when the last lease of them ends
	mu    sync.Mutex
	of    [lentWays]lentCount
}

// lentCount is what is lent of one count: never less than what may be spent yet.
type lentCount struct {
	id    bucket.ID
	until int64 // when the last one ends
	span  int64 // the number of this span, of lentFor
	// The units lent in this span and in the one before, less those that were spent or
	// given back. What nobody says that of is forgotten with its span, as it has ended.
	now, before int64
}

// lentFor is how long the owner has what it lends for lent, where the count can do that
// (bucket.Lend). The borrower spends it for two thirds of that at most, and of keys that
// are asked for often for far less: what it gives back then comes in time though its
// machine is busy, or a packet is sent twice.
const lentFor = wire.LongestLease * 3 / 2

// lock returns an id's set, locked. Under that lock the count is reset, lent of, and takes
// back what was lent, so that each of these is wholly before or after a reset.
func (l *lent) lock(id bucket.ID) *lentSet {
	if l.sets.Load() == nil {
		l.sets.CompareAndSwap(nil, new([lentSets]lentSet))
	}
	s := l.set(id)
	s.mu.Lock()
	return s
}

// open is what is lent of an id; nil if there is no place for it. s.mu is held.
func (s *lentSet) open(id bucket.ID, steady int64) (c *lentCount) {
	var free *lentCount
	for i := range s.of {
		c := &s.of[i]
		if c.id == id {
			c.turn(steady)
			return c
		}
		if c.until <= steady {
			free = c
		}
	}
	if free != nil {
		*free = lentCount{id: id} // what was lent of it before is over
		free.turn(steady)
	}
	return free
}

// turn goes on to the span of now.
func (c *lentCount) turn(steady int64) {
	switch at := steady / int64(lentFor); {
	case at == c.span+1:
		c.span, c.now, c.before = at, 0, c.now
	case at != c.span:
		c.span, c.now, c.before = at, 0, 0
	}
}

// lease is what may be spent yet, for how long.
func (c *lentCount) lease(steady int64) bucket.Lease {
	if steady >= c.until || c.now+c.before == 0 {
		return bucket.Lease{}
	}
	return bucket.Lease{Units: c.now + c.before, Term: time.Duration(c.until - steady)}
}

// of is what is lent of an id and may be unspent.
func (l *lent) of(id bucket.ID, steady int64) (lease bucket.Lease) {
	s := l.set(id)
	if s == nil || steady >= s.until.Load() {
		return lease
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.of {
		if c := &s.of[i]; c.id == id {
			c.turn(steady)
			lease = c.lease(steady)
		}
	}
	return lease
}

// close takes note of what became of a lease of the present count, and reports whether
// what is left of it is to be given back: not if it is over. Once it is over no refund
// leaves its units any more (of), so that they may have been given back instead of those
// that were meant. s.mu is held.
func (s *lentSet) close(a *wire.Ask, steady int64) bool {
	for i := range s.of {
		c := &s.of[i]
		if c.id != a.ID {
			continue
		}
		c.turn(steady)
		left := time.Duration(a.Lent.Until-stamp(steady)) * stampTick // to within a tick
		units := int64(a.Lent.Units) + a.Units
		if steady >= c.until || left == 0 || left > lentFor+stampTick || // over, as a stamp that is past is far ahead
			units < 0 || units > c.now+c.before {
			return false
		}
		first := min(units, c.before)
		c.before -= first
		c.now -= units - first
		return true
	}
	return false
}

// reset forgets what was lent of an id: what is spent of it yet counts nowhere. s.mu is
// held.
func (s *lentSet) reset(id bucket.ID) {
	for i := range s.of {
		if c := &s.of[i]; c.id == id {
			c.now, c.before = 0, 0
		}
	}
}

func (l *lent) set(id bucket.ID) *lentSet {
	sets := l.sets.Load()
	if sets == nil {
		return nil
	}
	return &sets[id.Lo%lentSets]
}

// cease stops lending, or begins again, and reports whether all leases
// are over.
func (l *lent) cease(cease bool, steady int64) (over bool) {
	l.ceases.Store(cease)
	return steady >= l.until.Load()
}

// raise makes a no less than to.
func raise(a *atomic.Int64, to int64) {
	for was := a.Load(); was < to && !a.CompareAndSwap(was, to); was = a.Load() {
	}
}

// stamp is a time in ticks, as far as it fits: it is another's again after 19 hours.
func stamp(steady int64) uint32 { return uint32(steady / int64(stampTick)) }

const stampTick = 1 << 14 * time.Nanosecond

// takeLending takes, and lends of what is left, by the limit that judges the count here;
// without one, by what this region has.
func (o *Owner) takeLending(a *wire.Ask, l *bucket.Limit, now int64, r *wire.Result) {
	steady := o.clock.MonotonicAt(now)
	s := o.lent.lock(a.ID)
	defer s.mu.Unlock()
	c := s.open(a.ID, steady)
	r.ResetNumber = o.ResetNumber(a.ID, now)
	var want, other, granted bucket.Lease
	if c != nil && !o.lent.ceases.Load() {
		want, other = bucket.Lease{Units: int64(a.Take.Want.Units), Term: lentFor}, c.lease(steady)
	}
	term := min(time.Duration(a.Take.Want.Term)*time.Millisecond, wire.LongestLease)
	least := term * 3 / 2 // in which the asker has it for term
	if l == nil {
		granted = o.holdings.Lend(a.ID, a.Limit, o.clock.At(now), a.Units, want, least, other, &r.Result)
	} else {
		granted = o.counts.Lend(a.ID, l, now, a.Units, want, least, other, &r.Result)
	}
	if granted.Units == 0 {
		return
	}
	c.now += granted.Units
	c.until = max(c.until, steady+int64(granted.Term))
	raise(&s.until, c.until)
	raise(&o.lent.until, c.until)
	r.Lease = wire.Lease{Units: uint32(granted.Units), Term: uint16(min(term, granted.Term*2/3) / time.Millisecond), Until: stamp(steady + int64(granted.Term))}
}

// Reclaim is told what became of a lease: what is left of it counts no more. A node that has no
// authority any more does not take it back, as it does not know then how others count it. What
// was lent of a count that was reset since is not in the present one.
func (o *Owner) Reclaim(v *view.View, a *wire.Ask, now int64) {
	s := o.lent.set(a.ID)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Spent.ResetNumber < o.ResetNumber(a.ID, now) {
		return
	}
	steady := o.clock.MonotonicAt(now)
	if s.close(a, steady) && a.Units > 0 && v.Standing(a.ID) == view.AsOwner {
		o.counts.Return(a.ID, o.wholeOf(a, now), now, a.Units, a.Spent.Receipt, s.open(a.ID, steady).lease(steady))
	}
}

// soonest has a denial say no later than when what is lent of its count has ended: it
// may be given back.
func (o *Owner) soonest(id bucket.ID, r *bucket.Result, now int64) {
	if r.Allowed {
		return
	}
	if lease := o.lent.of(id, o.clock.MonotonicAt(now)); lease.Units > 0 {
		r.RetryAfter = min(r.RetryAfter, lease.Term)
	}
}

// lentUnits returns the lent units that borrowers may still spend.
func (l *lent) lentUnits(steady int64) (units int) {
	sets := l.sets.Load()
	if sets == nil || steady >= l.until.Load() {
		return 0
	}
	for i := range sets {
		s := &sets[i]
		if steady >= s.until.Load() {
			continue
		}
		s.mu.Lock()
		for j := range s.of {
			c := &s.of[j]
			c.turn(steady)
			if of := c.lease(steady); of.Units > 0 {
				units += int(of.Units)
			}
		}
		s.mu.Unlock()
	}
	return units
}

// Reset resets a count, here or as another node did it, and forgets what was lent of it
// before.
func (o *Owner) Reset(id bucket.ID, reset func()) {
	s := o.lent.lock(id)
	defer s.mu.Unlock()
	reset()
	s.reset(id)
}

// Cease stops lending, or begins again, and reports whether all leases
// are over.
func (o *Owner) Cease(cease bool, steady int64) (over bool) { return o.lent.cease(cease, steady) }

// LentUnits returns the lent units that borrowers may still spend.
func (o *Owner) LentUnits(steady int64) int { return o.lent.lentUnits(steady) }
