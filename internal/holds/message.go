package holds

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// These are the messages that members send to each other about their holds. Numbers are varints
// unless a size is given.
//
//	renew    0 | holder 8 | for each shard: number 1, digest 8      answer: a bit for each shard, 1 if the digests differ
//	list     1 | holder 8 | for each hold: id 16, number 8, units
//	ended    2 | as list
//	confirm  3 | holder 8 | for each hold: id 16, number 8          answer: a byte for each hold, 1 if the holder has it
//	records  4 | sender 8 | date | for each: record                 answer: each record of which the answering member knows more
//	held     end | part | before | ranges: first 8, last 8          answer: part and before of the next page | for each: item
//
// The date is the age of the cluster in ms when the message was sent, or 0 if the sender does not know the age.
// After the last page, part is not below the end of the request.
//
//	item     0, and of a hold of a process: id 16 | holder 8 | number 8 | units | age in ms; or 1, and a record
//	record   id 16 | origin 8 | number 8 | renewal 8 | released 1 | units | until it expires, and until it is forgotten, in ms
const (
	kindDigests = iota
	kindList
	kindEnded
	kindConfirm
	kindRecords
)

// parts is the number of parts in the list of a member's holds. Each shard has two parts: the holds
// of processes, and the records of clients' holds.
const parts = 2 * shards

const (
	itemEntry = iota
	itemRecord
)

// pageBytes is the approximate maximum length of a message; cluster.MaxMessage is twice as long.
const pageBytes = 32 << 10

// mostUnits is the maximum number of units of a limit.
const mostUnits = 1_000_000_000_000

func appendID(b []byte, id bucket.ID) []byte {
	return append64(append64(b, id.Hi), id.Lo)
}

func append64(b []byte, x uint64) []byte { return binary.LittleEndian.AppendUint64(b, x) }

func appendMillis(b []byte, nanos int64) []byte {
	return binary.AppendUvarint(b, uint64(max(0, nanos)/int64(time.Millisecond)))
}

// reader reads the values that the append functions write.
type reader struct{ wire.Cursor }

func (r *reader) uint64() uint64 {
	if b := r.Bytes(8); len(b) == 8 {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) id() bucket.ID { return bucket.ID{Hi: r.uint64(), Lo: r.uint64()} }

func (r *reader) units() int64 { return int64(r.Number(mostUnits)) }

func (r *reader) millis() int64 {
	return int64(r.Number(uint64(LongestTerm/time.Millisecond))) * int64(time.Millisecond)
}

// shardDigest is the digest of a shard in a message.
type shardDigest struct {
	shard int
	sum   uint64
}

func appendDigests(b []byte, holder uint64, all []shardDigest) []byte {
	b = append64(append(b, kindDigests), holder)
	for _, d := range all {
		b = append64(append(b, byte(d.shard)), d.sum)
	}
	return b
}

func appendListed(b []byte, o *Hold) []byte {
	b = append64(appendID(b, o.id), o.number)
	return binary.AppendUvarint(b, uint64(o.units.Load()))
}

func appendConfirm(b []byte, holder uint64, all []ref) []byte {
	b = append64(append(b, kindConfirm), holder)
	for i := range all {
		b = append64(appendID(b, all[i].id), all[i].number)
	}
	return b
}

// beginRecords returns the beginning of a message of records.
func beginRecords(sender uint64, date time.Duration) []byte {
	return appendMillis(append64([]byte{kindRecords}, sender), int64(date))
}

// renewMessage is a message of wire.OpRenew.
type renewMessage struct {
	kind    byte
	holder  uint64 // hash of the name of the holder, or, in a message of records, of the sender
	date    time.Duration
	digests []shardDigest
	list    []entry // in a message to confirm, only ref and renewed of each entry are set
	records []record
}

func parseRenew(message []byte, now int64) (m renewMessage, err error) {
	r := reader{wire.NewCursor(message)}
	if m.kind, m.holder = byte(r.Number(kindRecords)), r.uint64(); m.kind == kindRecords {
		m.date = time.Duration(r.Number(math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
	}
	for r.Remaining() > 0 {
		switch m.kind {
		case kindDigests:
			d := shardDigest{shard: int(r.byte()), sum: r.uint64()}
			m.digests = append(m.digests, d)
			continue
		case kindRecords:
			m.records = append(m.records, r.record(now))
			continue
		}
		e := entry{ref: ref{id: r.id(), holder: m.holder, number: r.uint64()}, renewed: now}
		if m.kind != kindConfirm {
			e.units = r.units()
		}
		m.list = append(m.list, e)
	}
	return m, r.Err()
}

// byte reads a byte.
func (r *reader) byte() byte {
	if b := r.Bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// page is a request to a member for its holds, starting from a position.
type page struct {
	part   int
	end    int // the number after that of the last requested part
	before int // position in the part, as in visitEntries; 0 at the beginning of the part
	ranges countsync.Ranges
}

// pageOf returns the first page of the holds of one ID, which are in one shard.
func pageOf(id bucket.ID) page {
	first := 2 * shardOf(id)
	return page{part: first, end: first + 2, ranges: countsync.Ranges{{First: id.Hi, Last: id.Hi}}}
}

func (p *page) append(b []byte) []byte {
	b = p.appendAt(binary.AppendUvarint(b, uint64(p.end)))
	for _, r := range p.ranges {
		b = append64(append64(b, r.First), r.Last)
	}
	return b
}

func (p *page) appendAt(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(p.part))
	return binary.AppendUvarint(b, uint64(p.before))
}

func (p *page) parseAt(r *reader) {
	p.part = int(r.Number(parts))
	p.before = int(r.Number(math.MaxInt32))
}

func parsePage(message []byte) (p page, err error) {
	r := reader{wire.NewCursor(message)}
	p.end = int(r.Number(parts))
	p.parseAt(&r)
	var ranges []countsync.Range
	for r.Remaining() > 0 {
		ranges = append(ranges, countsync.Range{First: r.uint64(), Last: r.uint64()})
	}
	p.ranges = countsync.NewRanges(ranges...)
	return p, r.Err()
}

func appendEntry(b []byte, e *entry, now int64) []byte {
	b = append64(append64(appendID(append(b, itemEntry), e.id), e.holder), e.number)
	return appendMillis(binary.AppendUvarint(b, uint64(e.units)), min(now-e.renewed, int64(Term)))
}

// appendRecord appends a record with its times rounded up: a replica may end late, but never early.
func appendRecord(b []byte, r *record, now int64) []byte {
	b = append64(append64(append64(appendID(b, r.id), r.holder), r.number), uint64(r.renewal))
	released := byte(0)
	if r.released {
		released = 1
	}
	b = binary.AppendUvarint(append(b, released), uint64(r.units))
	return appendMillis(appendMillis(b, roundUp(r.expires-now)), roundUp(r.forget-now))
}

func roundUp(nanos int64) int64 { return nanos + int64(time.Millisecond) - 1 }

func (r *reader) record(now int64) record {
	c := record{ref: ref{id: r.id(), holder: r.uint64(), number: r.uint64()}, renewal: renewal(r.uint64())}
	c.released = r.byte() != 0
	c.units = r.units()
	c.expires = now + r.millis()
	c.forget = max(c.expires, now+r.millis())
	return c
}

// parseHeld parses a page of a member's holds, and the position of the next page.
func parseHeld(answer []byte, now int64) (next page, list []entry, records []record, err error) {
	r := reader{wire.NewCursor(answer)}
	next.parseAt(&r)
	for r.Remaining() > 0 {
		if r.byte() == itemRecord {
			records = append(records, r.record(now))
			continue
		}
		e := entry{ref: ref{id: r.id(), holder: r.uint64(), number: r.uint64()}, units: r.units()}
		e.renewed = now - r.millis()
		list = append(list, e)
	}
	return next, list, records, r.Err()
}
