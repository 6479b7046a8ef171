package bucket

import (
	"math"
	"time"
)

// The operations on a count. g is the entries of a SlidingLog, and nil for the
// other algorithms. None of them panics, whatever a cell or a log holds, and
// none allocates but for the growth of a log. Units below zero count as zero.

// take spends if there is room, and otherwise changes nothing.
func (l *Limit) take(c *cell, g *log, now, units int64) (r Result) {
	l.takeInto(c, g, now, units, &r)
	return r
}

// takeInto is take, and writes the answer to r, every field of it.
func (l *Limit) takeInto(c *cell, g *log, now, units int64, r *Result) {
	h := open(g)
	v, used := l.advance(*c, &h, now)
	n, capacity := whole(units), l.capacity()
	r.Limit = int64(capacity)
	if used+n > capacity {
		r.Allowed = false
		r.Remaining = int64(sub(capacity, used))
		r.RetryAfter = l.retryAfter(v, &h, now, n)
		r.ResetAfter = l.resetAfter(r, v, now)
		r.Receipt = 0
		return
	}
	v = l.spend(v, &h, now, n)
	*c = v
	save(g, &h)
	again := l.restored(v)
	r.Allowed = true
	r.Remaining = int64(capacity - used - n)
	r.RetryAfter = 0
	r.ResetAfter = until(v.at, again, now)
	if r.Remaining == 0 {
		r.ResetAfter = l.untilNext(r.ResetAfter, v, &h, now)
	}
	r.Receipt = l.receipt(v, again, now)
}

// debit spends without asking. What is used stays within twice the capacity of the
// whole limit, so that a debt never exceeds one; units above that are forgotten, the
// newest, or of a log the oldest. It is Allowed unless it leaves a debt; RetryAfter
// is then when one unit can be taken: what was debited is not asked for again, and can be
// more than the limit ever grants. counted is what it spent.
func (l *Limit) debit(c *cell, g *log, now, units int64) (r Result, counted int64) {
	h := open(g)
	v, used := l.advance(*c, &h, now)
	capacity := l.capacity()
	v, n := l.spendUpTo(l.most(), v, &h, now, whole(units), used)
	*c = v
	save(g, &h)
	again := l.restored(v)
	r = Result{
		Allowed:   used+whole(units) <= capacity,
		Limit:     int64(capacity),
		Remaining: int64(sub(capacity, used+n)),
		Receipt:   l.receipt(v, again, now),
	}
	l.setTimes(&r, v, &h, now, 1)
	return r, int64(n)
}

// peek reports whether take would be allowed, and when, and what is left and until
// when as long as nobody takes. It changes nothing and has no receipt.
func (l *Limit) peek(c *cell, g *log, now, units int64) Result {
	h := open(g)
	v, used := l.advance(*c, &h, now)
	n, capacity := whole(units), l.capacity()
	r := Result{
		Allowed:   used+n <= capacity,
		Limit:     int64(capacity),
		Remaining: int64(sub(capacity, used)),
	}
	l.setTimes(&r, v, &h, now, n)
	return r
}

// refund returns units of the take that r names to the count, no more than still count,
// or without a receipt (r is 0) of the newest usage. With onlyIfLast it does so
// only if nothing was taken after that take, as far as the count can tell: a
// window cannot tell apart the takes in it, nor a log those of one instant. It
// reports whether it did anything, and the whole units that it refunded.
//
// What is lent may be spent yet, so it is not what is refunded: see Lease.
func (l *Limit) refund(c *cell, g *log, now, units int64, r Receipt, onlyIfLast bool, lent Lease) (refunded int64, changed bool) {
	if r == 0 && onlyIfLast {
		return 0, false
	}
	h := open(g)
	v, _ := l.advance(*c, &h, now)
	var back uint64
	switch n, pass := whole(units), whole(lent.Units); l.Algorithm {
	case FixedWindow:
		back = refundFixed(&v, n, pass, r)
	case SlidingLog:
		back = h.refund(&v, n, pass, r, onlyIfLast)
	case TokenBucket, LeakyBucket:
		if lent.Units > 0 {
			drains, _ := l.drains(whole(int64(lent.Term)))
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

// recovers is the instant from which on the count is empty if nothing more is
// asked, and so equals no count.
func (l *Limit) recovers(c *cell) int64 {
	span := l.span(*c)
	if span == 0 {
		return math.MinInt64
	}
	return after(c.at, span)
}

// setTimes sets when to come back, of an ask of n units, where all else of r is set.
func (l *Limit) setTimes(r *Result, v cell, g *log, now int64, n uint64) {
	if !r.Allowed {
		r.RetryAfter = l.retryAfter(v, g, now, n)
		r.ResetAfter = l.resetAfter(r, v, now)
		return
	}
	r.ResetAfter = until(v.at, l.restored(v), now)
	if r.Remaining == 0 {
		r.ResetAfter = l.untilNext(r.ResetAfter, v, g, now)
	}
}

// resetAfter is the ResetAfter of a denial, where all else of r is set: never below
// RetryAfter, and that where nothing is left, since a unit is not denied for longer
// than what was asked for.
func (l *Limit) resetAfter(r *Result, v cell, now int64) time.Duration {
	if r.Remaining == 0 && !l.Algorithm.isBucket() {
		return r.RetryAfter
	}
	return max(r.RetryAfter, until(v.at, l.restored(v), now))
}

// untilNext is a ResetAfter where nothing is left. A steady asker is granted each of
// its units from some moment on, and the first of them has room then; so that moment is
// no sooner than the one at which a unit has room, and ResetAfter is no later than it.
// A bucket's stays until its level is none, which is a place in the queue.
func (l *Limit) untilNext(reset time.Duration, v cell, g *log, now int64) time.Duration {
	if l.Algorithm.isBucket() {
		return reset
	}
	return min(reset, l.retryAfter(v, g, now, 1))
}

// advance is a count brought up to date, and the units used, in whole ones. An empty
// count becomes the zero cell at now. No entry of g changes.
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
	// A bound that no honest count comes near, so that no sum overflows.
	return v, min(used, math.MaxInt64)
}

// spend adds n units to a count that is up to date.
func (l *Limit) spend(c cell, g *log, now int64, n uint64) cell {
	if l.Algorithm == SlidingLog {
		return g.spend(c, now, n)
	}
	c.x = add(c.x, n)
	return c
}

// spendUpTo adds n units to a count that is up to date, and says how many: no more are
// used then than most, or than were before. A log forgets its oldest units for that, and
// decides as if it had them: for as long as those would count, so does all that it
// keeps, and that alone denies whatever is asked.
func (l *Limit) spendUpTo(most uint64, c cell, g *log, now int64, n, used uint64) (_ cell, spent uint64) {
	if l.Algorithm != SlidingLog {
		n = min(n, sub(most, used))
		return l.spend(c, g, now, n), n
	}
	n = min(n, most)
	return g.forget(g.spend(c, now, n), min(n, sub(used+n, most))), n
}

// span is how long after c.at the count is empty; zero if it is.
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

// restored is how long after c.at the whole limit is there for a caller that asks steadily, if
// nothing else is asked; zero if nothing is used. Of a SlidingWindow that is where the
// next window begins, if anything was admitted in this one: what slides out there from
// then on is what such an asker adds.
func (l *Limit) restored(c cell) uint64 {
	if l.Algorithm == SlidingWindow && c.x > 0 {
		return l.per()
	}
	return l.span(c)
}

// receipt is what refund will find the units by that were spent now.
func (l *Limit) receipt(c cell, empty uint64, now int64) Receipt {
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		return Receipt(after(c.at, empty))
	case SlidingLog:
		return Receipt(max(c.at, now)) // c.at is another's entry if no units were spent
	default:
		return Receipt(c.at)
	}
}

// retryAfter is how long from now the ask of n units, which is denied, has to
// wait. An ask above the capacity, or of a Rate of zero, will never do by these
// numbers; but such are shares, and those change.
func (l *Limit) retryAfter(c cell, g *log, now int64, n uint64) time.Duration {
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
	return until(c.at, wait, now)
}

// open copies a log's header, so that what is not saved changes nothing.
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

func whole(units int64) uint64 { return uint64(max(units, 0)) }
