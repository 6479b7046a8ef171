package bucket

import (
	"math"
	"time"
)

// Lease represents units that are lent for Term from now on. The borrower spends them on
// another node, at any time until the term ends, without a request. The count records them as
// spent when they are lent. Unspent units are refunded with the receipt before the term ends,
// or stay spent.
//
// The units are spent later than they were recorded, so they have to count for longer. A
// count with lent units is never below the count that would result if each unit were taken
// when it was spent:
//
//   - The units of a window count at least until the window ends, whenever in the window they are
//     spent. The term ends before the window.
//   - A log records them in an entry at the end of the term. Units that are taken until then belong to
//     the same entry. So the log is too strict by at most one term, which is at most a 256th of Per.
//   - A level drains from the time of the loan on, but the units may be spent at the end of the term.
//     The level stays high enough if the other units in it are at least the amount that drains during
//     the term, whatever is refunded in the meantime. If there are fewer other units, the difference is
//     charged on top, and drains during the term. The charge is at most a 32nd of the capacity of the
//     limit, or for a share, of the limit that the share belongs to.
//
// A refund must not treat lent units that may be unspent as usage. These units are described
// by a Lease too: their number, and the time for which they may be spent. A refund without a
// receipt returns the newest units of a window or log, which may be lent units, so it skips
// the number of lent units. Every refund from a level leaves this number of units in the
// level, and the units that drain until the term ends.
type Lease struct {
	Units int64
	Term  time.Duration
}

const (
	lentPart    = 8   // a lease has at most 1/lentPart of the remaining units, so that no borrower gets all of them
	leastLent   = 2   // minimum number of units of a lease: fewer are not worth a lease, and the last units of a limit are not lent
	aheadPart   = 256 // the newest entry of a log is at most 1/aheadPart of Per ahead of now
	drainedPart = 32  // at most 1/drainedPart of the capacity of a level drains in a term
)

// leastTerm is the shortest term. A shorter lease would expire too soon to be useful.
const leastTerm = uint64(2 * time.Millisecond)

// Lend is like TakeInto, but if the units are taken, Lend also lends up to want.Units of the
// remaining units. Fewer units are lent if few are left, or if so many units were spent that
// the replicas of the count are behind. The term is shorter if the count does not allow the
// wanted term. spendTime is the time in which all wanted units would be spent: if the term is
// shorter than spendTime, Lend lends proportionally fewer units. Lend lends no units if the term
// or spendTime is below 2 ms, or if fewer than 2 units could be lent. The argument lent
// describes the units that were lent before and may be unspent. The Receipt of r is for both the units taken and
// the units lent. With zero units, Lend only lends.
//
// Lend lends none of the units that the ask keeps. If the ask has no Keep, the units that other
// asks keep count among the remaining units, of which Lend lends at most an eighth.
//
// In a tracked store, lent units do not raise the uncollected units of a count above the
// sixteenth of its capacity at which Track signals hurry. So a crash of the owner loses no
// more units because of leases.
func (s *Store) Lend(id ID, l *Limit, now, units int64, want Lease, spendTime time.Duration, lent Lease, r *Result) (granted Lease) {
	sh, h := s.lock(id)
	var first slot
	c, l, inserts := sh.lookupOrNew(id, h, &s.placement, l, now, &first)
	room := uint64(math.MaxInt64)
	if s.tracker.Load() != nil && sh.changes != nil {
		room = sub(l.hurryAt(), nonNegative(sh.uncollected(l, c)))
	}
	granted, spent := l.lend(&c.cell, sh.logOf(l, c), now, units, want, spendTime, lent, room, r)
	if spent > 0 {
		s.note(sh, c, l, spent)
	}
	switch {
	case inserts && spent > 0:
		s.insert(sh, first, l, sh.changes.ownTotal(), now)
	case inserts:
		sh.release(l, &first)
	}
	sh.mu.Unlock()
	if inserts && spent > 0 {
		s.trim(id, now)
	}
	return granted
}

// lend does the work of Lend on a count. The lent units are limited so that the taken and lent units
// together are at most the argument room. The result spent is the number of units taken and lent, without
// the units charged on top.
func (l *Limit) lend(c *cell, g *log, now, units int64, want Lease, spendTime time.Duration, lent Lease, room uint64, r *Result) (granted Lease, spent int64) {
	h := open(g)
	v, used := l.advance(*c, &h, now)
	n, capacity := nonNegative(units), l.usable()
	term := min(nonNegative(int64(want.Term)), l.longestTerm(v, now))
	var lends, onTop, rest uint64
	if all := nonNegative(int64(spendTime)); min(term, all) >= leastTerm && used+n <= capacity {
		onTop, rest = l.surcharge(v, n, term, lent)
		left := sub(capacity-used-n, onTop)
		lends = min(mulDiv(nonNegative(want.Units), min(term, all), all), left/lentPart, sub(room, n))
	}
	if lends < leastLent {
		l.takeInto(c, g, now, units, r)
		if r.Allowed {
			spent = max(units, 0)
		}
		return Lease{}, spent
	}
	at := now
	if l.Algorithm == SlidingLog {
		at = after(now, term)
	}
	v = l.spend(v, &h, at, n+lends+onTop)
	if v.y += rest; rest > 0 && v.y >= l.per() {
		v.x, v.y = v.x+1, v.y-l.per()
	}
	*c = v
	save(g, &h)
	span := l.span(v)
	used += n + lends + onTop
	if l.IsBucket() && v.y > 0 {
		used = v.x + 1
	}
	*r = Result{
		Allowed:    true,
		Limit:      int64(capacity),
		Remaining:  int64(capacity - used),
		ResetAfter: timeUntil(v.at, span, now),
		Receipt:    l.receipt(v, span, now),
	}
	return Lease{int64(lends), time.Duration(term)}, int64(n + lends)
}

// longestTerm returns the longest term of a lease from a count that is up to date.
func (l *Limit) longestTerm(v cell, now int64) uint64 {
	switch {
	case l.Algorithm == SlidingLog:
		return l.aheadAtMost()
	case l.IsBucket():
		return mulDiv(l.capacity()/drainedPart, l.per(), l.rate())
	}
	return sub(timeSince(now, after(v.at, l.per())), 1)
}

// surcharge returns the charge on top of n units, for a level that is up to date, as units and
// 1/Per units. The charge is the amount that drains in the term, less the units in the level
// that are not lent.
func (l *Limit) surcharge(v cell, n, term uint64, lent Lease) (units, rest uint64) {
	if !l.IsBucket() {
		return 0, 0
	}
	units, rest = l.drainedUnits(term)
	stays, lower := sub(add(v.x, n), nonNegative(lent.Units)), v.y
	if add(v.x, n) < nonNegative(lent.Units) {
		lower = 0
	}
	switch {
	case units < stays || units == stays && rest <= lower:
		return 0, 0
	case rest >= lower:
		return units - stays, rest - lower
	}
	return units - stays - 1, rest + l.per() - lower
}

// drainedUnits returns the maximum amount that drains from a level in a term, as units and
// 1/Per units. For a part that Scale has computed, the rate of the whole is used, because the
// part may become larger during the term.
func (l *Limit) drainedUnits(term uint64) (units, rest uint64) {
	units, rest, _ = split(term, l.rate(), l.per())
	if l.wholePer > 0 {
		units = max(units, mulDivUp(term, uint64(l.wholeRate), 0, uint64(l.wholePer)))
	}
	return units, rest
}

// aheadAtMost returns how far the newest entry of a log can be ahead of now.
func (l *Limit) aheadAtMost() uint64 { return l.per() / aheadPart }

// hurryAt returns the number of uncollected units of a count at which Track signals hurry.
func (l *Limit) hurryAt() uint64 { return max(1, l.capacity()/hurryPart) }
