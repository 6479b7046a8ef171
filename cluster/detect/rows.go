package detect

import (
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Row is the report of a member about the members that it watches. A member numbers its own
// rows, so that a receiver can keep the latest row. A row names members by their MemberID.
type Row struct {
	About     uint64   // the member that reports
	Number    uint64   // incremented with each change
	Connected []uint64 // the members to which About is connected; sorted, and never modified
	Refused   []uint64 // the members whose hosts refuse the connections of About; sorted, and never modified
	// Silent are the remaining members that About watches and has found disconnected. The list is
	// sorted and never modified. A member that is still presumed to be connected is in no list.
	// The list is empty while About watches all members.
	Silent []uint64
}

// MemberID returns the number by which rows name a member.
func MemberID(name string) uint64 { return xxhash.Sum64String(name) }

// hasContent reports whether r and o report the same.
func (r *Row) hasContent(o *Row) bool {
	return slices.Equal(r.Connected, o.Connected) && slices.Equal(r.Refused, o.Refused) && slices.Equal(r.Silent, o.Silent)
}

// heldRow is a row and the state of this node about it.
type heldRow struct {
	Row
	version uint64        // version of the table when this row was stored
	holders []uint64      // the MemberIDs of the members that have sent this row to this node; at most maxHolders
	place   *list.Element // element of Connectivity.byVersion

	order     uint64 // the number of the order of connected; 0 before the first call of Connectivity.connected
	connected []int  // the indexes of Row.Connected in that order
}

const (
	// MaxRows is the maximum number of bytes of the rows in a message. It is more than the size of a
	// row with three lists of maxNamed members.
	MaxRows = 32 << 10
	// maxNamed is the maximum number of members in a list of a row. A node of a large cluster chooses at
	// most eight members to watch, and up to 264 if members are disconnected.
	maxNamed = 1024
	// maxHolders is the maximum number of members that this node remembers to have sent a row. It is more
	// than a node of a large cluster chooses to watch. A further member gets the row once more.
	maxHolders = 16
	// rowHeader is the size of a row that names no member.
	rowHeader = 22
	// maxRowNumber is the maximum number of a row. A row changes some times a second at most,
	// so no correct member reaches it. The receiver of a row with a greater number closes the connection.
	maxRowNumber = 1 << 48
	// maxStrangers is how many more rows than members of the roster a table may have. Rows may
	// arrive before the roster, and no member sends a dropped row again over the same connection before
	// the row changes.
	maxStrangers = MaxMembers
)

func (r *Row) size() int { return rowHeader + 8*(len(r.Connected)+len(r.Refused)+len(r.Silent)) }

// Feed is the state of the rows that go to a member over a connection. The zero Feed has sent
// no rows. A connection delivers in order, so a version shows which rows were sent.
type Feed struct {
	version uint64
	sent    time.Time
	partial bool // the last message had no room for all rows that were due
}

const (
	// leastNewsPace is the least time between two messages with rows over a connection. In a cluster of up to
	// 250 members, it is the pace of all messages.
	leastNewsPace = 50 * time.Millisecond
	// newsPacePerMember is the least time in a larger cluster, for each member. A member receives each row
	// over all its connections. If many members start at once, their rows change several times, and a
	// longer pace lets these changes travel as one.
	newsPacePerMember = 200 * time.Microsecond
)

// newsPace returns the least time until the next message with rows over a connection. Rows for which the last
// message had no room do not wait for further changes.
func (c *Connectivity) newsPace(f *Feed) time.Duration {
	if f.partial {
		return leastNewsPace
	}
	return max(leastNewsPace, time.Duration(len(c.members))*newsPacePerMember)
}

// News returns the rows that are due to the named member, oldest first: the rows that have changed since
// the last call of Sent, except rows about this member and rows that this member has sent. The first
// message of a connection has no exceptions, because the member may have started again. The rows have at most MaxRows bytes. If News returns rows, the caller
// must pass upTo to Sent once the rows are queued, and then call News again. Otherwise the caller must
// call News again after the duration wait, or after a change of the table if wait is 0.
func (c *Connectivity) News(f *Feed, name string, now time.Time) (rows []Row, upTo uint64, wait time.Duration) {
	if f.version == c.version {
		return nil, 0, 0
	}
	if wait = f.sent.Add(c.newsPace(f)).Sub(now); wait > 0 && !f.sent.IsZero() {
		return nil, 0, wait
	}
	var first *list.Element // the oldest row that has changed
	for e := c.byVersion.Back(); e != nil && e.Value.(*heldRow).version > f.version; e = e.Prev() {
		first = e
	}
	about, size := MemberID(name), 0
	for e := first; e != nil; e = e.Next() {
		r := e.Value.(*heldRow)
		if f.version > 0 && (r.About == about || slices.Contains(r.holders, about)) {
			continue
		}
		if size += r.size(); size > MaxRows {
			f.partial = true
			return rows, upTo, 0
		}
		rows, upTo = append(rows, r.Row), r.version
	}
	if f.partial = false; len(rows) == 0 {
		f.version = c.version
	}
	return rows, c.version, 0
}

// IsNew reports whether no rows have been sent.
func (f *Feed) IsNew() bool { return f.version == 0 }

// Sent records that the rows up to a version of the table are in the queue of the connection.
func (f *Feed) Sent(upTo uint64, now time.Time) { f.version, f.sent = upTo, now }

// Merge replaces each row for which the member from has sent a row with a higher number. It reports
// whether the content of a row has changed.
func (c *Connectivity) Merge(from string, rows []Row) (changed bool) {
	sender := MemberID(from)
	for _, r := range rows {
		held := c.rows[r.About]
		switch {
		case r.About == c.id:
			if r.Number > held.Number || r.Number == held.Number && !r.hasContent(&held.Row) {
				held.Number = r.Number // the number comes from a process that had this name before
				c.replaceOwnRow(held.Row)
			}
			continue
		case held == nil:
			changed = true
		case r.Number == held.Number:
			held.addHolder(sender)
			continue
		case r.Number < held.Number:
			continue
		default:
			changed = changed || !r.hasContent(&held.Row)
		}
		c.store(r, sender)
	}
	c.dropStrangers()
	return changed
}

// addHolder records that a member has sent the row.
func (r *heldRow) addHolder(id uint64) {
	if len(r.holders) < maxHolders && !slices.Contains(r.holders, id) {
		r.holders = append(r.holders, id)
	}
}

// store makes r the row of the member r.About. The arguments holders are the MemberIDs of the members that
// have sent r to this node.
func (c *Connectivity) store(r Row, holders ...uint64) {
	if held := c.rows[r.About]; held != nil {
		c.byVersion.Remove(held.place)
	}
	c.version++
	held := &heldRow{Row: r, version: c.version, holders: holders}
	held.place = c.byVersion.PushBack(held)
	c.rows[r.About] = held
}

// replaceOwnRow gives r the next number, and makes it the row of this node.
func (c *Connectivity) replaceOwnRow(r Row) {
	r.About, r.Number = c.id, min(c.rows[c.id].Number+1, maxRowNumber)
	c.store(r)
}

// dropStrangers drops the oldest rows of members that are not in the roster if there are too many.
func (c *Connectivity) dropStrangers() {
	excess := len(c.rows) - len(c.ids) - 1 - maxStrangers
	for e := c.byVersion.Front(); excess > 0; {
		r := e.Value.(*heldRow)
		e = e.Next()
		if r.About != c.id && !c.ids[r.About] {
			c.byVersion.Remove(r.place)
			delete(c.rows, r.About)
			excess--
		}
	}
}

// AppendRows appends the encoding of rows to b.
func AppendRows(b []byte, rows []Row) []byte {
	for _, r := range rows {
		b = binary.BigEndian.AppendUint64(b, r.About)
		b = binary.BigEndian.AppendUint64(b, r.Number)
		lists := [][]uint64{r.Connected, r.Refused, r.Silent}
		for _, ids := range lists {
			b = binary.BigEndian.AppendUint16(b, uint16(len(ids)))
		}
		for _, ids := range lists {
			for _, id := range ids {
				b = binary.BigEndian.AppendUint64(b, id)
			}
		}
	}
	return b
}

// ParseRows decodes rows. It returns an error if a row is truncated, unsorted or out of bounds.
func ParseRows(b []byte) (rows []Row, err error) {
	for len(b) > 0 {
		if len(b) < rowHeader {
			return nil, fmt.Errorf("a row of connectivity has %d bytes: its header needs %d", len(b), rowHeader)
		}
		r := Row{About: binary.BigEndian.Uint64(b), Number: binary.BigEndian.Uint64(b[8:])}
		sizes := b[16:rowHeader]
		if b = b[rowHeader:]; r.Number > maxRowNumber {
			return nil, fmt.Errorf("a row of connectivity has the number %d: the maximum is %d", r.Number, uint64(maxRowNumber))
		}
		for i, list := range []*[]uint64{&r.Connected, &r.Refused, &r.Silent} {
			n := int(binary.BigEndian.Uint16(sizes[2*i:]))
			if n > maxNamed || 8*n > len(b) {
				return nil, fmt.Errorf("a row of connectivity has a list of %d members in %d bytes: a member takes 8 bytes, and the maximum is %d members", n, len(b), maxNamed)
			}
			if n > 0 {
				*list = make([]uint64, 0, n)
			}
			for ; n > 0; n-- {
				*list, b = append(*list, binary.BigEndian.Uint64(b)), b[8:]
			}
			for k := 1; k < len(*list); k++ {
				if (*list)[k-1] >= (*list)[k] {
					return nil, errors.New("a row of connectivity has a list of members that is not sorted")
				}
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}
