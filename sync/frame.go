package countsync

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-go/weir/bucket"
)

// A frame, little-endian; numbers without a width are unsigned varints:
//
//	header  version 1 | flags 1 | from 8 | to 8 | number 8
//	yours   move | ranges | for each: first 8, last 8 | doubt   if flagGives
//	items   until the end
//
// An item is its id 16 and a byte of flags with its kind, and then what the flags
// say: the reset number and the tombstone's age; tallies; the number of the frame
// that a piece of a log follows; a limit and a count. A limit is its index in the
// frame; with the first index that is free, its numbers follow.
//
//	tally   origin 8 | series 8 | spent | refunded | unrecovered | age
//	limit   index | algorithm 1 | rate | per | burst or start | version | whole
//
// where the start is a FixedWindow's, which has no burst, and either is doubled,
// +1 if below zero. What follows a holding's kind is in holdingcopy.go.
//
// An answer:
//
//	version 1 | flags 1 | number 8 | refused | items | whole | items
//
// with the items by index, each less the one before it.
const (
	frameVersion = 1
	headerBytes  = 26
	maxFrame     = 64 << 10
)

// Flags of a frame.
const (
	flagComplete = 1 << iota
	flagLeaving
	flagGives
	flagBegs   // send everything that I am a target of
	flagSettle // no items: say what became of the frame with this number, and let it never be applied if it was not
	flagLeft   // the sender has said goodbye: it has authority over nothing
	knownFlags = 1<<iota - 1
)

// Flags of an item, above the bits of its kind.
const (
	kindMask    = 3
	itemHeld    = 1 << (iota + 1) // the sender has authority
	itemReset                     // a reset number
	itemTallies                   // tallies
	itemLimit                     // the limit of the count, or of a spend
	itemMore                      // of a log: more pieces follow
	itemPiece                     // of a log: what came after an earlier piece
)

const (
	answerVersion = 1
	answerBytes   = 10
)

// Flags of an answer.
const (
	answerApplied = 1 << iota
	answerDoubts  // authority was not taken, as some of the counts came last from another: these are asked for
)

// maxTallies bounds the tallies of one id in a frame.
const maxTallies = 512

// maxGiven bounds the ranges in one frame.
const maxGiven = 256

// maxTotal bounds what a tally may say, so that no sum overflows.
const maxTotal = math.MaxInt64 / 4

var errFrame = errors.New("countsync: malformed frame")

// Sender is who sent a frame, and whether that has said goodbye; ok is false if it
// is none.
func Sender(frame []byte) (from Member, left, ok bool) {
	if len(frame) < headerBytes || frame[0] != frameVersion {
		return 0, false, false
	}
	return binary.LittleEndian.Uint64(frame[2:]), frame[1]&flagLeft != 0, true
}

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

const idBytes = 16

func appendID(b []byte, id bucket.ID) []byte {
	b = binary.LittleEndian.AppendUint64(b, id.Hi)
	return binary.LittleEndian.AppendUint64(b, id.Lo)
}

func appendTally(b []byte, t *tally, unrecovered, now int64) []byte {
	b = binary.LittleEndian.AppendUint64(b, t.origin)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.series))
	b = binary.AppendUvarint(b, uint64(t.spent))
	b = binary.AppendUvarint(b, uint64(t.refunded))
	b = binary.AppendUvarint(b, uint64(unrecovered))
	return binary.AppendUvarint(b, uint64(max(0, now-t.changed)))
}

// limits are those of one frame, by index.
type limits []bucket.Limit

// index is where l stands, and whether it is new. What is no limit has none.
func (ls *limits) index(l *bucket.Limit) (i int, isNew, ok bool) {
	const nearest = 64
	for i := len(*ls) - 1; i >= max(0, len(*ls)-nearest); i-- {
		if (*ls)[i] == *l {
			return i, false, true
		}
	}
	return len(*ls), true, sane(l) == nil
}

// append writes the index of l, and its numbers if they are new to the frame.
func (ls *limits) append(b []byte, l *bucket.Limit, i int, isNew bool) []byte {
	if !isNew {
		return binary.AppendUvarint(b, uint64(i))
	}
	b = binary.AppendUvarint(b, uint64(len(*ls)))
	*ls = append(*ls, *l)
	b = append(b, byte(l.Algorithm))
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

// read is the limit that comes next. Shares are limits too.
func (ls *limits) read(r *reader) (l bucket.Limit) {
	i := r.uvarint()
	if i < uint64(len(*ls)) {
		return (*ls)[i]
	}
	if i != uint64(len(*ls)) {
		r.fail("limit %d of %d", i, len(*ls))
		return l
	}
	l.Algorithm = bucket.Algorithm(r.byte())
	l.Rate = int64(r.uvarint())
	l.Per = time.Duration(r.uvarint())
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
		r.fail("limit: %w", err)
		return bucket.Limit{}
	}
	*ls = append(*ls, l)
	return l
}

// sane is Validate for what may be a share: of nothing, it has a Rate of 0 or a
// Burst below it.
func sane(l *bucket.Limit) error {
	whole := *l
	whole.Burst = max(0, whole.Burst)
	if whole.Rate == 0 {
		whole.Rate, whole.Burst = 1, 0
	}
	return whole.Validate()
}

// reader reads a frame or an answer. After the first error it reads zeros.
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
		r.fail("it ends early")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint64() uint64 {
	if len(r.b) < 8 {
		r.fail("it ends early")
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) uvarint() uint64 {
	v, k := binary.Uvarint(r.b)
	if k <= 0 {
		r.fail("it ends within a number")
		return 0
	}
	r.b = r.b[k:]
	return v
}

func (r *reader) varint() int64 {
	v, k := binary.Varint(r.b)
	if k <= 0 {
		r.fail("it ends within a number")
		return 0
	}
	r.b = r.b[k:]
	return v
}

// total is a number of units.
func (r *reader) total() int64 { return int64(min(r.uvarint(), maxTotal)) }

// age is a number of nanoseconds.
func (r *reader) age() int64 { return int64(min(r.uvarint(), maxTotal)) }

func (r *reader) id() bucket.ID { return bucket.ID{Hi: r.uint64(), Lo: r.uint64()} }

func (r *reader) ranges() (move uint64, ranges Ranges) {
	move = r.uvarint()
	n := r.uvarint()
	if n > uint64(len(r.b)/16) {
		r.fail("%d ranges", n)
		return 0, nil
	}
	list := make([]Range, n)
	for i := range list {
		list[i] = Range{r.uint64(), r.uint64()}
	}
	return move, NewRanges(list...)
}

func (r *reader) tallies(list []tally, now int64) []tally {
	n := r.uvarint()
	if n > maxTallies {
		r.fail("%d tallies", n)
	}
	for ; n > 0 && r.err == nil; n-- {
		t := tally{origin: r.uint64(), series: int64(r.uint64()), spent: r.total(), refunded: r.total()}
		t.unrecovered = min(r.total(), max(0, t.net()))
		t.changed = now - r.age()
		if t.origin == 0 || t.series < 0 {
			r.fail("a tally of origin %d, series %d", t.origin, t.series)
		}
		list = append(list, t)
	}
	return list
}

func appendAnswer(b []byte, number uint64, flags byte, refused, whole []int) []byte {
	b = append(b, answerVersion, flags)
	b = binary.LittleEndian.AppendUint64(b, number)
	b = appendIndexes(b, refused)
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

// indexes reads ascending indexes below n.
func (r *reader) indexes(n int) []int {
	count := r.uvarint()
	if count > uint64(n) {
		r.fail("%d of %d items", count, n)
		return nil
	}
	list := make([]int, 0, count)
	last := uint64(0)
	for range count {
		d := r.uvarint()
		last += d
		if d > uint64(n) || last >= uint64(n) || len(list) > 0 && d == 0 {
			r.fail("item %d of %d", last, n)
			return nil
		}
		list = append(list, int(last))
	}
	return list
}
