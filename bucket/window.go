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

func refundFixed(c *cell, n uint64, r Receipt) uint64 {
	if r != 0 && int64(r) != c.at {
		return 0
	}
	n = min(n, c.x)
	c.x -= n
	return n
}

// A SlidingWindow keeps the units of the window that is open, x, and of the one
// before, y, which slides out evenly: e into the window, Per−e of Per of it
// counts. The windows are aligned at the key's first ask, or at Start, and roll by
// whole Per.
//
//	used = ⌈y·(Per−e)/Per⌉ + x
//
// Rounding up changes no decision: y·(Per−e) + (x+n)·Per ≤ Rate·Per in rationals
// says the same, since x, n and Rate are whole.

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
	switch {
	case c.y > 0:
		return c, add(mulDivUp(c.y, per-e, 0, per), c.x)
	case c.x > 0:
		return c, c.x
	}
	return cell{at: l.opens(now)}, 0
}

// opens is when a window opens that none goes before. Parts of a limit that have
// the same windows, by its Start, have estimates that sum to one of the whole, also
// where units go from part to part.
func (l *Limit) opens(now int64) int64 {
	if l.Algorithm != SlidingWindow || l.Start == 0 {
		return now
	}
	per := int64(l.per())
	into := (now%per - l.Start%per + 2*per) % per
	return before(now, uint64(into))
}

func (l *Limit) spanSliding(c cell) uint64 {
	switch {
	case c.x > 0:
		return 2 * l.per()
	case c.y > 0:
		return l.per()
	}
	return 0
}

// waitSliding solves y·(Per−e) ≤ (Rate−n−x)·Per for the least e. If that has no
// solution before the window ends, the next one's is Per later, where y is x.
func (l *Limit) waitSliding(c cell, n uint64) uint64 {
	per, rate := l.per(), l.rate()
	before, room, start := c.y, rate-n, uint64(0)
	if room >= c.x {
		room -= c.x
	} else {
		before, start = c.x, per
	}
	return start + sub(per, mulDiv(room, per, before))
}

func (l *Limit) refundSliding(c *cell, n uint64, r Receipt, onlyIfLast bool) uint64 {
	current := int64(r) == c.at
	before := after(int64(r), l.per()) == c.at && !(onlyIfLast && c.x > 0)
	var gave uint64
	if r == 0 || current {
		gave = min(n, c.x)
		c.x -= gave
	}
	if r == 0 || before {
		rest := min(n-gave, c.y)
		c.y -= rest
		gave += rest
	}
	return gave
}
