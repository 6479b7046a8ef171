package bucket

import (
	"math"
	"time"
)

// This file contains the operations on a count. g is the log of a SlidingLog, and nil for the
// other algorithms. The operations do not panic, even if the cell or the log is invalid. They
// do not allocate, except when the buffer of a log grows or shrinks. Negative units are
// treated as zero.

// takeUnits spends units if there is room for them. Otherwise the count does not change.
func (l *Limit) takeUnits(c *cell, g *log, now, units int64) (r Result) {
	l.takeInto(c, g, now, units, &r)
	return r
}

// takeInto is like takeUnits, but writes all fields of the result to r.
func (l *Limit) takeInto(c *cell, g *log, now, units int64, r *Result) {
	h := open(g)
	v, used := l.advance(*c, &h, now)
	n, capacity := nonNegative(units), l.usable()
	r.Limit = int64(capacity)
	if used+n > capacity {
		r.Allowed = false
		r.Remaining = int64(sub(capacity, used))
		r.RetryAfter = l.retryAfter(v, &h, now, n)
		r.ResetAfter = l.resetAfter(v, now, r.RetryAfter)
		r.Receipt = 0
		return
	}
	v = l.spend(v, &h, now, n)
	*c = v
	save(g, &h)
	span := l.span(v)
	r.Allowed = true
	r.Remaining = int64(capacity - used - n)
	r.RetryAfter = 0
	r.ResetAfter = timeUntil(v.at, span, now)
	r.Receipt = l.receipt(v, span, now)
}

// debit spends units even if there is no room for them. The number of used units is limited
// to twice the capacity, or for a share to twice the capacity of the whole limit.
// Units above that are dropped: the newest units, or the oldest units of a log. The result is
// Allowed if there was room for all units. Otherwise RetryAfter is the time until a unit can be
// taken: the debited units are not asked for again, and can be more than the limit ever grants.
// The result counted is the number of units spent.
func (l *Limit) debit(c *cell, g *log, now, units int64) (r Result, counted int64) {
	h := open(g)
	v, used := l.advance(*c, &h, now)
	capacity := l.usable()
	v, n := l.spendUpTo(l.maxUsage(), v, &h, now, nonNegative(units), used)
	*c = v
	save(g, &h)
	r = Result{
		Allowed:   used+nonNegative(units) <= capacity,
		Limit:     int64(capacity),
		Remaining: int64(sub(capacity, used+n)),
		Receipt:   l.receipt(v, l.span(v), now),
	}
	l.setTimes(&r, v, &h, now, 1)
	return r, int64(n)
}

// peek changes nothing. Allowed and RetryAfter are those that takeUnits would return. Remaining and
// ResetAfter describe the count as it is, and there is no Receipt.
func (l *Limit) peek(c *cell, g *log, now, units int64) Result {
	h := open(g)
	v, used := l.advance(*c, &h, now)
	n, capacity := nonNegative(units), l.usable()
	r := Result{
		Allowed:   used+n <= capacity,
		Limit:     int64(capacity),
		Remaining: int64(sub(capacity, used)),
	}
	l.setTimes(&r, v, &h, now, n)
	return r
}

// refund subtracts units of the take that r identifies from the count, but no more units than
// still count. Without a receipt (r is 0), it subtracts the newest units. If onlyIfLast is set,
// refund needs a receipt, and does nothing if units were taken after that take, as far as the
// count can tell: a window cannot distinguish the takes in it, and a log cannot distinguish
// takes of the same instant. refund returns the number of whole units refunded, and whether
// the count has changed.
//
// Lent units may still be spent, so they are not refunded: see Lease.
func (l *Limit) refund(c *cell, g *log, now, units int64, r Receipt, onlyIfLast bool, lent Lease) (refunded int64, changed bool) {
	if r == 0 && onlyIfLast {
		return 0, false
	}
	h := open(g)
	v, _ := l.advance(*c, &h, now)
	var back uint64
	switch n, pass := nonNegative(units), nonNegative(lent.Units); l.Algorithm {
	case FixedWindow:
		back = refundFixed(&v, n, pass, r)
	case SlidingLog:
		back = h.refund(&v, n, pass, r, onlyIfLast)
	case TokenBucket, LeakyBucket:
		if lent.Units > 0 {
			drains, _ := l.drainedUnits(nonNegative(int64(lent.Term)))
			n = min(n, sub(v.x, add(pass, drains+1)))
		}
		back, changed = l.refundLevel(&v, n, r, onlyIfLast)
	default:
		back = l.refundSliding(&v, n, pass, r, onlyIfLast)
	}
	if changed = changed || back > 0; changed {
		*c = v
		save(g, &h)
	}
	return int64(back), changed
}

// recoveryTime returns an instant from which on the count is empty, and so equivalent to no
// count, if no more units are spent. It is the first such instant, except for a debt in the window
// of a calendar: the next window can be half of Per longer.
func (l *Limit) recoveryTime(c *cell) int64 {
	span := l.span(*c)
	if span == 0 {
		return math.MinInt64
	}
	if l.isCalendar() && span > l.per() {
		span += l.per() / 2
	}
	return after(c.at, span)
}

// setTimes sets RetryAfter and ResetAfter of the result r of an ask of n units. The field Allowed
// of r must be set.
func (l *Limit) setTimes(r *Result, v cell, g *log, now int64, n uint64) {
	if !r.Allowed {
		r.RetryAfter = l.retryAfter(v, g, now, n)
	}
	r.ResetAfter = l.resetAfter(v, now, r.RetryAfter)
}

// resetAfter returns the time until the count is empty, but at least the RetryAfter of the
// result. RetryAfter is longer only for an ask of more than the usable units, or if Rate is zero.
func (l *Limit) resetAfter(v cell, now int64, retryAfter time.Duration) time.Duration {
	return max(retryAfter, timeUntil(v.at, l.span(v), now))
}

// advance returns the count at the time now, and the number of used units. If no units are
// used, the result is an empty cell. advance moves the head of g past expired entries, and does
// not change the buffer of g.
func (l *Limit) advance(c cell, g *log, now int64) (v cell, used uint64) {
	switch l.Algorithm {
	case FixedWindow:
		v, used = l.advanceFixed(c, now)
	case SlidingLog:
		v, used = g.advance(c, l.per(), now)
	case TokenBucket, LeakyBucket:
		v, used = l.advanceLevel(c, now)
	default:
		v, used = l.advanceSliding(c, now)
	}
	// No honest count comes near this bound, which prevents overflow in all sums.
	return v, min(used, math.MaxInt64)
}

// spend adds n units to a count that advance has returned.
func (l *Limit) spend(c cell, g *log, now int64, n uint64) cell {
	if l.Algorithm == SlidingLog {
		return g.spend(c, now, n)
	}
	c.x = add(c.x, n)
	return c
}

// spendUpTo adds up to n units to a count that advance has returned, and returns the number of
// units added. Afterwards the number of used units is at most the argument most, or the number
// before the call if this was higher. A log removes its oldest units to stay within the maximum.
// No decision changes: for as long as the removed units would count, all units that the log
// keeps count too, and these are enough to deny every ask.
func (l *Limit) spendUpTo(most uint64, c cell, g *log, now int64, n, used uint64) (_ cell, spent uint64) {
	if l.Algorithm != SlidingLog {
		n = min(n, sub(most, used))
		return l.spend(c, g, now, n), n
	}
	n = min(n, most)
	return g.forget(g.spend(c, now, n), min(n, sub(used+n, most))), n
}

// span returns how long after c.at the count is empty, or zero if it is empty.
func (l *Limit) span(c cell) uint64 {
	switch l.Algorithm {
	case FixedWindow:
		return l.spanFixed(c)
	case SlidingLog:
		if c.x == 0 {
			return 0
		}
		return l.per()
	case TokenBucket, LeakyBucket:
		return l.drain(c.x, c.y)
	default:
		return l.spanSliding(c)
	}
}

// receipt returns the Receipt that refund needs to find the units that are spent now. For a
// bucket, the argument empty is the time from c.at until the level is zero.
func (l *Limit) receipt(c cell, empty uint64, now int64) Receipt {
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		return Receipt(after(c.at, empty))
	case SlidingLog:
		return Receipt(max(c.at, now)) // if no units were spent, c.at belongs to another entry
	default:
		return Receipt(c.at)
	}
}

// retryAfter returns how long after now a denied ask of n units can be admitted. If n is
// above the usable units, or if Rate is zero, it returns Per: with the current numbers such an
// ask is never admitted, but the numbers of a share change.
func (l *Limit) retryAfter(c cell, g *log, now int64, n uint64) time.Duration {
	n = add(n, nonNegative(l.Keep))
	if n > l.capacity() || l.Rate <= 0 {
		return time.Duration(l.per())
	}
	var wait uint64
	switch l.Algorithm {
	case FixedWindow:
		wait = l.waitFixed(c, n)
	case SlidingLog:
		return time.Duration(min(g.wait(c, l.per(), now, sub(add(c.x, n), l.capacity())), math.MaxInt64))
	case TokenBucket, LeakyBucket:
		wait = l.waitLevel(c, n)
	default:
		wait = l.waitSliding(c, n)
	}
	return timeUntil(c.at, wait, now)
}

// open copies the header of a log, so that changes have no effect until they are saved.
func open(g *log) (h log) {
	if g != nil {
		h = *g
	}
	return h
}

func save(g, h *log) {
	if g != nil {
		*g = *h
	}
}

func nonNegative(units int64) uint64 { return uint64(max(units, 0)) }
