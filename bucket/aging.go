package bucket

// Age makes all used units of c older by ns nanoseconds, the time that the count has spent in
// a file. Age ignores a negative ns.
func (c *Count) Age(ns int64) {
	if ns <= 0 || c.empty() {
		return
	}
	passed := uint64(ns)
	ahead := c.ahead
	c.ahead = sub(ahead, passed)
	c.age = add(c.age, sub(passed, ahead))
	if c.Limit.Algorithm == SlidingLog {
		c.expire()
	}
}

// expire removes the entries of a log that have expired. The units of other algorithms
// recover when the count is imported.
func (c *Count) expire() {
	const now = 0
	at := after(before(now, c.age), c.ahead)
	g := log{buf: c.entries}
	v, used := g.advance(cell{at: at, x: c.x, y: uint64(before(at, c.y))}, c.Limit.per(), now)
	if used == 0 {
		limit, whose, partial := c.Limit, c.Total, c.partial
		c.clear()
		c.Limit, c.Total, c.partial = limit, whose, partial
		return
	}
	c.x, c.y = v.x, timeSince(int64(v.y), at)
	if g.head > 0 {
		_, units, next := g.readNext(g.head)
		c.entries = append(appendEntry(nil, 0, units), g.buf[next:]...)
	}
}
