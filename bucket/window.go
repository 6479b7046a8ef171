package bucket

// A FixedWindow runs from the first ask of the key until just before start + Per. After that
// the count is empty, unless more than Rate was used in the window, for instance after a
// Debit. In that case the following window starts with the excess, which is at most Rate.

func (l *Limit) advanceFixed(c cell, now int64) (cell, uint64) {
	if l.isCalendar() {
		return l.advanceCalendar(c, now)
	}
	per := l.per()
	e := timeSince(c.at, now)
	if c.x > 0 && e < per {
		return c, c.x
	}
	if debt := l.excess(c); debt > 0 && e < 2*per {
		return cell{at: after(c.at, per), x: debt}, debt
	}
	return cell{at: now}, 0
}

// excess returns the number of units that the following window starts with.
func (l *Limit) excess(c cell) uint64 {
	return min(sub(c.x, l.rate()), l.rate())
}

func (l *Limit) spanFixed(c cell) uint64 {
	switch {
	case c.x == 0:
		return 0
	case l.excess(c) > 0:
		return 2 * l.per()
	}
	return l.per()
}

func (l *Limit) waitFixed(c cell, n uint64) uint64 {
	if l.excess(c)+n > l.rate() {
		return 2 * l.per()
	}
	return l.per()
}

// refundFixed refunds up to n units. If r is 0, refundFixed leaves as many units in the window as
// the argument pass.
func refundFixed(c *cell, n, pass uint64, r Receipt) uint64 {
	if r != 0 {
		pass = 0
		if int64(r) != c.at {
			return 0
		}
	}
	n = min(n, sub(c.x, pass))
	c.x -= n
	return n
}

// A SlidingWindow keeps x, the units of the open window, and y, the units of the previous
// window. The y units are assumed to be spread evenly over the previous window: the k-th of
// them, counted from 0, is at ⌊k·Per/y⌋ after its start. Like an entry of a log, a unit at t
// counts while now − t < Per. If e is the time since the start of the open window, then
//
//	used = ⌊y·(Per − 1 − e)/Per⌋ + x
//
// in nanoseconds. A fraction of a unit does not count as used: a caller that asks steadily at
// the rate finds one free unit whenever it asks, even if Rate is 1, or if Per/Rate is not a
// whole number of nanoseconds. x can exceed Rate, for instance after a Debit, or after Rate
// was lowered.
//
// The windows are aligned at the first ask of the key, or at Start, and follow each other by
// Per. A count without used units is equivalent to no count, so the next ask aligns the
// windows anew. As a result, two windows in which units were admitted begin at least Per
// apart. Without Start, a Rate of 1 is exact.

func (l *Limit) advanceSliding(c cell, now int64) (cell, uint64) {
	per := l.per()
	e := timeSince(c.at, now)
	if e >= per {
		if e >= 2*per {
			return cell{at: l.alignedStart(now)}, 0
		}
		c = cell{at: after(c.at, per), y: c.x}
		e -= per
	}
	used := c.x
	if c.y > 0 {
		used = add(mulDiv(c.y, per-1-e, per), c.x)
	}
	if used == 0 {
		return cell{at: l.alignedStart(now)}, 0
	}
	return c, used
}

// alignedStart returns the start of a window that has no previous window. If a limit has a
// Start, all of its parts have the same windows. In each window the parts together then admit
// no more than the limit. This is true even if units move between parts, as long as no part
// gives away used units: a part never has fewer units than it has admitted in the window.
func (l *Limit) alignedStart(now int64) int64 {
	if l.Algorithm != SlidingWindow || l.Start == 0 {
		return now
	}
	per := int64(l.per())
	into := (now%per - l.Start%per + 2*per) % per
	return before(now, uint64(into))
}

// spanSliding returns how long after c.at the last unit has slid out, or zero if no units are
// used.
func (l *Limit) spanSliding(c cell) uint64 {
	y, last := c.y, l.per()-1 // last is the time until the window ends, less a nanosecond
	if c.x > 0 {
		y, last = c.x, last+l.per()
	}
	if y == 0 {
		return 0
	}
	return last - (l.per()-1)/y
}

// slideTime returns the time from the start of a window until the given number of units of
// the previous window have slid out. The previous window has y units, and units is from 1 to y.
func (l *Limit) slideTime(units, y uint64) uint64 {
	if units == y { // same result without a product
		return l.per() - (l.per()-1)/y - 1
	}
	return mulDiv(units-1, l.per(), y)
}

// waitSliding returns the time from c.at until enough units have slid out for n more units.
// It ends in the open window, or in the next window if too many units were admitted in the
// open window.
func (l *Limit) waitSliding(c cell, n uint64) uint64 {
	y, room, start := c.y, l.rate()-n, uint64(0)
	if room >= c.x {
		room -= c.x
	} else {
		y, start = c.x, l.per()
	}
	if y <= room {
		return start
	}
	return start + l.slideTime(y-room, y)
}

// refundSliding refunds up to n units. If r is 0, refundSliding skips as many of the newest units as
// the argument pass.
func (l *Limit) refundSliding(c *cell, n, pass uint64, r Receipt, onlyIfLast bool) uint64 {
	current := int64(r) == c.at
	before := after(int64(r), l.per()) == c.at && !(onlyIfLast && c.x > 0)
	if r != 0 {
		pass = 0
	}
	var refunded, passed uint64
	if r == 0 || current {
		passed = min(pass, c.x)
		refunded = min(n, c.x-passed)
		c.x -= refunded
	}
	if r == 0 || before {
		rest := min(n-refunded, sub(c.y, pass-passed))
		c.y -= rest
		refunded += rest
	}
	return refunded
}
