package bucket

import (
	"math"
	"time"
)

// The operations on a count. g is the entries of a SlidingLog, and nil for the
// other algorithms. None of them panics, whatever a cell or a log holds, and
// none allocates but for the growth of a log. Units below zero count as zero.

// take spends if there is room, and otherwise changes nothing.
func (l *Limit) take(c *cell, g *log, now, units int64) Result {
	v, h := open(c, g)
	used := l.advance(&v, &h, now)
	n, capacity := whole(units), l.capacity()
	if used+n > capacity {
		return l.denied(&v, &h, now, n, used)
	}
	l.spend(&v, &h, now, n)
	save(c, g, &v, &h)
	return l.spent(&v, now, used+n)
}

// debit spends without asking. What is used stays within twice the capacity, so
// that a debt never exceeds one capacity; units above that are forgotten.
func (l *Limit) debit(c *cell, g *log, now, units int64) Result {
	v, h := open(c, g)
	used := l.advance(&v, &h, now)
	n := min(whole(units), sub(2*l.capacity(), used))
	l.spend(&v, &h, now, n)
	save(c, g, &v, &h)
	return l.spent(&v, now, used+n)
}

// peek says whether take would be allowed, and when, and what is left and until
// when as long as nobody takes. It changes nothing and gives no receipt.
func (l *Limit) peek(c *cell, g *log, now, units int64) Result {
	v, h := open(c, g)
	used := l.advance(&v, &h, now)
	n := whole(units)
	if used+n > l.capacity() {
		return l.denied(&v, &h, now, n, used)
	}
	r := l.result(&v, now, used)
	r.Allowed = true
	return r
}

// refund gives back units of the take that r names, no more than still count,
// or without a receipt (r is 0) of the newest usage. With onlyIfLast it does so
// only if nothing was taken after that take, as far as the count can tell: a
// window cannot tell apart the takes in it, nor a log those of one instant. It
// returns whether it gave anything back.
func (l *Limit) refund(c *cell, g *log, now, units int64, r Receipt, onlyIfLast bool) bool {
	if r == 0 && onlyIfLast {
		return false
	}
	v, h := open(c, g)
	l.advance(&v, &h, now)
	var gave bool
	switch n := whole(units); l.Algorithm {
	case FixedWindow:
		gave = refundFixed(&v, n, r)
	case SlidingLog:
		gave = h.refund(&v, n, r, onlyIfLast)
	case TokenBucket, LeakyBucket:
		gave = l.refundLevel(&v, n, r, onlyIfLast)
	default:
		gave = l.refundSliding(&v, n, r, onlyIfLast)
	}
	if gave {
		save(c, g, &v, &h)
	}
	return gave
}

// recovers is the instant from which on the count is empty if nothing more is
// asked, and so equals no count.
func (l *Limit) recovers(c *cell, _ *log) int64 {
	span := l.span(c)
	if span == 0 {
		return math.MinInt64
	}
	return after(c.at, span)
}

// used is how many units count now, rounded up.
func (l *Limit) used(c *cell, g *log, now int64) int64 {
	v, h := open(c, g)
	return int64(min(l.advance(&v, &h, now), math.MaxInt64))
}

// advance brings a count up to date and returns the units used, rounded up. An
// empty count becomes the zero cell at now. It changes no entry of g.
func (l *Limit) advance(c *cell, g *log, now int64) (used uint64) {
	switch l.Algorithm {
	case FixedWindow:
		used = l.advanceFixed(c, now)
	case SlidingLog:
		used = g.advance(c, l.per(), now)
	case TokenBucket, LeakyBucket:
		used = l.advanceLevel(c, now)
	default:
		used = l.advanceSliding(c, now)
	}
	// A bound that no honest count comes near, so that no sum overflows.
	return min(used, math.MaxInt64)
}

// spend adds n units to a count that is up to date.
func (l *Limit) spend(c *cell, g *log, now int64, n uint64) {
	if l.Algorithm == SlidingLog {
		g.spend(c, now, n)
		return
	}
	c.x = add(c.x, n)
}

// span is how long after c.at the count is empty; zero if it is.
func (l *Limit) span(c *cell) uint64 {
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

// wait is how long after c.at the ask of n units, which was denied, is admitted.
func (l *Limit) wait(c *cell, g *log, n uint64) uint64 {
	switch l.Algorithm {
	case FixedWindow:
		return l.waitFixed(c, n)
	case SlidingLog:
		return g.wait(c, l.per(), sub(add(c.x, n), l.capacity()))
	case TokenBucket, LeakyBucket:
		return l.waitLevel(c, n)
	default:
		return l.waitSliding(c, n)
	}
}

func (l *Limit) denied(c *cell, g *log, now int64, n, used uint64) Result {
	r := l.result(c, now, used)
	if n > l.capacity() || l.rate() == 0 {
		r.RetryAfter = time.Duration(l.per()) // never, by these numbers: they are a share that will change
	} else {
		r.RetryAfter = until(c.at, l.wait(c, g, n), now)
	}
	return r
}

func (l *Limit) spent(c *cell, now int64, used uint64) Result {
	r := l.result(c, now, used)
	r.Allowed = true
	switch {
	case l.Algorithm.isBucket():
		r.Receipt = Receipt(after(c.at, l.span(c)))
	case l.Algorithm == SlidingLog:
		r.Receipt = Receipt(max(c.at, now)) // c.at is another's entry if no units were spent
	default:
		r.Receipt = Receipt(c.at)
	}
	return r
}

func (l *Limit) result(c *cell, now int64, used uint64) Result {
	capacity := l.capacity()
	return Result{
		Limit:      int64(capacity),
		Remaining:  int64(sub(capacity, used)),
		ResetAfter: until(c.at, l.span(c), now),
	}
}

// open copies a count, so that what is not saved changes nothing.
func open(c *cell, g *log) (cell, log) {
	if g == nil {
		return *c, log{}
	}
	return *c, *g
}

func save(c *cell, g *log, v *cell, h *log) {
	*c = *v
	if g != nil {
		*g = *h
	}
}

func whole(units int64) uint64 { return uint64(max(units, 0)) }
