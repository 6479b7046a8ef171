package countsync

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
)

// A frame, little-endian; numbers without a width are unsigned varints:
//
//	header   version 1 | flags 1 | from 8 | to 8 | number 8
//	transfer move | number of ranges | for each: first 8, last 8 | uncertainFor   only with flagTransfer
//	ids      number of items | the id 16 of each
//	items    until the end
//
// The ids come first, so that the memory of their counts can be prefetched. An item begins with a
// byte that has its flags and its kind. The flags determine the parts that follow: the reset
// number and the age of the tombstone; a vector or a total; the number of the frame that the
// piece of a log follows; a limit, and the count of a state or the used units of a spend. A limit
// is encoded as its index in the frame. If the index is the first free index, the numbers of the
// limit follow. Origins are encoded in the same way.
//
//	vector  number of tallies | for each: origin | spent | refunded | expired | age
//	total   origin | spent
//	origin  index | origin 8 | series 8
//	limit   index | code 1 | rate | per | burst or start | version | whole
//
// The code is that of a bucket.Limit. Buckets have a burst, and other limits a start. Both are
// signed varints. The format of a holding, after its kind, is in holdingcopy.go.
//
// An answer:
//
//	version 1 | flags 1 | number 8 | number of items | items
//
// The receiver of the frame requests these items as a whole. Each item is given as its index
// less the previous index.
const (
	frameVersion = 1
	headerBytes  = 26
	maxFrame     = 64 << 10
)

// Flags of a frame.
const (
	flagComplete = 1 << iota
	flagLeaving
	flagTransfer
	flagRequest // requests all counts for which the sender answers, or of which it is a target
	knownFlags  = 1<<iota - 1
)

// Flags of an item, above the bits of its kind.
const (
	kindMask   = 3
	itemReset  = 1 << (iota + 1) // the item has a reset number
	itemVector                   // the item has a vector
	itemLimit                    // the item has the limit of its count or spend
	itemMore                     // more pieces of the log follow in later items
	itemPiece                    // the item has entries of a log that follow an earlier piece
	itemTotal                    // instead of a vector, the item has a single tally as of now, without refunds
)

const answerVersion = 1

// maxTallies is the maximum number of tallies of an id in a frame. If a vector is longer, the
// tallies that grew last are sent. The units of the other tallies recover first. Until then these
// units may count twice if they arrive by another path, so that too many checks are denied.
const maxTallies = 512

// maxAge is the maximum age, so that a time less an age is a valid time.
const maxAge = math.MaxInt64 / 4

// maxUnits is the maximum number of units in a tally, so that no sum overflows.
const maxUnits = math.MaxInt64 / 1024

var errFrame = errors.New("countsync: malformed frame")

func appendHeader(b []byte, flags byte, from, to Member, number uint64) []byte {
	b = append(b, frameVersion, flags)
	b = binary.LittleEndian.AppendUint64(b, from)
	b = binary.LittleEndian.AppendUint64(b, to)
	return binary.LittleEndian.AppendUint64(b, number)
}

func appendRanges(b []byte, move uint64, ranges Ranges) []byte {
	b = binary.AppendUvarint(b, move)
	b = binary.AppendUvarint(b, uint64(len(ranges)))
	for _, r := range ranges {
		b = binary.LittleEndian.AppendUint64(b, r.First)
		b = binary.LittleEndian.AppendUint64(b, r.Last)
	}
	return b
}

const (
	idBytes       = 16
	maxItemsBytes = 3 // maximum encoded size of the number of items, in bytes
)

func appendID(b []byte, id bucket.ID) []byte {
	b = binary.LittleEndian.AppendUint64(b, id.Hi)
	return binary.LittleEndian.AppendUint64(b, id.Lo)
}

func (os *origins) appendVector(b []byte, v vector, now int64) []byte {
	v = v.latest(maxTallies)
	b = binary.AppendUvarint(b, uint64(len(v)))
	for i := range v {
		t := &v[i]
		b = os.append(b, origin{t.origin, t.series})
		b = binary.AppendUvarint(b, uint64(t.spent))
		b = binary.AppendUvarint(b, uint64(t.refunded))
		b = binary.AppendUvarint(b, uint64(t.expired))
		b = binary.AppendUvarint(b, uint64(max(0, now-t.changed)))
	}
	return b
}

func (os *origins) appendTotal(b []byte, t bucket.Total) []byte {
	b = os.append(b, origin{t.Origin, t.Series})
	return binary.AppendUvarint(b, uint64(t.Spent))
}

// origin is a member that has spent units, and its series.
type origin struct {
	member Member
	series int64
}

// origins contains the origins of a frame, by index. If an index is the first free index, the
// origin follows it.
type origins []origin

func (os *origins) append(b []byte, o origin) []byte {
	i := indexIn(*os, o)
	b = binary.AppendUvarint(b, uint64(i))
	if i < len(*os) {
		return b
	}
	*os = append(*os, o)
	b = binary.LittleEndian.AppendUint64(b, o.member)
	return binary.LittleEndian.AppendUint64(b, uint64(o.series))
}

func (os *origins) read(r *reader) (o origin) {
	i := r.uvarint()
	if i < uint64(len(*os)) {
		return (*os)[i]
	}
	if i != uint64(len(*os)) {
		r.fail("an origin has the index %d, but only %d origins precede it", i, len(*os))
		return o
	}
	o = origin{r.uint64(), int64(r.uint64())}
	if r.err == nil && (o.member == 0 || o.series < 0) {
		r.fail("the origin %d with the series %d is invalid", o.member, o.series)
	}
	*os = append(*os, o)
	return o
}

// limits contains the limits of a frame, by index.
type limits []bucket.Limit

// index returns the index of l in the frame, or the index that a new limit gets. ok is false if
// no member would accept the numbers of l.
func (ls *limits) index(l *bucket.Limit) (i int, ok bool) {
	i = indexIn(*ls, *l)
	return i, i < len(*ls) || sane(l) == nil
}

// indexIn returns the index of x if it is among the last 64 elements of a slice, or else the length of the
// slice.
func indexIn[T comparable](all []T, x T) int {
	const nearest = 64
	for i := len(all) - 1; i >= max(0, len(all)-nearest); i-- {
		if all[i] == x {
			return i
		}
	}
	return len(all)
}

// append appends the index of l, and its numbers if they are new to the frame.
func (ls *limits) append(b []byte, l *bucket.Limit, i int) []byte {
	b = binary.AppendUvarint(b, uint64(i))
	if i < len(*ls) {
		return b
	}
	*ls = append(*ls, *l)
	b = append(b, l.Code())
	b = binary.AppendUvarint(b, uint64(l.Rate))
	b = binary.AppendUvarint(b, uint64(l.Per))
	if l.IsBucket() {
		b = binary.AppendVarint(b, l.Burst)
	} else {
		b = binary.AppendVarint(b, l.Start)
	}
	b = binary.AppendUvarint(b, l.Version)
	return binary.AppendUvarint(b, uint64(l.Whole))
}

// read reads the next limit, which may be a share.
func (ls *limits) read(r *reader) (l bucket.Limit) {
	i := r.uvarint()
	if i < uint64(len(*ls)) {
		return (*ls)[i]
	}
	if i != uint64(len(*ls)) {
		r.fail("a limit has the index %d, but only %d limits precede it", i, len(*ls))
		return l
	}
	code := r.byte()
	l.Rate = int64(r.uvarint())
	l.Per = time.Duration(r.uvarint())
	l.SetCode(code)
	if l.IsBucket() {
		l.Burst = r.varint()
	} else {
		l.Start = r.varint()
	}
	l.Version = r.uvarint()
	l.Whole = int64(r.uvarint())
	if r.err != nil {
		return bucket.Limit{}
	}
	if err := sane(&l); err != nil {
		r.fail("a limit is invalid: %w", err)
		return bucket.Limit{}
	}
	*ls = append(*ls, l)
	return l
}

// sane is like Validate, but accepts shares. An empty share has a Rate of 0 or a negative
// Burst.
func sane(l *bucket.Limit) error {
	whole := *l
	whole.Burst = max(0, whole.Burst)
	if whole.Rate == 0 {
		whole.Rate, whole.Burst = 1, 0
	}
	return whole.Validate()
}

// reader reads a frame, an answer, an exchange or a block of a snapshot. After the first error
// it returns zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{errFrame}, args...)...)
	}
	r.b = nil
}

func (r *reader) byte() byte {
	if len(r.b) < 1 {
		r.fail("the message ends early")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint64() uint64 {
	if len(r.b) < 8 {
		r.fail("the message ends early")
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) uvarint() uint64 {
	v, k := binary.Uvarint(r.b)
	if k <= 0 {
		r.fail("the message ends within a number")
		return 0
	}
	r.b = r.b[k:]
	return v
}

func (r *reader) varint() int64 {
	v, k := binary.Varint(r.b)
	if k <= 0 {
		r.fail("the message ends within a number")
		return 0
	}
	r.b = r.b[k:]
	return v
}

// units reads a number of units, limited to maxUnits.
func (r *reader) units() int64 { return int64(min(r.uvarint(), maxUnits)) }

// age reads a number of nanoseconds, limited to maxAge.
func (r *reader) age() int64 { return int64(min(r.uvarint(), maxAge)) }

func (r *reader) id() bucket.ID { return bucket.ID{Hi: r.uint64(), Lo: r.uint64()} }

// ids returns the bytes of the ids in a frame.
func (r *reader) ids() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)/idBytes) {
		r.fail("%d items do not fit in the message", n)
		return nil
	}
	b := r.b[:n*idBytes]
	r.b = r.b[len(b):]
	return b
}

func (r *reader) ranges() (move uint64, ranges Ranges) {
	move = r.uvarint()
	n := r.uvarint()
	if n > uint64(len(r.b)/16) {
		r.fail("%d ranges do not fit in the message", n)
		return 0, nil
	}
	list := make([]Range, n)
	for i := range list {
		list[i] = Range{r.uint64(), r.uint64()}
	}
	return move, NewRanges(list...)
}

// vector reads the tallies of a vector into v, which must be empty. Two tallies of the same
// origin are an error.
func (os *origins) vector(r *reader, v vector, now int64) vector {
	n := r.uvarint()
	if n > maxTallies {
		r.fail("a vector has %d tallies, and at most %d are allowed", n, maxTallies)
	}
	for ; n > 0 && r.err == nil; n-- {
		o := os.read(r)
		if r.err != nil {
			return v
		}
		t := tally{origin: o.member, series: o.series, spent: r.units(), refunded: r.units(), expired: r.units(), changed: now - r.age()}
		at, there := v.find(t.origin)
		if there {
			r.fail("a vector has two tallies of the origin %d", t.origin)
			return v
		}
		v = slices.Insert(v, at, t)
	}
	return v
}

// total reads a total, and appends it to v as a tally.
func (os *origins) total(r *reader, v vector, now int64) vector {
	o, spent := os.read(r), r.units()
	if r.err != nil {
		return v
	}
	return append(v, tally{origin: o.member, series: o.series, spent: spent, changed: now})
}

func appendAnswer(b []byte, number uint64, whole []int) []byte {
	b = append(b, answerVersion, 0)
	b = binary.LittleEndian.AppendUint64(b, number)
	return appendIndexes(b, whole)
}

func appendIndexes(b []byte, list []int) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	last := 0
	for _, i := range list {
		b = binary.AppendUvarint(b, uint64(i-last))
		last = i
	}
	return b
}

// indexes reads a list of ascending indexes, which must be less than n.
func (r *reader) indexes(n int) []int {
	count := r.uvarint()
	if count > uint64(n) {
		r.fail("an answer requests %d of %d items", count, n)
		return nil
	}
	list := make([]int, 0, count)
	last := uint64(0)
	for range count {
		d := r.uvarint()
		last += d
		if d > uint64(n) || last >= uint64(n) || len(list) > 0 && d == 0 {
			r.fail("an answer requests the item with index %d of %d items", last, n)
			return nil
		}
		list = append(list, int(last))
	}
	return list
}
