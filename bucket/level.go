package bucket

import "math/bits"

// TokenBucket and LeakyBucket keep a level of used units, which falls by Rate every Per until
// it is zero. The level is stored as whole units and a remainder in 1/Per units. In every
// nanosecond the level falls by exactly Rate of these 1/Per units. No step is rounded, so a
// million small steps have the same result as a single large step.

// advanceLevel returns the level at the time now, and its used units, rounded up.
func (l *Limit) advanceLevel(c cell, now int64) (cell, uint64) {
	if c.x|c.y == 0 {
		return cell{at: now}, 0
	}
	if e := timeSince(c.at, now); e > 0 {
		per := l.per()
		units, rest, ok := split(e, l.rate(), per)
		if ok {
			c, ok = lower(c, units, rest, per)
		}
		if !ok {
			return cell{at: now}, 0
		}
		c.at = now
	}
	if c.y > 0 {
		return c, add(c.x, 1)
	}
	return c, c.x
}

// drain returns how long a level takes to fall to zero. The level is given as whole units, and as the
// argument rest in 1/Per units. If Rate is zero, the result is the largest uint64, except for an empty
// level.
func (l *Limit) drain(units, rest uint64) uint64 {
	if units|rest == 0 {
		return 0
	}
	return mulDivUp(units, l.per(), rest, l.rate())
}

// waitLevel returns how long it takes until the units above Burst−n have drained.
func (l *Limit) waitLevel(c cell, n uint64) uint64 {
	return l.drain(sub(add(c.x, n), l.capacity()), c.y)
}

// refundLevel refunds up to n units of a take, but only units that have not drained yet. The
// level drains in the order in which it was filled, and the receipt is the time at which the
// last part of the take would have drained. If no take followed, the level itself limits the
// refund. Otherwise the refund is at most the amount that drains until a nanosecond before the
// receipt, because a receipt is rounded up by less than a nanosecond.
//
// The result units is the number of whole units that were refunded. The result changed reports
// whether the level has changed.
//
// If an earlier take was refunded in between, the units of this take drain sooner than the
// receipt indicates. In this case, up to as many units as have drained since the earlier take
// are refunded a second time.
func (l *Limit) refundLevel(c *cell, n uint64, r Receipt, onlyIfLast bool) (units uint64, changed bool) {
	per, rate := l.per(), l.rate()
	units, rest := n, uint64(0)
	if r != 0 {
		last := after(c.at, l.drain(c.x, c.y)) == int64(r)
		if onlyIfLast && !last {
			return 0, false
		}
		// If Rate is more than one unit per nanosecond, the rounding can hide a take that
		// followed.
		if rate > 0 && (!last || rate > per) {
			left := timeSince(c.at, int64(r))
			if u, f, ok := split(sub(left, 1), rate, per); ok && u < n {
				units, rest = u, f
			}
		}
	}
	if units|rest == 0 || c.x|c.y == 0 {
		return 0, false
	}
	if less, ok := lower(*c, units, rest, per); ok {
		*c = less
	} else {
		units = min(units, c.x)
		*c = cell{at: c.at}
	}
	return units, true
}

// split returns a·b/per as whole units and a remainder in 1/per units. ok is false if the
// units do not fit in a uint64.
func split(a, b, per uint64) (units, rest uint64, ok bool) {
	hi, lo := bits.Mul64(a, b)
	if hi >= per {
		return 0, 0, false
	}
	units, rest = bits.Div64(hi, lo, per)
	return units, rest, true
}

// lower subtracts an amount from the level, which is given as whole units, and as the argument rest
// in 1/per units. It returns false if the level would be zero or less.
func lower(c cell, units, rest, per uint64) (cell, bool) {
	if c.x < units || c.x == units && c.y <= rest {
		return c, false
	}
	c.x -= units
	if c.y < rest {
		c.x--
		c.y += per
	}
	c.y -= rest
	return c, true
}
