// Package wire encodes and decodes the requests of nodes about counts, and their answers. It
// has no state, reads no clock and sends no message.
//
// For any input, a parser returns ErrMalformed, ErrUnknownOp or values in the ranges that the other packages
// compute with: durations can be added to any time of day, limits are as valid as the limit of
// a Limiter, and sources are known to this release. The owner and the asker rely on that and do
// not check values again.
//
// The bytes are a contract with other versions: the comment of cluster.Version has the rules for changes.
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

	// MaxAsks bounds the asks of an AllowAll.
	MaxAsks = 255
	// MaxHops is the maximum number of times that a request is passed on.
	MaxHops = 16
	// MaxTimeout is the maximum Timeout of a node, and the maximum wait in a Header.
	MaxTimeout = time.Minute
	// longestReset is twice the longest time in which a limit refills, because a debt is at
	// most the limit. The sum of longestReset and the time of day does not overflow.
	longestReset = 2 * 100 * 366 * 24 * time.Hour
)

// Flags of a request. The bits in PassBits count how often members without authority over the id
// have passed the request on.
const (
	PassBits    = 7
	FlagStandIn = 16 // the receiver stands in for the owner if it does not reach the owner either
	// FlagTentative marks a take that is refunded if another member denies its part, and the refund that
	// ends such a take. This refund has 0 units if the take is kept.
	FlagTentative = 32
	// FlagAbroad marks a request that began in another region. The member that passes the request
	// on sets the flag. Of the marked requests, only those that other regions may send are executed.
	FlagAbroad = 64
	// FlagTraced marks a request with a Trace after its asks.
	FlagTraced = 128
)

// MaxPasses is how often a check may be passed on while authority moves. A move takes as long as a few
// passes. After MaxPasses, a member answers from the counts that it holds.
const MaxPasses = 7

// Policy is a weir.PartitionPolicy on the wire, with the same numbers.
type Policy uint8

const (
	MajorityShare Policy = iota
	FairShare
	FailOpen
	FailClosed
)

// Source is a weir.Source on the wire, with the same numbers. 0 is not a source.
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

	Sources // the number of sources, plus one
)

// IsShare reports whether a decision was made within a share, or by the policy of the limit
// for partitions.
func (s Source) IsShare() bool { return s >= Budget && s <= FailedClosed }

// IsWithoutOwner reports whether a decision was made in place of the owner of the key.
func (s Source) IsWithoutOwner() bool { return s == StandIn || s.IsShare() }

// GlobalIDBit is set in the Hi of an id if the limit is Global, and clear otherwise. So an id shows whether
// other regions may change its count, and no region can present a Regional count as a Global count, because
// all IDs of Regional counts lack the bit. countsync.ElsewhereID preserves the bit.
const GlobalIDBit = 1 << 31

// IsGlobal reports whether an id belongs to a Global limit.
func IsGlobal(id bucket.ID) bool { return id.Hi&GlobalIDBit != 0 }

// Trace is a weir.TraceContext on the wire.
type Trace struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
}

// Status reports whether a request was executed.
type Status uint8

const (
	Done      Status = iota + 1
	Unreached        // the answering member did not execute the request; the member to which it passed the request on, if any, has not answered in time, or has answered Unreached
	Unknown          // the answering member runs an older release that does not know the op, and has not executed it
)

// Header begins a request.
type Header struct {
	Op    Op
	Flags uint8
	Hops  uint8         // number of times that the request may still be passed on
	Asks  uint8         // number of asks
	Wait  time.Duration // how long the asker states that it waits; in whole µs on the wire, at most MaxTimeout
	To    uint64        // the hash of the name of the destination member
}

// Append appends the encoded header to b.
func (h Header) Append(b []byte) []byte {
	b = append(b, byte(h.Op), h.Flags, h.Hops, h.Asks)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Wait/time.Microsecond))
	return binary.LittleEndian.AppendUint64(b, h.To)
}

var (
	ErrMalformed = errors.New("weir: malformed message")
	// ErrUnknownOp is the error of a header with an unknown op, and of a request that was answered
	// with Unknown.
	ErrUnknownOp = errors.New("weir: the node does not know this request: it runs an older release")
)

// Refusal returns the answer to a request for which ParseHeader has returned err.
func Refusal(err error) []byte {
	if errors.Is(err, ErrUnknownOp) {
		return AppendResponse(nil, Unknown, 0)
	}
	return nil
}

// ParseHeader parses the header of a request. It checks the length of the whole request, so that
// asks can be read without further checks of the length. The error is ErrMalformed or ErrUnknownOp.
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

// AppendIDs appends the id of each request that is a take with a single ask to ids, up to the
// capacity of ids.
func AppendIDs(requests [][]byte, ids []bucket.ID) []bucket.ID {
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

// Append appends the encoded trace to b.
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

// NumbersHash returns a hash of the numbers of a limit. It need not resist attacks: no client
// chooses the numbers.
func NumbersHash(l *bucket.Limit) uint64 {
	h := uint64(l.Algorithm)
	for _, x := range [...]uint64{uint64(l.Rate), uint64(l.Per), uint64(l.Burst), l.Version, uint64(l.Start)} {
		h = bits.RotateLeft64((h^x)*0x9e3779b97f4a7c15, 32)
	}
	if l.Keep != 0 { // so that a remembered denial of an ask with Keep denies no ask without Keep
		h = bits.RotateLeft64((h^uint64(l.Keep))*0x9e3779b97f4a7c15, 32)
	}
	return h
}

// Allowed reports whether every ask that is not a shadow was allowed.
func Allowed(asks []Ask, results []Result) bool {
	for i := range results {
		if !results[i].Allowed && !asks[i].Shadow {
			return false
		}
	}
	return true
}
