package holds

import (
	"encoding/binary"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// What members tell each other of holds. Numbers are varints unless a size is given.
//
//	renew    0 | holder 8 | for each shard: number 1, digest 8      answer: a bit for each shard, 1 where the digests differ
//	list     1 | holder 8 | for each hold: id 16, number 8, units, term in ms
//	ended    2 | as list
//	confirm  3 | holder 8 | for each hold: id 16, number 8          answer: a byte for each, 1 where the holder has it
//	held     shard | from | ranges: first 8, last 8                  answer: shard and from to go on, 256 and 0 at the end | for each hold: id 16, holder 8, number 8, units, term, age in ms
//	adopt    verb | id 16 | holder 8 | number 8 | ms                 answer: one of answer
const (
	kindDigests = iota
	kindList
	kindEnded
	kindConfirm
)

const (
	verbRenew = iota
	verbRelease
)

// pageBytes is about how long a message gets; cluster.MaxMessage is twice that.
const pageBytes = 32 << 10

// longestTerm bounds the term of a hold, and what a client's may be renewed for.
const longestTerm = time.Hour

// mostUnits is the most that a limit has.
const mostUnits = 1_000_000_000_000

func appendID(b []byte, id bucket.ID) []byte {
	return append64(append64(b, id.Hi), id.Lo)
}

func append64(b []byte, x uint64) []byte { return binary.LittleEndian.AppendUint64(b, x) }

func appendMillis(b []byte, nanos int64) []byte {
	return binary.AppendUvarint(b, uint64(max(0, nanos)/int64(time.Millisecond)))
}

// reader reads what the others append.
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
	return int64(r.Number(uint64(longestTerm/time.Millisecond))) * int64(time.Millisecond)
}

// shardDigest is one of a message of digests.
type shardDigest struct {
	shard int
	sum   uint64
}

func appendDigests(b []byte, holder uint64, of []shardDigest) []byte {
	b = append64(append(b, kindDigests), holder)
	for _, d := range of {
		b = append64(append(b, byte(d.shard)), d.sum)
	}
	return b
}

func appendListed(b []byte, o *Hold) []byte {
	b = append64(appendID(b, o.id), o.number)
	return appendMillis(binary.AppendUvarint(b, uint64(o.units)), int64(o.term()))
}

func appendConfirm(b []byte, holder uint64, of []ref) []byte {
	b = append64(append(b, kindConfirm), holder)
	for i := range of {
		b = append64(appendID(b, of[i].id), of[i].number)
	}
	return b
}

// renewal is a message of digests, of holds that are renewed now or ended, or of holds to confirm.
type renewal struct {
	kind    byte
	holder  uint64
	digests []shardDigest
	list    []entry // to confirm, by their refs alone
}

func parseRenew(message []byte, now int64) (m renewal, err error) {
	r := reader{wire.NewCursor(message)}
	m.kind, m.holder = byte(r.Number(kindConfirm)), r.uint64()
	for r.Left() > 0 {
		if m.kind == kindDigests {
			d := shardDigest{shard: int(r.byte()), sum: r.uint64()}
			m.digests = append(m.digests, d)
			continue
		}
		e := entry{ref: ref{id: r.id(), holder: m.holder, number: r.uint64()}, renewed: now}
		if m.kind != kindConfirm {
			e.units, e.term = r.units(), r.millis()
		}
		m.list = append(m.list, e)
	}
	return m, r.Err()
}

// byte reads one byte.
func (r *reader) byte() byte {
	if b := r.Bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// page is a question for what is held, and where in a member's holds it goes on.
type page struct {
	shard  int
	from   int
	ranges countsync.Ranges
}

func (p *page) append(b []byte) []byte {
	b = p.appendAt(b)
	for _, r := range p.ranges {
		b = append64(append64(b, r.First), r.Last)
	}
	return b
}

func (p *page) appendAt(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(p.shard))
	return binary.AppendUvarint(b, uint64(p.from))
}

func (p *page) parseAt(r *reader) {
	p.shard = int(r.Number(shards))
	p.from = int(r.Number(1 << 40))
}

func parsePage(message []byte) (p page, err error) {
	r := reader{wire.NewCursor(message)}
	p.parseAt(&r)
	var ranges []countsync.Range
	for r.Left() > 0 {
		ranges = append(ranges, countsync.Range{First: r.uint64(), Last: r.uint64()})
	}
	p.ranges = countsync.NewRanges(ranges...)
	return p, r.Err()
}

func appendEntry(b []byte, e *entry, now int64) []byte {
	b = append64(append64(appendID(b, e.id), e.holder), e.number)
	b = appendMillis(binary.AppendUvarint(b, uint64(e.units)), e.term)
	return appendMillis(b, min(now-e.renewed, e.term))
}

// parseHeld reads a page of what is held, and where the next one begins.
func parseHeld(answer []byte, now int64) (next page, list []entry, err error) {
	r := reader{wire.NewCursor(answer)}
	next.parseAt(&r)
	for r.Left() > 0 {
		e := entry{ref: ref{id: r.id(), holder: r.uint64(), number: r.uint64()}, units: r.units(), term: r.millis()}
		e.renewed = now - r.millis()
		list = append(list, e)
	}
	return next, list, r.Err()
}

// claim is what is asked of a client's hold.
type claim struct {
	verb int
	of   ref
	ttl  int64
}

func (c *claim) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(c.verb))
	b = append64(append64(appendID(b, c.of.id), c.of.holder), c.of.number)
	return appendMillis(b, c.ttl)
}

func parseClaim(message []byte) (c claim, err error) {
	r := reader{wire.NewCursor(message)}
	c.verb = int(r.Number(verbRelease))
	c.of = ref{id: r.id(), holder: r.uint64(), number: r.uint64()}
	c.ttl = r.millis()
	return c, r.Err()
}
