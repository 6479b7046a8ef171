package publish

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/wire"
)

// The messages between nodes follow the header of a request or an answer. Numbers without a width
// are unsigned varints:
//
//	entry       length of name | name | version | length of value | value, or of a tombstone the age in ns
//	publish     entries until the end
//	compare     length of after | after | 256 digests of 8, or no digests if all are zero
//	difference  more 1 | entries until the end
const (
	// maxMessageBytes is the maximum size of the entries in a message.
	maxMessageBytes = 48 << 10
	// maxEntryHead is the maximum size of the numbers of an entry.
	maxEntryHead = 4 * binary.MaxVarintLen64
)

func (p *entry) encodedSize() int { return maxEntryHead + p.size() }

func appendEntries(b []byte, list []entry, now int64) []byte {
	for i := range list {
		p := &list[i]
		b = wire.AppendText(b, p.Name)
		b = binary.AppendUvarint(b, p.Version)
		b = binary.AppendUvarint(b, uint64(len(p.Value)))
		if p.isTombstone() {
			b = binary.AppendUvarint(b, uint64(max(0, now-p.since)))
		}
		b = append(b, p.Value...)
	}
	return b
}

// readEntries reads the rest of a message. The entries do not refer to the memory of the message.
func readEntries(c *wire.Cursor, now int64) (list []entry, err error) {
	for c.Remaining() > 0 {
		var p entry
		if p.Name = c.Text(MaxName); p.Name == "" {
			c.Fail()
		}
		p.Version = c.Number(math.MaxUint64)
		if n := c.Number(MaxValue); n > 0 {
			p.Value = slices.Clone(c.Bytes(int(n)))
		} else {
			p.since = now - int64(min(c.Number(math.MaxUint64), uint64(tombstoneFor)))
		}
		list = append(list, p)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	return list, nil
}

func parseEntries(b []byte, now int64) ([]entry, error) {
	c := wire.NewCursor(b)
	return readEntries(&c, now)
}

func (q *Question) append(b []byte) []byte {
	b = wire.AppendText(b, q.after)
	if q.digests == (digests{}) {
		return b
	}
	for _, d := range q.digests {
		b = binary.LittleEndian.AppendUint64(b, d)
	}
	return b
}

// ParseQuestion parses the Question of another node.
func ParseQuestion(b []byte) (q Question, err error) {
	c := wire.NewCursor(b)
	q.after = c.Text(MaxName)
	if rest := c.Remaining(); rest > 0 {
		digests := c.Bytes(8 * len(q.digests))
		for i := range len(digests) / 8 {
			q.digests[i] = binary.LittleEndian.Uint64(digests[8*i:])
		}
	}
	if c.Remaining() > 0 {
		c.Fail()
	}
	if err := c.Err(); err != nil {
		return Question{}, err
	}
	return q, nil
}

func (d *difference) append(b []byte, now int64) []byte {
	var more byte
	if d.more {
		more = 1
	}
	return appendEntries(append(b, more), d.list, now)
}

// parseDifference parses the answer to q. The error is wire.ErrMalformed, also if the names
// are not in ascending order after the name in q.
func parseDifference(b []byte, q *Question, now int64) (d difference, err error) {
	c := wire.NewCursor(b)
	d.more = c.Number(math.MaxUint64) == 1
	if d.list, err = readEntries(&c, now); err != nil {
		return difference{}, err
	}
	last := q.after
	for i := range d.list {
		if strings.Compare(d.list[i].Name, last) <= 0 {
			return difference{}, wire.ErrMalformed
		}
		last = d.list[i].Name
	}
	if d.more && len(d.list) == 0 {
		return difference{}, wire.ErrMalformed
	}
	return d, nil
}
