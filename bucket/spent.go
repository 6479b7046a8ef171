package bucket

import (
	"slices"
	"time"
)

// Spent identifies spent units by the receipt of their take, and, if known, by the time of
// the receipt on the clock of this store. The store that returned the receipt needs only the
// receipt to find the units. A store that has received the count from another store has the
// same windows and entries at slightly different times, and finds the units by Near.
type Spent struct {
	Receipt Receipt
	Near    int64 // time of the receipt on the clock of this store, in nanoseconds; 0 if unknown
	// By contains the Rate and Per from which the receipt of a bucket was computed. By is nil
	// if these are the current numbers, or if they are unknown.
	By *Limit
}

// within is the maximum difference between Near and the receipt if this store returned the
// receipt: the time that messages take. Only buckets need within, because the count of a
// bucket cannot confirm a receipt.
const within = uint64(100 * time.Millisecond)

// RefundSpent is like RefundBeside for the units that the argument spent identifies. If the receipt is from
// another store, RefundSpent refunds units of the window that began nearest to spent.Near,
// within half of Per. In a log it refunds units of the nearest entry, and then of the
// newest entries. RefundSpent does nothing if the window has ended or the entry has
// expired.
func (s *Store) RefundSpent(id ID, l *Limit, now, units int64, spent Spent, lent Lease) (changed bool) {
	sh, h := s.lock(id)
	defer sh.mu.Unlock()
	c, l := sh.lookup(id, h, &s.placement, l, now)
	if c == nil {
		return false
	}
	g := sh.logOf(l, c)
	log := open(g)
	v, _ := l.advance(c.cell, &log, now)
	r := l.find(v, &log, now, spent)
	if r == 0 {
		return false
	}
	refunded, changed := l.refund(&c.cell, g, now, units, r, false, lent)
	if refunded < units && l.Algorithm == SlidingLog && r != spent.Receipt {
		rest, more := l.refund(&c.cell, g, now, units-refunded, 0, false, lent)
		refunded, changed = refunded+rest, changed || more
	}
	if changed {
		s.note(sh, c, l, -refunded)
	}
	return changed
}

// DebitSpent is like Debit for units that are spent together with the units that the
// argument spent identifies: in the same window of a FixedWindow, in the same counter of a SlidingWindow, or
// at the same time of a log. If that window has ended or that entry has expired, DebitSpent
// spends no units, and the Result is not Allowed. A bucket is debited at the time now, because its
// level does not record earlier times. RetryAfter is the time until there is room for a unit, and 0 if
// there is room now, even if the Result is not Allowed.
func (s *Store) DebitSpent(id ID, l *Limit, now, units int64, spent Spent) Result {
	sh, h := s.lock(id)
	var first slot
	c, l, inserts := sh.lookupOrNew(id, h, &s.placement, l, now, &first)
	r, counted := l.debitSpent(&c.cell, sh.logOf(l, c), now, units, spent)
	if counted > 0 {
		s.note(sh, c, l, counted)
	}
	inserts, unused := inserts && counted > 0, inserts && counted == 0
	if inserts {
		s.insert(sh, first, l, sh.changes.ownTotal(), now)
	} else if unused {
		sh.release(l, &first)
	}
	sh.mu.Unlock()
	if inserts {
		s.trim(id, now)
	}
	return r
}

// debitSpent debits units in the window or at the time that the argument spent identifies. The
// result counted is the number of spent units.
func (l *Limit) debitSpent(c *cell, g *log, now, units int64, spent Spent) (r Result, counted int64) {
	if l.IsBucket() {
		return l.debit(c, g, now, units)
	}
	h := open(g)
	v, used := l.advance(*c, &h, now)
	n, capacity := nonNegative(units), l.usable()
	if v, at, ok := l.findWindow(v, &h, now, used, spent); ok && n > 0 {
		v, n = l.spendAt(v, &h, at, n, used)
		counted = int64(n)
		r.Receipt = at
		if n > 0 {
			*c = v
			save(g, &h)
		}
	}
	v, used = l.advance(*c, &h, now)
	allowed := counted == max(units, 0) && used <= capacity
	r.Allowed = allowed || used < capacity // for setTimes: whether there is no need to wait
	r.Limit = int64(capacity)
	r.Remaining = int64(sub(capacity, used))
	l.setTimes(&r, v, &h, now, 1)
	r.Allowed = allowed
	return r, counted
}

// findWindow returns the count with the window that the argument spent identifies, and the receipt
// with which spendAt spends units in that window. If no units are used, the count has no window,
// and findWindow begins the window again. ok is false if the window has ended or the entry of a
// log has expired.
func (l *Limit) findWindow(v cell, g *log, now int64, used uint64, spent Spent) (_ cell, r Receipt, ok bool) {
	per := l.per()
	if used > 0 && l.Algorithm != SlidingLog {
		r = l.find(v, g, now, spent)
		return v, r, r != 0
	}
	r = spent.Receipt
	if used > 0 { // a log
		if found := l.find(v, g, now, spent); found != r && spent.Near != 0 {
			r = Receipt(spent.Near)
		}
		if int64(r) > v.at {
			r = Receipt(max(v.at, min(int64(r), now)))
		}
		return v, r, timeSince(int64(r), now) < per
	}
	if spent.Near != 0 && l.Start == 0 {
		r = Receipt(spent.Near)
	}
	r = Receipt(min(int64(r), now))
	e := timeSince(int64(r), now)
	switch {
	case l.isCalendar():
		return v, r, int64(r) == v.at
	case l.alignedStart(int64(r)) != int64(r):
		return v, r, false
	case l.Algorithm == SlidingWindow && e >= per:
		return cell{at: after(int64(r), per)}, r, e < 2*per
	}
	return cell{at: int64(r)}, r, e < per
}

// spendAt adds up to n units to a count, at a receipt that findWindow has returned.
func (l *Limit) spendAt(v cell, g *log, r Receipt, n, used uint64) (_ cell, spent uint64) {
	most := l.maxUsage()
	if l.Algorithm == SlidingLog {
		n = min(n, most)
		return g.forget(g.insert(v, int64(r), n), min(n, sub(used+n, most))), n
	}
	n = min(n, sub(most, used))
	if int64(r) != v.at { // the previous window
		n = min(n, sub(most, v.y))
		v.y += n
		return v, n
	}
	v.x = add(v.x, n)
	return v, n
}

// find returns the receipt of the units that the argument spent identifies, or 0 if the count has no such units. The
// count must be up to date.
//
// If a log has an entry at spent.Receipt, or if a window of the count began at that time, find returns
// spent.Receipt. Otherwise it looks for units near spent.Near: in a log, the nearest entry; in a count with
// windows, a window that began less than half of Per from spent.Near. With a Start, windows begin at the same
// times in all stores, so find does not use spent.Near.
//
// A bucket can confirm only the receipt of its last take. For any other receipt, find assumes that the
// units are there. It converts spent.Receipt, or spent.Near if the two differ by at least the constant
// within, from the numbers of spent.By to those of l.
func (l *Limit) find(v cell, g *log, now int64, spent Spent) Receipt {
	per, named := l.per(), l.Start != 0
	near := func(t int64, within uint64) bool {
		return spent.Near != 0 && !named && distance(t, spent.Near) < within
	}
	switch l.Algorithm {
	case SlidingLog:
		return g.find(v, per, now, spent)
	case TokenBucket, LeakyBucket:
		last := after(v.at, l.drain(v.x, v.y)) == int64(spent.Receipt)
		if last {
			return spent.Receipt
		}
		if spent.Near == 0 || near(int64(spent.Receipt), within) {
			return l.convertReceipt(spent.Receipt, spent.By, now)
		}
		return l.convertReceipt(Receipt(spent.Near), spent.By, now)
	}
	previous := before(v.at, per)
	sliding := l.Algorithm != FixedWindow
	switch {
	case v.at == int64(spent.Receipt), sliding && previous == int64(spent.Receipt):
		return spent.Receipt
	case near(v.at, (per+1)/2):
		return Receipt(v.at)
	case sliding && near(previous, (per+1)/2):
		return Receipt(previous)
	}
	return 0
}

// convertReceipt converts the receipt of a bucket that had other numbers. The result is the time
// at which the units that have not drained yet drain by the numbers of l. A count does not record
// when its numbers changed, so convertReceipt assumes that the units have drained by the older
// numbers until now.
func (l *Limit) convertReceipt(r Receipt, numbers *Limit, now int64) Receipt {
	if numbers == nil || !numbers.IsBucket() || numbers.Rate == l.Rate && numbers.Per == l.Per {
		return r
	}
	left := mulDiv(mulDiv(sub(timeSince(now, int64(r)), 1), numbers.rate(), l.rate()), l.per(), numbers.per())
	return Receipt(after(now, add(left, 1)))
}

// find is like Limit.find, for a log.
func (g *log) find(c cell, per uint64, now int64, spent Spent) (r Receipt) {
	if c.x == 0 {
		return 0
	}
	known := spent.Near != 0 && timeSince(spent.Near, now) < per
	earliest := int64(spent.Receipt)
	if known {
		earliest = min(earliest, spent.Near)
	}
	for t, end := c.at, len(g.buf); ; {
		if t == int64(spent.Receipt) {
			return spent.Receipt
		}
		if known && (r == 0 || distance(t, spent.Near) < distance(int64(r), spent.Near)) {
			r = Receipt(t)
		}
		start, delta, _ := g.readLast(end)
		if start <= g.head || t < earliest {
			return r
		}
		t, end = before(t, delta), start
	}
}

// insert adds n units at t, which must be at most the later of now and the time of the newest
// entry.
func (g *log) insert(c cell, t int64, n uint64) cell {
	if n == 0 || c.x == 0 || t >= c.at {
		return g.spend(c, t, n)
	}
	var room [2 * maxEntry]byte
	for next, end := c.at, len(g.buf); ; {
		start, delta, units := g.readLast(end)
		first := start <= g.head
		switch previous := before(next, delta); {
		case next == t:
			g.splice(start, end, appendEntry(room[:0], delta, units+n))
		case first:
			c.y = uint64(t)
			g.splice(start, end, appendEntry(appendEntry(room[:0], 0, n), timeSince(t, next), units))
		case previous < t:
			g.splice(start, end, appendEntry(appendEntry(room[:0], timeSince(previous, t), n), timeSince(t, next), units))
		default:
			next, end = previous, start
			continue
		}
		c.x += n
		return c
	}
}

// splice replaces buf[start:end] with entries.
func (g *log) splice(start, end int, entries []byte) {
	g.edits++
	g.buf = slices.Replace(g.buf, start, end, entries...)
}

// distance returns the distance between two times.
func distance(a, b int64) uint64 { return max(timeSince(a, b), timeSince(b, a)) }
