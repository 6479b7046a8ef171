package bucket

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A Count is encoded without its Limit, Total and ID, in varints:
//
//	SlidingLog     head; length of the entries in bytes; entries as in a log
//	FixedWindow    age; units
//	the others     age; x; y, as in a cell
//
// The head of a log is 4 times the age of the newest entry. If the newest entry is ahead of now,
// the head is 4 times the time by which the entry is ahead, plus 2. A Partial log adds 1.

// maxUsed is the maximum number of units of an honest count: twice the largest capacity.
const maxUsed = 2 * maxUnits

var errCount = errors.New("bucket: invalid count")

// Append appends the encoding of c to b. The encoding does not include Limit and Total, so
// the caller must send them along.
func (c *Count) Append(b []byte) []byte {
	if c.Limit.Algorithm == SlidingLog {
		head := c.age << 2
		if c.ahead > 0 {
			head = min(c.ahead, c.Limit.aheadAtMost())<<2 | 2
		}
		if c.partial {
			head |= 1
		}
		b = binary.AppendUvarint(b, head)
		b = binary.AppendUvarint(b, uint64(len(c.entries)))
		return append(b, c.entries...)
	}
	b = binary.AppendUvarint(b, c.age)
	b = binary.AppendUvarint(b, c.x)
	if c.Limit.Algorithm != FixedWindow {
		b = binary.AppendUvarint(b, c.y)
	}
	return b
}

// Parse decodes into c a count that Append has encoded, and returns the remaining bytes. The Limit of c
// must be set, and Parse keeps the Limit and the Total of c. Parse lowers a higher number of units to twice
// the maximum of any limit, and refuses a log with further entries. Parse does not retain b, and c grows by
// at most the length of b. If Parse returns an error, c is empty.
func (c *Count) Parse(b []byte) (rest []byte, err error) {
	limit, whose := c.Limit, c.Total
	c.clear()
	c.Limit, c.Total = limit, whose
	r := reader{b: b}
	if limit.Algorithm == SlidingLog {
		c.parseLog(&r)
	} else {
		c.age = r.uvarint()
		c.x = min(r.uvarint(), maxUsed)
		if limit.Algorithm != FixedWindow {
			c.y = r.uvarint()
		}
		if !limit.Algorithm.isBucket() {
			c.y = min(c.y, maxUsed)
		} else if c.y >= limit.per() {
			r.fail("the fraction of a unit is %d/%d, and must be below 1", c.y, limit.per())
		}
	}
	if r.err != nil {
		c.clear()
		c.Limit, c.Total = limit, whose
		return nil, r.err
	}
	return r.b, nil
}

func (c *Count) parseLog(r *reader) {
	head := r.uvarint()
	c.partial, c.age = head&1 == 1, head>>2
	ahead := c.Limit.aheadAtMost()
	if head&2 != 0 {
		c.age, c.ahead = 0, min(c.age, ahead)
	}
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail("the log has %d bytes, but only %d bytes remain", n, len(r.b))
		return
	}
	entries := reader{b: r.b[:n]}
	r.b = r.b[n:]
	for first := true; len(entries.b) > 0; first = false {
		v, units := entries.uvarint(), uint64(1)
		if v&1 == 1 {
			u := entries.uvarint()
			if u&1 == 0 || u == 1 {
				r.fail("an entry of the log has the units field %d, which must be odd and above 1", u)
			}
			units = u >> 1
		}
		if entries.err != nil || r.err != nil {
			r.err = errors.Join(r.err, entries.err)
			return
		}
		delta := v >> 1
		if first {
			delta = 0
		}
		if longest := c.Limit.per() + ahead; delta > longest || c.y+delta > longest {
			r.fail("the log is longer than its Per of %v and the time that its newest entry may be ahead", c.Limit.Per)
			return
		}
		if units = min(units, maxUsed-c.x); units == 0 {
			r.fail("the log has more than %d units", uint64(maxUsed))
			return
		}
		c.entries = appendEntry(c.entries, delta, units)
		c.x += units
		c.y += delta
	}
}

// reader decodes varints. After the first error it returns zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, k := binary.Uvarint(r.b)
	if k <= 0 {
		r.fail("the remaining %d bytes contain no complete number", len(r.b))
		return 0
	}
	r.b = r.b[k:]
	return v
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{errCount}, args...)...)
	}
}
