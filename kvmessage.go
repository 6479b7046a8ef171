package weir

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/clamp"
	"github.com/weir-go/weir/internal/wire"
)

// What nodes tell each other of what is published follows the header of a request
// or an answer; numbers without a width are unsigned varints:
//
//	entry     name's bytes | name | version | value's bytes | value, or of a tombstone the age in ns
//	publish     entries until the end
//	compare     after's bytes | after | 256 digests of 8, or none if all are zero
//	difference  more 1 | entries until the end
const (
	// maxMessageEntryBytes bounds the entries in one message.
	maxMessageEntryBytes = 48 << 10
	// maxEntryHead is what the numbers of an entry take.
	maxEntryHead = 4 * binary.MaxVarintLen64
)

func (p *kvEntry) encodedSize() int { return maxEntryHead + p.size() }

func (p *kvEntry) append(b []byte, now int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(p.Name)))
	b = append(b, p.Name...)
	b = binary.AppendUvarint(b, p.Version)
	b = binary.AppendUvarint(b, uint64(len(p.Value)))
	if p.tombstone() {
		return binary.AppendUvarint(b, uint64(max(0, now-p.since)))
	}
	return append(b, p.Value...)
}

func appendEntries(b []byte, list []kvEntry, now int64) []byte {
	for i := range list {
		b = list[i].append(b, now)
	}
	return b
}

// cursor reads numbers and texts; false once there was anything wrong.
type cursor struct {
	b  []byte
	ok bool
}

func (c *cursor) number() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.b, c.ok = nil, false
		return 0
	}
	c.b = c.b[n:]
	return v
}

// bytes are the next n, which stay the message's.
func (c *cursor) bytes(n uint64) (b []byte) {
	if n > uint64(len(c.b)) {
		c.b, c.ok = nil, false
		return nil
	}
	b, c.b = c.b[:n], c.b[n:]
	return b
}

// entries reads what is left of a message, and keeps nothing of it.
func (c *cursor) entries(now int64) (list []kvEntry) {
	for len(c.b) > 0 {
		var p kvEntry
		p.Name = string(c.bytes(c.number()))
		p.Version = c.number()
		if n := c.number(); n > 0 {
			p.Value = slices.Clone(c.bytes(n))
		} else {
			p.since = now - int64(clamp.Duration(c.number(), 1, tombstoneFor))
		}
		if !c.ok || p.Name == "" || len(p.Name) > maxPublishedName || len(p.Value) > maxPublishedValue {
			c.ok = false
			return nil
		}
		list = append(list, p)
	}
	return list
}

func parseEntries(b []byte, now int64) ([]kvEntry, error) {
	c := cursor{b, true}
	list := c.entries(now)
	if !c.ok {
		return nil, wire.ErrMalformed
	}
	return list, nil
}

func (q *comparison) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(q.after)))
	b = append(b, q.after...)
	if q.digests == (digests{}) {
		return b
	}
	for _, d := range q.digests {
		b = binary.LittleEndian.AppendUint64(b, d)
	}
	return b
}

func parseComparison(b []byte) (q comparison, err error) {
	c := cursor{b, true}
	q.after = string(c.bytes(c.number()))
	if !c.ok || len(q.after) > maxPublishedName || len(c.b) != 0 && len(c.b) != 8*len(q.digests) {
		return comparison{}, wire.ErrMalformed
	}
	for i := range len(c.b) / 8 {
		q.digests[i] = binary.LittleEndian.Uint64(c.b[8*i:])
	}
	return q, nil
}

func (d *difference) append(b []byte, now int64) []byte {
	var more byte
	if d.more {
		more = 1
	}
	b = append(b, more)
	return appendEntries(b, d.list, now)
}

// parseDifference reads an answer. Its names are sorted, each once, and follow the
// question's.
func parseDifference(b []byte, q *comparison, now int64) (d difference, err error) {
	c := cursor{b, true}
	d.more = c.number() == 1
	d.list = c.entries(now)
	last := q.after
	for i := range d.list {
		if strings.Compare(d.list[i].Name, last) <= 0 {
			return difference{}, wire.ErrMalformed
		}
		last = d.list[i].Name
	}
	if !c.ok || d.more && len(d.list) == 0 {
		return difference{}, wire.ErrMalformed
	}
	return d, nil
}
