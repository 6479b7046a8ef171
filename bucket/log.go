package bucket

import "encoding/binary"

// log contains the entries of a SlidingLog, oldest first. An entry records the time and the
// number of units that were admitted. An entry at t counts while now−t < Per, which is exact
// in every half-open window.
//
// An entry of one unit is one varint: the time since the previous entry in nanoseconds,
// doubled. It takes 4 bytes up to 134 ms and 5 bytes up to 17 s. Any other entry is two
// varints, the time and the units, both doubled plus one, so that entries can be read from
// either end. The cell of the count holds the number of units, and the times of the first and
// the last entry. The time field of the first entry is meaningless.
type log struct {
	buf   []byte
	head  int    // start of the oldest entry; the bytes before it have expired
	net   int64  // number of units spent less units refunded on this node since the count was last collected
	edits uint64 // number of changes other than additions at the end, from a start value that differs for each log: the same in two logs of a shard only after logEdits changes
}

// maxEntry is the maximum length of an entry in bytes.
const maxEntry = 2 * binary.MaxVarintLen64

func (g *log) advance(c cell, per uint64, now int64) (cell, uint64) {
	if c.x == 0 || timeSince(c.at, now) >= per {
		return cell{at: now}, 0
	}
	for timeSince(int64(c.y), now) >= per { // the newest entry may be ahead of now
		_, units, next := g.readNext(g.head)
		if units >= c.x || next == len(g.buf) {
			return cell{at: now}, 0
		}
		delta, _, _ := g.readNext(next)
		c.x -= units
		c.y += delta
		g.head = next
	}
	return c, c.x
}

// spend adds an entry of n units. If now is not after the newest entry, it adds the units to
// that entry.
func (g *log) spend(c cell, now int64, n uint64) cell {
	switch {
	case n == 0:
		return c
	case c.x == 0:
		g.clear()
		g.put(0, n)
		c = cell{at: now, y: uint64(now)}
	case now <= c.at:
		start, delta, units := g.readLast(len(g.buf))
		g.buf = g.buf[:start]
		g.put(delta, units+n)
	default:
		g.compact()
		g.put(timeSince(c.at, now), n)
		c.at = now
	}
	c.x += n
	return c
}

// forget removes the oldest n units of the log.
func (g *log) forget(c cell, n uint64) cell {
	for n > 0 && c.x > 0 {
		delta, units, next := g.readNext(g.head)
		n -= g.reduce(&c, g.head, next, delta, units, n)
	}
	return c
}

// wait returns the time from now until at least the needed number of units have expired, or all
// units if the log has fewer.
func (g *log) wait(c cell, per uint64, now int64, need uint64) uint64 {
	t, off := int64(c.y), g.head
	for off < len(g.buf) {
		_, units, next := g.readNext(off)
		if units >= need || next == len(g.buf) {
			break
		}
		need -= units
		delta, _, _ := g.readNext(next)
		t += int64(delta)
		off = next
	}
	return timeSince(now, after(t, per))
}

// refund removes up to n units from the entry at r. If r is 0, refund skips as many of the newest
// units as the argument pass, and removes the units before them. If onlyIfLast is set, r must be
// the time of the newest entry.
func (g *log) refund(c *cell, n, pass uint64, r Receipt, onlyIfLast bool) (refunded uint64) {
	if c.x == 0 || n == 0 || onlyIfLast && int64(r) != c.at {
		return 0
	}
	if r != 0 {
		return g.refundAt(c, n, int64(r))
	}
	for end := len(g.buf); refunded < n && c.x > 0 && end > g.head; {
		start, delta, units := g.readLast(end)
		if passed := min(pass, units); passed < units {
			refunded += g.reduce(c, start, end, delta, units, min(units-passed, n-refunded))
		}
		pass, end = sub(pass, units), start
	}
	return refunded
}

func (g *log) refundAt(c *cell, n uint64, r int64) uint64 {
	t, end := c.at, len(g.buf)
	for {
		start, delta, units := g.readLast(end)
		if t == r {
			return g.reduce(c, start, end, delta, units, n)
		}
		if t < r || start <= g.head {
			return 0
		}
		t -= int64(delta)
		end = start
	}
}

// reduce removes up to n units from the entry at buf[start:end], and removes the entry from
// the log if no units are left in it. The new bytes are never longer than the bytes that they
// replace.
func (g *log) reduce(c *cell, start, end int, delta, units, n uint64) uint64 {
	n = min(n, units, c.x)
	c.x -= n
	g.edits++
	first, last := start <= g.head, end == len(g.buf)
	switch {
	case c.x == 0 || first && last && units == n:
		g.clear()
		*c = cell{at: c.at}
	case units > n:
		g.replace(start, end, delta, units-n)
	case last:
		g.buf = g.buf[:start]
		c.at -= int64(delta)
	case first:
		g.head = end
		delta, _, _ := g.readNext(end)
		c.y += delta
	default:
		following, held, next := g.readNext(end)
		g.replace(start, next, delta+following, held)
	}
	return n
}

// replace replaces buf[start:end] with a single entry.
func (g *log) replace(start, end int, delta, units uint64) {
	tail := g.buf[end:]
	g.buf = g.buf[:start]
	g.put(delta, units)
	g.buf = append(g.buf, tail...)
}

func (g *log) put(delta, units uint64) {
	g.buf = appendEntry(g.buf, delta, units)
}

func appendEntry(b []byte, delta, units uint64) []byte {
	if units == 1 {
		return binary.AppendUvarint(b, delta<<1)
	}
	b = binary.AppendUvarint(b, delta<<1|1)
	return binary.AppendUvarint(b, units<<1|1)
}

// findAfter returns the time and the offset of the first entry that has units after m, and the
// number of its units that m includes. The offset is len(buf) if there is no such entry. The
// search starts at the end of the log, because m is usually near the end.
func (g *log) findAfter(c cell, m Mark) (t int64, off int, has uint64) {
	off, next := len(g.buf), c.at
	for off > g.head {
		start, delta, units := g.readLast(off)
		if next == m.at && units > m.units {
			return next, start, m.units
		}
		if next <= m.at {
			break
		}
		t, off = next, start
		next -= int64(delta)
	}
	return t, off, 0
}

// readNext reads the entry that starts at the offset off, and returns the offset of the
// next entry. An invalid entry ends the log.
func (g *log) readNext(off int) (delta, units uint64, next int) {
	v, k := binary.Uvarint(g.buf[off:])
	if k <= 0 {
		return 0, 0, len(g.buf)
	}
	off += k
	if v&1 == 0 {
		return v >> 1, 1, off
	}
	u, k := binary.Uvarint(g.buf[off:])
	if k <= 0 {
		return v >> 1, 0, len(g.buf)
	}
	return v >> 1, u >> 1, off + k
}

// readLast reads the entry that ends at the offset end, and returns the offset of the start of the entry.
func (g *log) readLast(end int) (start int, delta, units uint64) {
	v, start := g.varintBefore(end)
	if v&1 == 0 {
		return start, v >> 1, 1
	}
	units = v >> 1
	v, start = g.varintBefore(start)
	return start, v >> 1, units
}

func (g *log) varintBefore(end int) (v uint64, start int) {
	if end <= g.head {
		return 0, g.head
	}
	start = end - 1
	for start > g.head && g.buf[start-1]&0x80 != 0 {
		start--
	}
	v, _ = binary.Uvarint(g.buf[start:end])
	return v, start
}

// compact moves the entries to the front of the buffer if there is no room for another entry
// and more than half of the buffer has expired. So at most one byte is moved for each byte
// that is dropped.
func (g *log) compact() {
	if cap(g.buf)-len(g.buf) >= maxEntry || g.head <= len(g.buf)/2 {
		return
	}
	live := g.buf[g.head:]
	g.head = 0
	if cap(g.buf) > 8*len(live)+smallLog { // a burst has passed: release its memory
		g.buf = append(make([]byte, 0, 2*len(live)+maxEntry), live...)
		return
	}
	g.buf = g.buf[:copy(g.buf, live)]
}

// smallLog is the maximum capacity in bytes that an empty log keeps.
const smallLog = 256

func (g *log) clear() {
	g.head = 0
	g.edits++
	if cap(g.buf) > smallLog {
		g.buf = nil
		return
	}
	g.buf = g.buf[:0]
}
