package weir

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/clamp"
)

// A check between nodes is fixed binary, little-endian: a header, then one
// record for each ask. Msgpack would cost more than the check itself.
//
//	header  op 1 | flags 1 | hops 1 | asks 1 | wait 4 (µs) | to 8
//	trace   trace id 16 | span id 8 | flags 1, after the asks of a check that is traced
//	ask     id 16 | version 8 | rate 8 | per 8 | burst or start 8 | units 8 | receipt 8 | reset number 8 | lease 10 | algorithm 1 | partition 1
//	answer  status 1 | asks 1
//	result  allowed 1 | source 1 | limit 8 | remaining 8 | retry 8 | reset 8 | receipt 8 | reset number 8 | lease 10
//	lease   units 4 | until 4 | term 2 (ms)
//
// The receipt of a take is when it was sent, by the asker's clock: nobody else reads it.
// A result that is not allowed may be firm, which is 2.
//
// A FixedWindow has no burst, but may have a start. The highest bit of partition
// says that an ask is a shadow. The next one says of what is refunded, as the highest
// bit of source does of a result, that it was granted without authority. That a limit
// is Global its ids say (globalIDBit).
const (
	headerBytes       = 16
	askBytes          = 84
	answerHeaderBytes = 2
	resultBytes       = 60
	traceBytes        = 25

	// maxAsks bounds the asks of one AllowAll.
	maxAsks = 255
	// maxHops bounds how often one check is handed on.
	maxHops = 16
	// longestReset is twice the longest time in which a limit refills, as a debt is no
	// more than the limit. Added to the time of day it does not overflow.
	longestReset = 2 * 100 * 366 * 24 * time.Hour

	shadowBit  = 1 << 7
	stoodInBit = 1 << 6

	sourceStoodInBit = 1 << 7
)

// op is what a check wants of a count.
type op uint8

const (
	opTake op = iota + 1
	opDebit
	opRefund
	opPeek
	opWait     // units are wanted of the queue, receipt is what waits (queued), and resetNumber the line's ticket; lease.units of the result were granted
	opLend     // wants leases alone: whatever its units are, it takes none
	opReturn   // gives back what is left of leases, units, and says what was spent of them
	opReset    // units is the reset's number
	opStream   // what follows is no asks, but when the sender's ring began (8 bytes), and a frame of the stream
	opPublish  // or what is published
	opCompare  // or a question about what is
	opExchange // or what regions say to each other
	opDeclare  // or the limits that the sender has
	opLocate   // or ranges, of which the sender asks who has authority over them
	opTop      // or nothing: the sender asks which keys are asked for most here
)

// Flags of a request. The lowest bits count how often a member that has no
// authority over the id has passed it on.
const (
	passBits     = 7
	flagOnlyLast = 8  // refund only if nothing was taken since
	flagStandIn  = 16 // answer in the owner's stead, if this member does not reach it either
	// flagTentative: a take that is given back if another member denies, and what
	// settles it: a refund, of no units if it is kept.
	flagTentative = 32
	// flagAbroad: it began in another region, as the member that hands it on says,
	// and is held to what that region may ask.
	flagAbroad = 64
	// flagTraced: of a take, debit, refund or peek: where in a trace it is follows.
	flagTraced = 128
)

// maxPasses is how often a check may be passed on while authority moves, which
// takes a few times as long as to pass it on; then it is answered from what is
// held.
const maxPasses = 7

// status says whether a request was carried out.
type status uint8

const (
	statusDone      status = iota + 1
	statusUnreached        // it was to be handed on, and could not be
)

// ask is one (limit, key) of a request.
type ask struct {
	id        bucket.ID
	limit     *bucket.Limit
	partition PartitionPolicy
	shadow    bool     // of several that are taken together: it has no say
	global    bool     // as its id says: judged by what this region has of the limit
	stoodIn   bool     // of a refund: what the receipt is of was granted without authority
	leases    bool     // its limit has leases; not on the wire
	of        *Limiter // whose it is, nil if another member's; not on the wire
	units     int64
	began     int64          // when its decision did, by Node.steady; not on the wire
	receipt   bucket.Receipt // of a take: when it was sent
	// resetNumber is that of the result that gave what is given back. 0 marks nothing.
	resetNumber uint64
	// lease is what is wanted on top of a take: units, for a term. Of what gives a
	// lease back it is that one, with the units that were spent of it.
	lease wireLease
}

// wireLease is a lease as it is asked for, granted and given back.
type wireLease struct {
	units uint32
	term  uint16 // in ms, as the asker counts it: from when it has sent the ask
	until uint32 // when the owner has it for over: a stamp of its own
}

func (l wireLease) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, l.units)
	b = binary.LittleEndian.AppendUint32(b, l.until)
	return binary.LittleEndian.AppendUint16(b, l.term)
}

func parseLease(b []byte) wireLease {
	term := clamp.Duration(binary.LittleEndian.Uint16(b[8:]), time.Millisecond, longestLease)
	return wireLease{units: binary.LittleEndian.Uint32(b), until: binary.LittleEndian.Uint32(b[4:]), term: uint16(term / time.Millisecond)}
}

// result is one ask's answer.
type result struct {
	bucket.Result
	source  Source
	stoodIn bool // whoever was asked has decided it itself, without authority
	firm    bool // a denial that stands until its RetryAfter, unless a caller gives something back
	lease   wireLease
	// resetNumber is that of the count's last reset that the answering member knew of, never
	// 0 (Node.resetNumber). A member that knows of a later one takes no lease, remembers no
	// denial and gives nothing back of the count that this result is of.
	resetNumber uint64
	ahead       int64 // units that wait, in spendAll; not on the wire
}

// taken is the ask that gives back what r says it took.
func (a ask) taken(r *result) ask {
	a.receipt, a.stoodIn, a.resetNumber = r.Receipt, r.stoodIn, r.resetNumber
	return a
}

// header begins a request.
type header struct {
	op    op
	flags uint8
	hops  uint8         // how often it may still be handed on
	asks  uint8         // how many follow
	wait  time.Duration // how long the asker waits, in whole µs on the wire, maxTimeout at most
	to    uint64        // whom it is for: the hash of the member's name
}

func (h header) append(b []byte) []byte {
	b = append(b, byte(h.op), h.flags, h.hops, h.asks)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.wait/time.Microsecond))
	return binary.LittleEndian.AppendUint64(b, h.to)
}

func (a *ask) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, a.id.Hi)
	b = binary.LittleEndian.AppendUint64(b, a.id.Lo)
	b = binary.LittleEndian.AppendUint64(b, a.limit.Version)
	b = binary.LittleEndian.AppendUint64(b, uint64(a.limit.Rate))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.limit.Per))
	capacity := a.limit.Burst
	if !a.limit.IsBucket() {
		capacity = a.limit.Start
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(capacity))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.units))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.receipt))
	b = binary.LittleEndian.AppendUint64(b, a.resetNumber)
	b = a.lease.append(b)
	partition := byte(a.partition)
	if a.shadow {
		partition |= shadowBit
	}
	if a.stoodIn {
		partition |= stoodInBit
	}
	return append(b, byte(a.limit.Algorithm), partition)
}

var errMalformed = errors.New("weir: malformed message")

// parseHeader checks the whole length, so that asks can be read without more ado.
func parseHeader(b []byte) (header, error) {
	if len(b) < headerBytes {
		return header{}, errMalformed
	}
	h := header{
		op: op(b[0]), flags: b[1], hops: b[2], asks: b[3],
		wait: clamp.Duration(binary.LittleEndian.Uint32(b[4:]), time.Microsecond, maxTimeout),
		to:   binary.LittleEndian.Uint64(b[8:]),
	}
	size := headerBytes + int(h.asks)*askBytes
	if h.flags&flagTraced != 0 {
		size += traceBytes
	}
	switch {
	case h.op < opTake || h.op > opTop || h.hops > maxHops,
		h.op > opWait && h.flags&flagTraced != 0,
		h.op >= opStream && h.asks != 0,
		h.op < opStream && (h.asks == 0 || len(b) != size):
		return header{}, errMalformed
	}
	return h, nil
}

// parseAsk reads ask i of a request that parseHeader has accepted, and its
// numbers into limit. What it returns is as sane as a Limiter would have made it.
func parseAsk(request []byte, i int, limit *bucket.Limit) (a ask, err error) {
	b := request[headerBytes+i*askBytes:]
	a.id.Hi = binary.LittleEndian.Uint64(b)
	a.id.Lo = binary.LittleEndian.Uint64(b[8:])
	a.limit = limit
	a.limit.Version = binary.LittleEndian.Uint64(b[16:])
	a.limit.Rate = int64(binary.LittleEndian.Uint64(b[24:]))
	a.limit.Per = time.Duration(binary.LittleEndian.Uint64(b[32:]))
	capacity := int64(binary.LittleEndian.Uint64(b[40:]))
	a.units = int64(binary.LittleEndian.Uint64(b[48:]))
	a.receipt = bucket.Receipt(binary.LittleEndian.Uint64(b[56:]))
	a.resetNumber = binary.LittleEndian.Uint64(b[64:])
	a.lease = parseLease(b[72:])
	a.limit.Algorithm = Algorithm(b[82])
	a.limit.Burst, a.limit.Start = capacity, 0
	if !a.limit.IsBucket() {
		a.limit.Burst, a.limit.Start = 0, capacity
	}
	a.partition = PartitionPolicy(b[83] &^ (shadowBit | stoodInBit))
	a.shadow = b[83]&shadowBit != 0
	a.global = isGlobal(a.id)
	a.stoodIn = b[83]&stoodInBit != 0
	if a.units < 0 || a.partition > FailClosed || a.limit.Validate() != nil {
		return ask{}, errMalformed
	}
	return a, nil
}

// idOf is the id of ask i of a request that parseHeader has accepted.
func idOf(request []byte, i int) bucket.ID {
	b := request[headerBytes+i*askBytes:]
	return bucket.ID{Hi: binary.LittleEndian.Uint64(b), Lo: binary.LittleEndian.Uint64(b[8:])}
}

// idsOf appends the ids of requests that ask for one take to ids, as many as it has
// room for.
func idsOf(requests [][]byte, ids []bucket.ID) []bucket.ID {
	for _, request := range requests {
		if len(request) >= headerBytes+askBytes && op(request[0]) == opTake && request[3] == 1 && len(ids) < cap(ids) {
			ids = append(ids, idOf(request, 0))
		}
	}
	return ids
}

// wantNoLease has ask i of such a request ask for no lease.
func wantNoLease(request []byte, i int) {
	clear(request[headerBytes+i*askBytes+72:][:10])
}

func (c TraceContext) append(b []byte) []byte {
	b = append(b, c.TraceID[:]...)
	b = append(b, c.SpanID[:]...)
	return append(b, c.Flags)
}

// traceOf is where in a trace a request of so many asks is, which parseHeader has
// accepted. Without flagTraced it is the zero TraceContext.
func traceOf(request []byte, asks int) (c TraceContext) {
	if request[1]&flagTraced == 0 {
		return c
	}
	b := request[headerBytes+asks*askBytes:]
	copy(c.TraceID[:], b)
	copy(c.SpanID[:], b[16:])
	c.Flags = b[24]
	return c
}

// receiptOf is the receipt of the first ask of a request that parseHeader has
// accepted, and whether it was given without authority.
func receiptOf(request []byte) (r bucket.Receipt, stoodIn bool) {
	b := request[headerBytes:]
	return bucket.Receipt(binary.LittleEndian.Uint64(b[56:])), b[83]&stoodInBit != 0
}

func appendAnswer(b []byte, s status, asks int) []byte { return append(b, byte(s), byte(asks)) }

func (r *result) append(b []byte) []byte {
	var allowed byte
	if r.Allowed {
		allowed = 1
	} else if r.firm {
		allowed = 2
	}
	source := byte(r.source)
	if r.stoodIn {
		source |= sourceStoodInBit
	}
	b = append(b, allowed, source)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Limit))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Remaining))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.RetryAfter))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.ResetAfter))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Receipt))
	b = binary.LittleEndian.AppendUint64(b, r.resetNumber)
	return r.lease.append(b)
}

// unmarkStoodIn corrects an answer that whoever was asked has got from another: it has
// granted nothing without authority itself.
func unmarkStoodIn(answer []byte) {
	for at := answerHeaderBytes; at+resultBytes <= len(answer); at += resultBytes {
		answer[at+1] &^= sourceStoodInBit
	}
}

// parseAnswer checks that an answer fits a request of so many asks, none for what
// is no check.
func parseAnswer(b []byte, asks int) (status, error) {
	if len(b) < answerHeaderBytes {
		return 0, errMalformed
	}
	s := status(b[0])
	switch {
	case s == statusUnreached && len(b) == answerHeaderBytes:
		return s, nil
	case s == statusDone && asks == 0 && b[1] == 0: // what answers it follows
		return s, nil
	case s == statusDone && asks > 0 && int(b[1]) == asks && len(b) == answerHeaderBytes+asks*resultBytes:
		return s, nil
	}
	return 0, errMalformed
}

// parseResult reads result i of an answer that parseAnswer has found done. A
// source that this release does not know is the owner's word all the same; what
// no count answers is brought into range, so that nobody waits for less than no
// time.
func parseResult(answer []byte, i int) (r result) {
	b := answer[answerHeaderBytes+i*resultBytes:]
	r.Allowed, r.firm = b[0] == 1, b[0] == 2
	r.stoodIn = b[1]&sourceStoodInBit != 0
	if r.source = Source(b[1] &^ sourceStoodInBit); r.source == 0 || r.source >= sources {
		r.source = Owner
	}
	r.Limit = max(0, int64(binary.LittleEndian.Uint64(b[2:])))
	r.Remaining = max(0, int64(binary.LittleEndian.Uint64(b[10:])))
	r.RetryAfter = clamp.Duration(int64(binary.LittleEndian.Uint64(b[18:])), 1, longestReset)
	r.ResetAfter = clamp.Duration(int64(binary.LittleEndian.Uint64(b[26:])), 1, longestReset)
	if !r.Allowed {
		r.RetryAfter = max(1, r.RetryAfter)
	}
	r.Receipt = bucket.Receipt(binary.LittleEndian.Uint64(b[34:]))
	r.resetNumber = binary.LittleEndian.Uint64(b[42:])
	r.lease = parseLease(b[50:])
	return r
}
