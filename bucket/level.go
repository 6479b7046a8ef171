package bucket

import "math/bits"

// TokenBucket and LeakyBucket hold a level of used units, which falls by Rate
// every Per, down to none. It is kept as whole units and a rest in 1/Per units, of
// which exactly Rate go every nanosecond: nothing is ever rounded, so a million
// small steps leave what one large step does.

// advanceLevel lets the level fall until now.
func (l *Limit) advanceLevel(c cell, now int64) (cell, uint64) {
	if c.x|c.y == 0 {
		return cell{at: now}, 0
	}
	if e := since(c.at, now); e > 0 {
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

// drain is how long a level takes to fall to none: longer than any time if Rate
// is zero.
func (l *Limit) drain(units, rest uint64) uint64 {
	if units|rest == 0 {
		return 0
	}
	return mulDivUp(units, l.per(), rest, l.rate())
}

// waitLevel is how long it takes until what is above Burst−n has drained.
func (l *Limit) waitLevel(c cell, n uint64) uint64 {
	return l.drain(sub(add(c.x, n), l.capacity()), c.y)
}

// refundLevel refunds at most what of the take has not drained yet: the level
// drains in the order it was filled, and the receipt is when that take's last
// part would have drained. Anything more has drained by now. If no take
// followed, the level itself says how much that is; else the receipt does, less
// the nanosecond that it was rounded up by.
//
// units is how many whole ones that is; changed reports whether it is anything.
//
// Where an earlier take was refunded in between, this one drains sooner than its
// receipt says, and up to what drained since that take is refunded once more.
func (l *Limit) refundLevel(c *cell, n uint64, r Receipt, onlyIfLast bool) (units uint64, changed bool) {
	per, rate := l.per(), l.rate()
	units, rest := n, uint64(0)
	if r != 0 {
		last := after(c.at, l.drain(c.x, c.y)) == int64(r)
		if onlyIfLast && !last {
			return 0, false
		}
		// Above one unit a nanosecond, takes can follow within the rounding.
		if rate > 0 && (!last || rate > per) {
			left := since(c.at, int64(r))
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

// split is a·b 1/per units, as whole units and the rest; false if the units do not
// fit in a uint64.
func split(a, b, per uint64) (units, rest uint64, ok bool) {
	hi, lo := bits.Mul64(a, b)
	if hi >= per {
		return 0, 0, false
	}
	units, rest = bits.Div64(hi, lo, per)
	return units, rest, true
}

// lower takes units and the rest from the level; false if that leaves none.
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
