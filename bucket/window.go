package bucket

// A FixedWindow runs from the key's first ask until just before start + Per.
// Then the count is empty, unless a debit left more than Rate in it: the excess,
// at most one Rate, is what the following window starts with.

func (l *Limit) advanceFixed(c cell, now int64) (cell, uint64) {
	if l.calendar() {
		return l.advanceCalendar(c, now)
	}
	per := l.per()
	e := since(c.at, now)
	if c.x > 0 && e < per {
		return c, c.x
	}
	if debt := l.excess(c); debt > 0 && e < 2*per {
		return cell{at: after(c.at, per), x: debt}, debt
	}
	return cell{at: now}, 0
}

// excess is what the following window starts with.
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

// refundFixed leaves so many units where there is no receipt.
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

// A SlidingWindow keeps the units of the window that is open, x, and of the one
// before, y, which are taken as evenly spread over it: the k-th of them, from 0, at
// ⌊k·Per/y⌋ after its start. Like an entry of a log, a unit at t counts while
// now − t < Per. With e of the open window past, that is
//
//	used = ⌊y·(Per − 1 − e)/Per⌋ + x
//
// in nanoseconds. A part of a unit is no unit: a caller that asks steadily at the rate
// finds one free whenever it asks, also of a Rate of 1, and where Per/Rate is no
// whole number of nanoseconds. x never exceeds Rate but by a Debit or a lower Rate.
//
// The windows are aligned at the key's first ask, or at Start, and roll by whole
// Per. A count of which nothing is used equals no count, so the next ask aligns them
// anew: two windows in which something was admitted begin at least Per apart, and a
// Rate of 1 is exact.

func (l *Limit) advanceSliding(c cell, now int64) (cell, uint64) {
	per := l.per()
	e := since(c.at, now)
	if e >= per {
		if e >= 2*per {
			return cell{at: l.opens(now)}, 0
		}
		c = cell{at: after(c.at, per), y: c.x}
		e -= per
	}
	used := c.x
	if c.y > 0 {
		used = add(mulDiv(c.y, per-1-e, per), c.x)
	}
	if used == 0 {
		return cell{at: l.opens(now)}, 0
	}
	return c, used
}

// opens is when a window opens that none goes before. Parts of a limit that have the
// same windows, by its Start, admit no more than the limit in each of them, also where
// units go from part to part, as long as no part parts with units that it has used: what
// it has admitted in the window is never more than what it holds.
func (l *Limit) opens(now int64) int64 {
	if l.Algorithm != SlidingWindow || l.Start == 0 {
		return now
	}
	per := int64(l.per())
	into := (now%per - l.Start%per + 2*per) % per
	return before(now, uint64(into))
}

// spanSliding is when the last of the newest units has slid out.
func (l *Limit) spanSliding(c cell) uint64 {
	switch {
	case c.x > 0:
		return l.per() + l.slides(c.x, c.x)
	case c.y > 0:
		return l.slides(c.y, c.y)
	}
	return 0
}

// slides is how long after the start of a window that follows one of y units so many
// of them, from 1 to y, have slid out.
func (l *Limit) slides(units, y uint64) uint64 {
	if units == y { // the same, without a product
		return l.per() - (l.per()-1)/y - 1
	}
	return mulDiv(units-1, l.per(), y)
}

// waitSliding is until so many units have slid out that n more have room: in this
// window, or in the next one if what was admitted in this one is too much already.
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
	return start + l.slides(y-room, y)
}

// refundSliding passes over so many of the newest units where there is no receipt.
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
