// Package wire has the formats of what nodes ask each other about counts: how a request
// and its answer are written, and how they are read back. It has no state, reads no clock
// and sends nothing.
//
// Whatever a peer sends, a parser returns values in the ranges that the rest of Weir
// computes with, or ErrMalformed: durations can be added to any time of day, limits are as
// valid as a Limiter's, and a source is one that this release knows. The owner and the
// asker rely on that and check nothing again.
//
// The bytes are a contract with other versions: CONTRIBUTING.md says what a change
// has to observe.
package wire

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"time"

	"github.com/weir-go/weir/bucket"
)

// A request is fixed binary, little-endian: a header, then one record for each ask. Msgpack would
// cost more than the check itself.
//
//	header  op 1 | flags 1 | hops 1 | asks 1 | wait 4 (µs) | to 8
//	trace   trace id 16 | span id 8 | flags 1, after the asks of a check that is traced
//	answer  status 1 | asks 1, then one result for each ask
//
// The records of asks and results are in ask.go and result.go.
const (
	HeaderBytes         = 16
	ResponseHeaderBytes = 2
	TraceBytes          = 25

	// MaxAsks bounds the asks of one AllowAll.
	MaxAsks = 255
	// MaxHops bounds how often one check is handed on.
	MaxHops = 16
	// MaxTimeout bounds how long an asker waits.
	MaxTimeout = time.Minute
	// longestReset is twice the longest time in which a limit refills, as a debt is no
	// more than the limit. Added to the time of day it does not overflow.
	longestReset = 2 * 100 * 366 * 24 * time.Hour
)

// Flags of a request. The lowest bits count how often a member that has no
// authority over the id has passed it on.
const (
	PassBits    = 7
	FlagStandIn = 16 // answer in the owner's stead, if this member does not reach it either
	// FlagTentative: a take that is given back if another member denies, and the refund that ends
	// it, of no units if the take is kept.
	FlagTentative = 32
	// FlagAbroad: it began in another region, as the member that hands it on says,
	// and is held to what that region may ask.
	FlagAbroad = 64
	// FlagTraced: a Trace follows the asks.
	FlagTraced = 128
)

// MaxPasses is how often a check may be passed on while authority moves, which
// takes a few times as long as to pass it on; then it is answered from what is
// held.
const MaxPasses = 7

// Policy is a weir.PartitionPolicy as it travels, with the same numbers.
type Policy uint8

const (
	MajorityShare Policy = iota
	FairShare
	FailOpen
	FailClosed
)

// Source is a weir.Source as it travels, with the same numbers. 0 is none.
type Source uint8

const (
	Owner Source = iota + 1
	Forwarded
	Relayed
	StandIn
	Budget
	FailedOpen
	FailedClosed
	Pushback
	Leased

	Sources // how many there are, and one
)

// IsShare reports whether a decision was made within a share, or as the limit's
// policy says.
func (s Source) IsShare() bool { return s >= Budget && s <= FailedClosed }

// IsWithoutOwner reports whether a decision was made without the owner of the key, in its stead.
func (s Source) IsWithoutOwner() bool { return s == StandIn || s.IsShare() }

// GlobalIDBit of an id's Hi is set if its limit is Global. So an id says by itself
// whether other regions may have a say in its count, and no region can pass a
// Regional count off as a Global one: there is no Global limit that has its id.
// countsync.ElsewhereID keeps it.
const GlobalIDBit = 1 << 31

// IsGlobal reports whether an id is of a Global limit.
func IsGlobal(id bucket.ID) bool { return id.Hi&GlobalIDBit != 0 }

// Trace is a weir.TraceContext as it travels.
type Trace struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
}

// Status reports whether a request was carried out.
type Status uint8

const (
	Done      Status = iota + 1
	Unreached        // it was to be handed on, and could not be
	Unknown          // a node of an older release does not know the op, and did nothing
)

// Header begins a request.
type Header struct {
	Op    Op
	Flags uint8
	Hops  uint8         // how often it may still be handed on
	Asks  uint8         // how many follow
	Wait  time.Duration // how long the asker waits, in whole µs on the wire, MaxTimeout at most
	To    uint64        // whom it is for: the hash of the member's name
}

func (h Header) Append(b []byte) []byte {
	b = append(b, byte(h.Op), h.Flags, h.Hops, h.Asks)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Wait/time.Microsecond))
	return binary.LittleEndian.AppendUint64(b, h.To)
}

var (
	ErrMalformed = errors.New("weir: malformed message")
	// ErrUnknownOp is also the error of an asker whose request was answered with Unknown.
	ErrUnknownOp = errors.New("weir: the node does not know this request: it runs an older release")
)

// Refusal returns the answer to a request that ParseHeader has not accepted.
func Refusal(err error) []byte {
	if errors.Is(err, ErrUnknownOp) {
		return AppendResponse(nil, Unknown, 0)
	}
	return nil
}

// ParseHeader checks the whole length, so that asks can be read without more ado.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderBytes {
		return Header{}, ErrMalformed
	}
	h := Header{
		Op: Op(b[0]), Flags: b[1], Hops: b[2], Asks: b[3],
		Wait: clampDuration(binary.LittleEndian.Uint32(b[4:]), time.Microsecond, MaxTimeout),
		To:   binary.LittleEndian.Uint64(b[8:]),
	}
	if h.Op > lastOp {
		return Header{}, ErrUnknownOp
	}
	p := h.Op.properties()
	size := HeaderBytes + int(h.Asks)*p.askBytes
	if h.Flags&FlagTraced != 0 {
		size += TraceBytes
	}
	switch {
	case h.Op < OpTake || h.Hops > MaxHops,
		p.name == "" && h.Flags&FlagTraced != 0,
		p.ofHold && h.Asks != 1,
		p.askBytes == 0 && h.Asks != 0,
		p.askBytes != 0 && (h.Asks == 0 || len(b) != size):
		return Header{}, ErrMalformed
	}
	return h, nil
}

// IDsOf appends the ids of requests that ask for one take to ids, as many as it has
// room for.
func IDsOf(requests [][]byte, ids []bucket.ID) []bucket.ID {
	for _, request := range requests {
		if len(request) >= HeaderBytes+subjectBytes && Op(request[0]) == OpTake && request[3] == 1 && len(ids) < cap(ids) {
			ids = append(ids, IDOf(request, 0))
		}
	}
	return ids
}

// IsSampled reports whether c names a trace and a span, and the trace is sampled.
func (c Trace) IsSampled() bool {
	return c.TraceID != [16]byte{} && c.SpanID != [8]byte{} && c.Flags&1 != 0
}

func (c Trace) Append(b []byte) []byte {
	b = append(b, c.TraceID[:]...)
	b = append(b, c.SpanID[:]...)
	return append(b, c.Flags)
}

// TraceOf returns the trace of a request that ParseHeader has accepted. Without FlagTraced it is the
// zero Trace.
func TraceOf(request []byte) (c Trace) {
	if request[1]&FlagTraced == 0 {
		return c
	}
	b := request[len(request)-TraceBytes:]
	copy(c.TraceID[:], b)
	copy(c.SpanID[:], b[16:])
	c.Flags = b[24]
	return c
}

// NumbersHash stands for the numbers of a limit. Nobody chooses them to collide.
func NumbersHash(l *bucket.Limit) uint64 {
	h := uint64(l.Algorithm)
	for _, x := range [...]uint64{uint64(l.Rate), uint64(l.Per), uint64(l.Burst), l.Version, uint64(l.Start)} {
		h = bits.RotateLeft64((h^x)*0x9e3779b97f4a7c15, 32)
	}
	return h
}

// Allowed reports whether nothing that is enforced was denied.
func Allowed(asks []Ask, results []Result) bool {
	for i := range results {
		if !results[i].Allowed && !asks[i].Shadow {
			return false
		}
	}
	return true
}
