package bucket

import (
	"math"
	"time"
)

// Lease is units that are lent for Term from now on: the borrower spends them
// elsewhere, at any time until then, without asking. To the count they are spent when
// they are lent. What is not spent of them is refunded, by the receipt, before the
// term ends, or stays spent.
//
// They are spent later than they count from, so they have to count for longer. A count
// that was lent of is never below what it would be if each unit had been taken when it
// was spent:
//
//   - A window's units count until it ends, whenever in it they are spent. The term ends
//     before it does.
//   - A log has them as an entry of when the term ends, and what is taken until then is
//     of that entry as well: it is strict by a term at most, which is a 256th of Per.
//   - A level falls as if they had been spent at once. So what else it holds must outlast
//     the term, whatever is refunded meanwhile: where it would not, as much is charged
//     on top, and drains in the term. That is a 32nd of the capacity at most.
//
// What is lent and may be unspent (a Lease, again: so many units, for so long) a refund
// must not take for usage. The newest units of a window or log, which a refund without
// a receipt returns first, may be those, and it passes over as many. Of a level it
// leaves as many, and what drains until the term ends.
type Lease struct {
	Units int64
	Term  time.Duration
}

const (
	lentPart    = 8   // of what is left, one lease has one in so many at most, so that nobody takes all of it
	leastLent   = 2   // units: fewer are not worth a lease, and the last ones are lent to nobody
	aheadPart   = 256 // of a log's Per, what its newest entry is ahead of now at most
	drainedPart = 32  // of a level's capacity, what drains in a term at most
)

// leastTerm is the shortest term: in less, a lease is hardly there.
const leastTerm = uint64(2 * time.Millisecond)

// Lend is TakeInto, and if it takes, it lends of what is left, want at most: fewer
// units where few are left, or so many were spent that the copies of the count are
// behind, and for a shorter term where the count can do no better, with as many units
// less as the term is shorter than least, in which all that are wanted would be spent.
// lent is what was lent before and may be unspent. Receipt is of both, the units taken
// and those lent. A take of no unit only lends.
//
// A count's spent units that were not collected stay within the sixteenth of its
// capacity at which Track's hurry is signalled, as far as it is up to what is lent:
// a crash of the owner loses no more for it.
func (s *Store) Lend(id ID, l *Limit, now, units int64, want Lease, least time.Duration, lent Lease, r *Result) (granted Lease) {
	sh, h := s.lock(id)
	var first slot
	c, l, inserts := sh.heldOrFresh(id, h, &s.placement, l, now, &first)
	room := uint64(math.MaxInt64)
	if s.tracker.Load() != nil && sh.changes != nil {
		room = sub(l.hurryAt(), whole(sh.uncollected(l, c)))
	}
	granted, spent := l.lend(&c.cell, sh.logOf(l, c), now, units, want, least, lent, room, r)
	if spent > 0 {
		s.note(sh, c, l, spent)
	}
	switch {
	case inserts && spent > 0:
		s.insert(sh, first, l, sh.changes.own(), now)
	case inserts:
		sh.release(l, &first)
	}
	sh.mu.Unlock()
	if inserts && spent > 0 {
		s.trim(id, now)
	}
	return granted
}

// lend is Lend of a count, where no more than room units are to be spent in all. spent
// is what it spent; what it charged on top is nobody's.
func (l *Limit) lend(c *cell, g *log, now, units int64, want Lease, least time.Duration, lent Lease, room uint64, r *Result) (granted Lease, spent int64) {
	h := open(g)
	v, used := l.advance(*c, &h, now)
	n, capacity := whole(units), l.capacity()
	term := min(whole(int64(want.Term)), l.longestTerm(v, now))
	var lends, onTop, rest uint64
	if all := whole(int64(least)); min(term, all) >= leastTerm && used+n <= capacity {
		onTop, rest = l.onTopOf(v, n, term, lent)
		left := sub(capacity-used-n, onTop)
		lends = min(mulDiv(whole(want.Units), min(term, all), all), left/lentPart, sub(room, n))
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
	again := l.restored(v)
	used += n + lends + onTop
	if l.IsBucket() && v.y > 0 {
		used = v.x + 1
	}
	*r = Result{
		Allowed:    true,
		Limit:      int64(capacity),
		Remaining:  int64(capacity - used),
		ResetAfter: until(v.at, again, now),
		Receipt:    l.receipt(v, again, now),
	}
	return Lease{int64(lends), time.Duration(term)}, int64(n + lends)
}

// longestTerm is how long units may be lent for, of a count that is up to date.
func (l *Limit) longestTerm(v cell, now int64) uint64 {
	switch {
	case l.Algorithm == SlidingLog:
		return l.aheadAtMost()
	case l.IsBucket():
		return mulDiv(l.capacity()/drainedPart, l.per(), l.rate())
	}
	return sub(since(now, after(v.at, l.per())), 1)
}

// onTopOf is what is to be charged on top of n units, of a level that is up to date, as
// units and 1/Per units: what drains in the term, less what else stays in it.
func (l *Limit) onTopOf(v cell, n, term uint64, lent Lease) (units, rest uint64) {
	if !l.IsBucket() {
		return 0, 0
	}
	units, rest = l.drains(term)
	stays, lower := sub(add(v.x, n), whole(lent.Units)), v.y
	if add(v.x, n) < whole(lent.Units) {
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

// drains is what drains of a level in a term at most, as units and 1/Per units: of a
// Part at the rate of the whole, as it may be a larger part by then.
func (l *Limit) drains(term uint64) (units, rest uint64) {
	units, rest, _ = split(term, l.rate(), l.per())
	if l.wholePer > 0 {
		units = max(units, mulDivUp(term, uint64(l.wholeRate), 0, uint64(l.wholePer)))
	}
	return units, rest
}

// aheadAtMost is how much of a log's newest entry is ahead of now at most.
func (l *Limit) aheadAtMost() uint64 { return l.per() / aheadPart }

// hurryAt is how many units that were spent and not collected hurry.
func (l *Limit) hurryAt() uint64 { return max(1, l.capacity()/hurryPart) }
