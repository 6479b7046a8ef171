package bucket

import "encoding/binary"

// log is the entries of a SlidingLog: what was admitted when, oldest first. An
// entry at t counts while now−t < Per, which is exact in every half-open window.
//
// An entry of one unit is one varint, the nanoseconds since the entry before,
// doubled: 4 bytes up to 134 ms, 5 up to 17 s. Any other is two varints, the
// time and the units, both doubled plus one, so that entries can be read from
// either end. The cell beside it holds the units and the times of the first entry,
// whose own time field means nothing, and of the last.
type log struct {
	buf   []byte
	head  int    // where the oldest entry starts; what is before has expired
	net   int64  // units spent since the count was collected
	edits uint64 // changes other than at the end; no two logs of a shard ever have one number
}

// maxEntry is the most bytes of one entry.
const maxEntry = 2 * binary.MaxVarintLen64

func (g *log) advance(c cell, per uint64, now int64) (cell, uint64) {
	if c.x == 0 || since(c.at, now) >= per {
		return cell{at: now}, 0
	}
	for since(int64(c.y), now) >= per { // the newest one may be ahead of now
		_, units, next := g.next(g.head)
		if units >= c.x || next == len(g.buf) {
			return cell{at: now}, 0
		}
		delta, _, _ := g.next(next)
		c.x -= units
		c.y += delta
		g.head = next
	}
	return c, c.x
}

// spend adds an entry; or to the newest one, if the clock has not moved on.
func (g *log) spend(c cell, now int64, n uint64) cell {
	switch {
	case n == 0:
		return c
	case c.x == 0:
		g.clear()
		g.put(0, n)
		c = cell{at: now, y: uint64(now)}
	case now <= c.at:
		start, delta, units := g.last(len(g.buf))
		g.buf = g.buf[:start]
		g.put(delta, units+n)
	default:
		g.compact()
		g.put(since(c.at, now), n)
		c.at = now
	}
	c.x += n
	return c
}

// forget takes the oldest n units out of the log.
func (g *log) forget(c cell, n uint64) cell {
	for n > 0 && c.x > 0 {
		delta, units, next := g.next(g.head)
		n -= g.reduce(&c, g.head, next, delta, units, n)
	}
	return c
}

// wait is how long it takes from now until the oldest entries that hold need units
// have expired.
func (g *log) wait(c cell, per uint64, now int64, need uint64) uint64 {
	t, off := int64(c.y), g.head
	for off < len(g.buf) {
		_, units, next := g.next(off)
		if units >= need || next == len(g.buf) {
			break
		}
		need -= units
		delta, _, _ := g.next(next)
		t += int64(delta)
		off = next
	}
	return since(now, after(t, per))
}

// refund takes n units from the entry at r, or without a receipt from the newest, but
// for so many as it passes over.
func (g *log) refund(c *cell, n, pass uint64, r Receipt, onlyIfLast bool) (refunded uint64) {
	if c.x == 0 || n == 0 || onlyIfLast && int64(r) != c.at {
		return 0
	}
	if r != 0 {
		return g.refundAt(c, n, int64(r))
	}
	for end := len(g.buf); refunded < n && c.x > 0 && end > g.head; {
		start, delta, units := g.last(end)
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
		start, delta, units := g.last(end)
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

// reduce takes up to n units from the entry at buf[start:end], and the entry out
// of the log if none are left. What it writes is never longer than what was there.
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
		delta, _, _ := g.next(end)
		c.y += delta
	default:
		following, held, next := g.next(end)
		g.replace(start, next, delta+following, held)
	}
	return n
}

// replace puts one entry where buf[start:end] is.
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

// after is the first entry that came after m, and its time, and what m has of its
// units; len(buf) if there is none. It reads back from the end, where m mostly is.
func (g *log) after(c cell, m Mark) (t int64, off int, has uint64) {
	off, next := len(g.buf), c.at
	for off > g.head {
		start, delta, units := g.last(off)
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

// next reads the entry that starts at off, and returns where the one after it
// does. What is no entry ends the log.
func (g *log) next(off int) (delta, units uint64, next int) {
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

// last reads the entry that ends at end, and returns where it starts.
func (g *log) last(end int) (start int, delta, units uint64) {
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

// compact makes room for an entry where expired ones were, once these are the
// larger part: each byte is moved once for one that was dropped, at most.
func (g *log) compact() {
	if cap(g.buf)-len(g.buf) >= maxEntry || g.head <= len(g.buf)/2 {
		return
	}
	live := g.buf[g.head:]
	g.head = 0
	if cap(g.buf) > 8*len(live)+smallLog { // a burst has passed: let its memory go
		g.buf = append(make([]byte, 0, 2*len(live)+maxEntry), live...)
		return
	}
	g.buf = g.buf[:copy(g.buf, live)]
}

// smallLog is how many bytes an empty log keeps.
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
