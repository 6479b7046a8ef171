package owner

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// lent records the lent units that borrowers may not have spent yet. This node has authority over the counts from
// which it has lent them. Such units can cause a denial although they are returned
// later, and a refund must not treat them as usage. No other information about a lease is recorded:
// the count includes the units from the time at which they are lent, and the replicas include them
// once the change is sent.
//
// At most lentSets*lentWays counts can have lent units. An ID belongs to a set. If this set is
// full, no units of the ID are lent. All times are by the monotonic clock.
//
// Units that were lent before a reset are not returned to the count after the reset. A reset holds the
// lock of the set (see lock), so units that were lent before have a lower reset number, and Reclaim
// does not return them.
//
// Authority moves only when no units are lent: the next holder does not know of the leases,
// so their units could not be returned. Before a node transfers authority, it lends no units
// for as long as the existing leases may last.
type lent struct {
	sets   atomic.Pointer[[lentSets]lentSet] // nil until the first lease
	until  atomic.Int64                      // end of the last lease of all sets
	ceases atomic.Bool                       // if true, this node does not lend any units
}

const (
	lentSets = 1 << 11
	lentWays = 4
)

type lentSet struct {
	until   atomic.Int64 // end of the last lease in this set
	mu      sync.Mutex
	entries [lentWays]lentCount
}

// lentCount is the number of units lent from a count. Except after a reset, it is never less than
// the units that may still be spent.
type lentCount struct {
	id    bucket.ID
	until int64 // end of the last lease
	span  int64 // number of the current span; a span lasts lentFor
	// now and before are the units lent in the current and the previous span, without the units
	// that the borrowers have reported as spent or returned. Units that they do not report are
	// removed with their span, because the lease has ended.
	now, before int64
}

// lentFor is the maximum time for which the owner regards units as lent (see bucket.Store.Lend). The
// borrower may spend them for at most two thirds of this time, and for far less if the key is hot. So
// returned units arrive before this time ends, even if the machine of the borrower is busy or a packet
// is sent twice.
const lentFor = wire.LongestLease * 3 / 2

// lock locks the set of an ID, and returns the set. The count is reset, units are lent from it, and
// lent units are returned to it only under this lock. So a loan or a return happens entirely before
// or after a reset.
func (l *lent) lock(id bucket.ID) *lentSet {
	if l.sets.Load() == nil {
		l.sets.CompareAndSwap(nil, new([lentSets]lentSet))
	}
	s := l.set(id)
	s.mu.Lock()
	return s
}

// entry returns the entry of an ID. It adds an entry if there is none, and returns nil if s has no
// room. The caller must hold s.mu.
func (s *lentSet) entry(id bucket.ID, steady int64) (c *lentCount) {
	var free *lentCount
	for i := range s.entries {
		c := &s.entries[i]
		if c.id == id {
			c.advance(steady)
			return c
		}
		if c.until <= steady {
			free = c
		}
	}
	if free != nil {
		*free = lentCount{id: id} // earlier leases of this entry have ended
		free.advance(steady)
	}
	return free
}

// advance advances c to the current span.
func (c *lentCount) advance(steady int64) {
	switch at := steady / int64(lentFor); {
	case at == c.span+1:
		c.span, c.now, c.before = at, 0, c.now
	case at != c.span:
		c.span, c.now, c.before = at, 0, 0
	}
}

// lease returns the units that borrowers may still spend, and for how long.
func (c *lentCount) lease(steady int64) bucket.Lease {
	if steady >= c.until || c.now+c.before == 0 {
		return bucket.Lease{}
	}
	return bucket.Lease{Units: c.now + c.before, Term: time.Duration(c.until - steady)}
}

// leaseOf returns the lent units of an ID that may be unspent.
func (l *lent) leaseOf(id bucket.ID, steady int64) (lease bucket.Lease) {
	s := l.set(id)
	if s == nil || steady >= s.until.Load() {
		return lease
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.entries {
		if c := &s.entries[i]; c.id == id {
			c.advance(steady)
			lease = c.lease(steady)
		}
	}
	return lease
}

// endLease records the end of a lease that was granted since the last reset of the count. It reports
// whether the unspent units of the lease should be returned to the count. Units of an expired lease are
// not returned: leaseOf no longer excludes them from refunds, so a refund of other units may already have
// removed them from the count. The caller must hold s.mu.
func (s *lentSet) endLease(a *wire.Ask, steady int64) bool {
	for i := range s.entries {
		c := &s.entries[i]
		if c.id != a.ID {
			continue
		}
		c.advance(steady)
		left := time.Duration(a.Lent.Until-stamp(steady)) * stampTick // accurate to one tick
		units := int64(a.Lent.Units) + a.Units
		if steady >= c.until || left == 0 || left > lentFor+stampTick || // the lease has expired: for a stamp in the past, left is very large
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

// reset forgets the lent units of an ID. Units that borrowers still spend from these leases are not
// counted. The caller must hold s.mu.
func (s *lentSet) reset(id bucket.ID) {
	for i := range s.entries {
		if c := &s.entries[i]; c.id == id {
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

// cease stops or resumes lending, and reports whether all leases have expired.
func (l *lent) cease(cease bool, steady int64) (expired bool) {
	l.ceases.Store(cease)
	return steady >= l.until.Load()
}

// raiseTo raises a to least, if a is lower.
func raiseTo(a *atomic.Int64, least int64) {
	for was := a.Load(); was < least && !a.CompareAndSwap(was, least); was = a.Load() {
	}
}

// stamp returns a time in ticks, truncated to 32 bits. The stamps repeat every 19 hours.
func stamp(steady int64) uint32 { return uint32(steady / int64(stampTick)) }

const stampTick = 1 << 14 * time.Nanosecond

// takeLending takes the units of an ask, and lends from the units that remain within the limit l.
// If l is nil, the limit is the part of a Global limit that this region has.
func (o *Owner) takeLending(a *wire.Ask, l *bucket.Limit, now int64, r *wire.Result) {
	steady := o.clock.MonotonicAt(now)
	s := o.lent.lock(a.ID)
	defer s.mu.Unlock()
	c := s.entry(a.ID, steady)
	r.ResetNumber = o.ResetNumber(a.ID, now)
	var want, other, granted bucket.Lease
	if c != nil && !o.lent.ceases.Load() {
		want, other = bucket.Lease{Units: int64(a.Take.Want.Units), Term: lentFor}, c.lease(steady)
	}
	term := min(time.Duration(a.Take.Want.Term)*time.Millisecond, wire.LongestLease)
	least := term * 3 / 2 // how long the owner regards the units as lent if the asking node may spend them for the time term
	if l == nil {
		granted = o.holdings.Lend(a.ID, a.Limit, o.clock.TimeAt(now), a.Units, want, least, other, &r.Result)
	} else {
		granted = o.counts.Lend(a.ID, l, now, a.Units, want, least, other, &r.Result)
	}
	if granted.Units == 0 {
		return
	}
	c.now += granted.Units
	c.until = max(c.until, steady+int64(granted.Term))
	raiseTo(&s.until, c.until)
	raiseTo(&o.lent.until, c.until)
	r.Lease = wire.Lease{Units: uint32(granted.Units), Term: uint16(min(term, granted.Term*2/3) / time.Millisecond), Until: stamp(steady + int64(granted.Term))}
}

// Reclaim ends a lease: the units of the lease are no longer recorded as lent, and its unspent
// units are returned to the count. A node without authority does not return them, because it does
// not know how other members count them. Units that were lent before a reset are not returned,
// because the reset has removed them from the count.
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
	if s.endLease(a, steady) && a.Units > 0 && v.Standing(a.ID) == view.AsOwner {
		o.counts.Return(a.ID, o.regionLimit(a, now), now, a.Units, a.Spent.Receipt, s.entry(a.ID, steady).lease(steady))
	}
}

// capRetryAfter limits the RetryAfter of a denial to the time until all leases of the count have
// ended, because their units may be returned by then.
func (o *Owner) capRetryAfter(id bucket.ID, r *bucket.Result, now int64) {
	if r.Allowed {
		return
	}
	if lease := o.lent.leaseOf(id, o.clock.MonotonicAt(now)); lease.Units > 0 {
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
		for j := range s.entries {
			c := &s.entries[j]
			c.advance(steady)
			if lease := c.lease(steady); lease.Units > 0 {
				units += int(lease.Units)
			}
		}
		s.mu.Unlock()
	}
	return units
}

// Reset calls the function reset, which resets a count, and forgets the units that were lent from the count
// before. The reset may have begun on another node.
func (o *Owner) Reset(id bucket.ID, reset func()) {
	s := o.lent.lock(id)
	defer s.mu.Unlock()
	reset()
	s.reset(id)
}

// Cease stops or resumes lending, and reports whether all leases have expired.
func (o *Owner) Cease(cease bool, steady int64) (expired bool) { return o.lent.cease(cease, steady) }

// LentUnits returns the lent units that borrowers may still spend.
func (o *Owner) LentUnits(steady int64) int { return o.lent.lentUnits(steady) }
