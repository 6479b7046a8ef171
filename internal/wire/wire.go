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
	"math"
	"math/bits"
	"time"

	"github.com/weir-go/weir/bucket"
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
// A refund or debit whose receipt has an age has that in the place of a lease: age 8 | ageMark 2.
// A dated ask for a client's hold has its date there.
// A result that is not allowed may be firm, which is 2.
//
// A FixedWindow has no burst, but may have a start. The highest bit of partition
// says that an ask is a shadow. The next one says of what is refunded, as the highest
// bit of source does of a result, that it was granted without authority. That a limit
// is Global its ids say (GlobalIDBit).
const (
	HeaderBytes       = 16
	AskBytes          = 84
	AnswerHeaderBytes = 2
	resultBytes       = 60
	TraceBytes        = 25

	// MaxAsks bounds the asks of one AllowAll.
	MaxAsks = 255
	// MaxHops bounds how often one check is handed on.
	MaxHops = 16
	// MaxTimeout bounds how long an asker waits.
	MaxTimeout = time.Minute
	// LongestLease bounds the term of a lease.
	LongestLease = 500 * time.Millisecond
	// longestReset is twice the longest time in which a limit refills, as a debt is no
	// more than the limit. Added to the time of day it does not overflow.
	longestReset = 2 * 100 * 366 * 24 * time.Hour

	shadowBit  = 1 << 7
	stoodInBit = 1 << 6

	sourceStoodInBit = 1 << 7

	// ageMark is the term of no lease.
	ageMark = math.MaxUint16
)

// Op is what a check wants of a count.
type Op uint8

const (
	OpTake Op = iota + 1
	OpDebit
	OpRefund
	OpPeek
	OpWait     // Units are wanted of the queue, receipt is what waits (queued), and resetNumber the line's ticket; lease.units of the result were granted
	OpLend     // wants leases alone: whatever its units are, it takes none
	OpReturn   // gives back what is left of leases, units, and says what was spent of them
	OpReset    // Units is the reset's number
	OpStream   // what follows is no asks, but when the sender's ring began (8 bytes), and a frame of the stream
	OpPublish  // or what is published
	OpCompare  // or a question about what is
	OpExchange // or what regions say to each other
	OpDeclare  // or the limits that the sender has
	OpLocate   // or ranges, of which the sender asks who has authority over them
	OpTop      // or nothing: the sender asks which keys are asked for most here
	OpTotals   // or nothing: the sender asks what was decided here
	OpHold     // wants units held: receipt is the hold's number, resetNumber its holder; the limit's Per is the term of a client's, 0 for a process's. Of the result receipt is the renewal
	OpRelease  // ends such a hold
	OpRenew    // what follows is no asks, but digests of the holds that the sender has here, or a list of them, or records of clients' holds
	OpHeld     // or ranges, of which the sender asks what is held
	OpExtend   // renews such a hold of a client, by the same fields. Of the result receipt is the renewal, and limit the units
	OpSince    // or nothing: the sender, which starts, asks since when this cluster counts
)

// Checks reports whether an op is carried out on a count by the member that answers for it.
func (o Op) Checks() bool { return o < OpReset || o.ofHold() }

// ofHold reports whether an op is of one hold.
func (o Op) ofHold() bool { return o == OpHold || o == OpRelease || o == OpExtend }

// GivesBack reports whether an op returns units, or ends a hold. Its sender does not try again.
func (o Op) GivesBack() bool { return o == OpRefund || o == OpReturn || o == OpRelease }

// hasAsks reports whether asks follow the header.
func (o Op) hasAsks() bool { return o < OpStream || o.ofHold() }

// Moves reports whether a member that does not answer for the count passes the op on.
func (o Op) Moves() bool { return o < OpLend || o.ofHold() }

// Flags of a request. The lowest bits count how often a member that has no
// authority over the id has passed it on.
const (
	PassBits     = 7
	FlagOnlyLast = 8  // refund only if nothing was taken since
	FlagStandIn  = 16 // answer in the owner's stead, if this member does not reach it either
	// FlagTentative: a take that is given back if another member denies, and what
	// ends that: a refund, of no units if it is kept. Of a hold: its asker waits in line. Of a
	// release: it leaves the line.
	// Of a peek at what is held: by the Rate that the count was last asked by.
	FlagTentative = 32
	// FlagAbroad: it began in another region, as the member that hands it on says,
	// and is held to what that region may ask.
	FlagAbroad = 64
	// FlagTraced: of a take, debit, refund or peek: where in a trace it is follows.
	FlagTraced = 128
)

// MaxPasses is how often a check may be passed on while authority moves, which
// takes a few times as long as to pass it on; then it is answered from what is
// held.
const MaxPasses = 7

// Traced is how spans call what a check does.
func (o Op) Traced() string {
	switch o {
	case OpTake:
		return "take"
	case OpDebit:
		return "debit"
	case OpRefund:
		return "refund"
	case OpWait:
		return "wait"
	}
	return "peek"
}

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

// GlobalIDBit of an id's Hi is set if its limit is Global. So an id says by itself
// whether other regions may have a say in its count, and no region can pass a
// Regional count off as a Global one: there is no Global limit that has its id.
// countsync.Elsewhere keeps it.
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

// Ask is one (limit, key) of a request.
type Ask struct {
	ID        bucket.ID
	Limit     *bucket.Limit
	Partition Policy
	Shadow    bool   // of several that are taken together: it has no say
	Global    bool   // as its id says: judged by what this region has of the limit
	StoodIn   bool   // of a refund: what the receipt is of was granted without authority
	Leases    bool   // its limit has leases; not on the wire
	Name      string // of the limit, empty if another member asks; not on the wire
	Units     int64
	Began     int64          // when its decision did, by the steady clock; not on the wire
	Receipt   bucket.Receipt // of a take: when it was sent; of a debit: with which units it is spent, 0 now
	// ReceiptAge is, of a refund or debit, how long ago the time of Receipt is, below zero if
	// it is to come, and 0 if that is not known. With it any member finds the units, not only
	// the one that gave the receipt. Such an ask has no Lease. Of a client's hold or its renewal
	// it is the age of the cluster at which it was asked for, and 0 if the asker does not know it.
	ReceiptAge time.Duration
	// ResetNumber is that of the result that gave what is given back. 0 marks nothing.
	ResetNumber uint64
	// Lease is what is wanted on top of a take: units, for a term. Of what gives a
	// lease back it is that one, with the units that were spent of it.
	Lease Lease
}

// Lease is a lease as it is asked for, granted and given back.
type Lease struct {
	Units uint32
	Term  uint16 // in ms, as the asker counts it: from when it has sent the ask
	Until uint32 // when the owner has it for over: a stamp of its own
}

func (l Lease) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, l.Units)
	b = binary.LittleEndian.AppendUint32(b, l.Until)
	return binary.LittleEndian.AppendUint16(b, l.Term)
}

func ParseLease(b []byte) Lease {
	term := clampDuration(binary.LittleEndian.Uint16(b[8:]), time.Millisecond, LongestLease)
	return Lease{Units: binary.LittleEndian.Uint32(b), Until: binary.LittleEndian.Uint32(b[4:]), Term: uint16(term / time.Millisecond)}
}

// Result is one ask's answer.
type Result struct {
	bucket.Result
	Source  Source
	StoodIn bool // the member that was asked has decided it itself, without authority
	Firm    bool // a denial that stands until its RetryAfter, unless a caller gives something back
	Lease   Lease
	// ResetNumber is that of the count's last reset that the answering member knew of, never
	// 0 (Owner.ResetNumber). A member that knows of a later one takes no lease, remembers no
	// denial and gives nothing back of the count that this result is of.
	ResetNumber uint64
	Ahead       int64 // Units that wait, in Owner.TakeAll; not on the wire
}

// Taken is the ask that gives back what r says it took.
func (a Ask) Taken(r *Result) Ask {
	a.Receipt, a.ReceiptAge, a.StoodIn, a.ResetNumber = r.Receipt, 0, r.StoodIn, r.ResetNumber
	return a
}

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

func (a *Ask) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, a.ID.Hi)
	b = binary.LittleEndian.AppendUint64(b, a.ID.Lo)
	b = binary.LittleEndian.AppendUint64(b, a.Limit.Version)
	b = binary.LittleEndian.AppendUint64(b, uint64(a.Limit.Rate))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.Limit.Per))
	capacity := a.Limit.Burst
	if !a.Limit.IsBucket() {
		capacity = a.Limit.Start
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(capacity))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.Units))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.Receipt))
	b = binary.LittleEndian.AppendUint64(b, a.ResetNumber)
	if a.ReceiptAge != 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(a.ReceiptAge))
		b = binary.LittleEndian.AppendUint16(b, ageMark)
	} else {
		b = a.Lease.Append(b)
	}
	partition := byte(a.Partition)
	if a.Shadow {
		partition |= shadowBit
	}
	if a.StoodIn {
		partition |= stoodInBit
	}
	return append(b, a.Limit.Code(), partition)
}

var (
	ErrMalformed = errors.New("weir: malformed message")
	// ErrUnknownOp is also the error of an asker whose request was answered with Unknown.
	ErrUnknownOp = errors.New("weir: the node does not know this request: it runs an older release")
)

// Refusal returns the answer to a request that ParseHeader has not accepted.
func Refusal(err error) []byte {
	if errors.Is(err, ErrUnknownOp) {
		return AppendAnswer(nil, Unknown, 0)
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
	size := HeaderBytes + int(h.Asks)*AskBytes
	if h.Flags&FlagTraced != 0 {
		size += TraceBytes
	}
	switch {
	case h.Op > OpSince:
		return Header{}, ErrUnknownOp
	case h.Op < OpTake || h.Hops > MaxHops,
		h.Op > OpWait && h.Flags&FlagTraced != 0,
		h.Op.ofHold() && h.Asks != 1,
		!h.Op.hasAsks() && h.Asks != 0,
		h.Op.hasAsks() && (h.Asks == 0 || len(b) != size):
		return Header{}, ErrMalformed
	}
	return h, nil
}

// ParseAsk reads ask i of a request that ParseHeader has accepted, and its
// numbers into limit. What it returns is as sane as a Limiter would have made it.
func ParseAsk(request []byte, i int, limit *bucket.Limit) (a Ask, err error) {
	b := request[HeaderBytes+i*AskBytes:]
	a.ID.Hi = binary.LittleEndian.Uint64(b)
	a.ID.Lo = binary.LittleEndian.Uint64(b[8:])
	a.Limit = limit
	a.Limit.Version = binary.LittleEndian.Uint64(b[16:])
	a.Limit.Rate = int64(binary.LittleEndian.Uint64(b[24:]))
	a.Limit.Per = time.Duration(binary.LittleEndian.Uint64(b[32:]))
	capacity := int64(binary.LittleEndian.Uint64(b[40:]))
	a.Units = int64(binary.LittleEndian.Uint64(b[48:]))
	a.Receipt = bucket.Receipt(binary.LittleEndian.Uint64(b[56:]))
	a.ResetNumber = binary.LittleEndian.Uint64(b[64:])
	if hasAge(request, i) {
		a.ReceiptAge = min(max(time.Duration(binary.LittleEndian.Uint64(b[72:])), -longestReset), longestReset)
	} else {
		a.Lease = ParseLease(b[72:])
	}
	a.Limit.SetCode(b[82])
	a.Limit.Burst, a.Limit.Start = capacity, 0
	if !a.Limit.IsBucket() {
		a.Limit.Burst, a.Limit.Start = 0, capacity
	}
	a.Partition = Policy(b[83] &^ (shadowBit | stoodInBit))
	a.Shadow = b[83]&shadowBit != 0
	a.Global = IsGlobal(a.ID)
	a.StoodIn = b[83]&stoodInBit != 0
	op := Op(request[0])
	holds := op.ofHold() || op == OpPeek && a.Limit.Algorithm == bucket.InFlight
	if a.Units < 0 || a.Partition > FailClosed || a.Limit.Validate() != nil || holds != (a.Limit.Algorithm == bucket.InFlight) {
		return Ask{}, ErrMalformed
	}
	return a, nil
}

// OfHolds reports whether a request that ParseHeader has accepted is of a hold: of one ask,
// for a limit that is InFlight.
func OfHolds(h Header, request []byte) bool {
	return h.Op.ofHold() || h.Op == OpPeek && h.Asks == 1 && bucket.Algorithm(request[HeaderBytes+82]) == bucket.InFlight
}

// hasAge reports whether ask i of such a request has a ReceiptAge.
func hasAge(request []byte, i int) bool {
	op := Op(request[0])
	return (op == OpRefund || op == OpDebit || op == OpHold || op == OpExtend) && binary.LittleEndian.Uint16(request[HeaderBytes+i*AskBytes+80:]) == ageMark
}

// IDOf is the id of ask i of a request that ParseHeader has accepted.
func IDOf(request []byte, i int) bucket.ID {
	b := request[HeaderBytes+i*AskBytes:]
	return bucket.ID{Hi: binary.LittleEndian.Uint64(b), Lo: binary.LittleEndian.Uint64(b[8:])}
}

// IDsOf appends the ids of requests that ask for one take to ids, as many as it has
// room for.
func IDsOf(requests [][]byte, ids []bucket.ID) []bucket.ID {
	for _, request := range requests {
		if len(request) >= HeaderBytes+AskBytes && Op(request[0]) == OpTake && request[3] == 1 && len(ids) < cap(ids) {
			ids = append(ids, IDOf(request, 0))
		}
	}
	return ids
}

// WantNoLease makes ask i of such a request ask for no lease.
func WantNoLease(request []byte, i int) {
	if !hasAge(request, i) {
		clear(request[HeaderBytes+i*AskBytes+72:][:10])
	}
}

func (c Trace) Append(b []byte) []byte {
	b = append(b, c.TraceID[:]...)
	b = append(b, c.SpanID[:]...)
	return append(b, c.Flags)
}

// TraceOf is where in a trace a request of so many asks is, which ParseHeader has
// accepted. Without FlagTraced it is the zero trace.
func TraceOf(request []byte, asks int) (c Trace) {
	if request[1]&FlagTraced == 0 {
		return c
	}
	b := request[HeaderBytes+asks*AskBytes:]
	copy(c.TraceID[:], b)
	copy(c.SpanID[:], b[16:])
	c.Flags = b[24]
	return c
}

// ReceiptOf is the receipt of the first ask of a request that ParseHeader has
// accepted, if it means nothing but where it was given, and whether that was without
// authority.
func ReceiptOf(request []byte) (r bucket.Receipt, stoodIn bool) {
	b := request[HeaderBytes:]
	if hasAge(request, 0) {
		return 0, false
	}
	return bucket.Receipt(binary.LittleEndian.Uint64(b[56:])), b[83]&stoodInBit != 0
}

func AppendAnswer(b []byte, s Status, asks int) []byte { return append(b, byte(s), byte(asks)) }

func (r *Result) Append(b []byte) []byte {
	var allowed byte
	if r.Allowed {
		allowed = 1
	} else if r.Firm {
		allowed = 2
	}
	source := byte(r.Source)
	if r.StoodIn {
		source |= sourceStoodInBit
	}
	b = append(b, allowed, source)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Limit))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Remaining))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.RetryAfter))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.ResetAfter))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Receipt))
	b = binary.LittleEndian.AppendUint64(b, r.ResetNumber)
	return r.Lease.Append(b)
}

// UnmarkStoodIn corrects an answer that whoever was asked has got from another: it has
// granted nothing without authority itself.
func UnmarkStoodIn(answer []byte) {
	for at := AnswerHeaderBytes; at+resultBytes <= len(answer); at += resultBytes {
		answer[at+1] &^= sourceStoodInBit
	}
}

// ParseAnswer checks that an answer fits a request of so many asks, none for what
// is no check.
func ParseAnswer(b []byte, asks int) (Status, error) {
	if len(b) < AnswerHeaderBytes {
		return 0, ErrMalformed
	}
	s := Status(b[0])
	switch {
	case s == Unreached && len(b) == AnswerHeaderBytes:
		return s, nil
	case s == Done && asks == 0 && b[1] == 0: // what answers it follows
		return s, nil
	case s == Done && asks > 0 && int(b[1]) == asks && len(b) == AnswerHeaderBytes+asks*resultBytes:
		return s, nil
	case s == Unknown && len(b) == AnswerHeaderBytes:
		return s, ErrUnknownOp
	}
	return 0, ErrMalformed
}

// ParseResult reads result i of an answer that ParseAnswer has found done. A
// source that this release does not know is the owner's word all the same; what
// no count answers is brought into range, so that nobody waits for less than no
// time.
func ParseResult(answer []byte, i int) (r Result) {
	b := answer[AnswerHeaderBytes+i*resultBytes:]
	r.Allowed, r.Firm = b[0] == 1, b[0] == 2
	r.StoodIn = b[1]&sourceStoodInBit != 0
	if r.Source = Source(b[1] &^ sourceStoodInBit); r.Source == 0 || r.Source >= Sources {
		r.Source = Owner
	}
	r.Limit = max(0, int64(binary.LittleEndian.Uint64(b[2:])))
	r.Remaining = max(0, int64(binary.LittleEndian.Uint64(b[10:])))
	r.RetryAfter = clampDuration(int64(binary.LittleEndian.Uint64(b[18:])), 1, longestReset)
	r.ResetAfter = clampDuration(int64(binary.LittleEndian.Uint64(b[26:])), 1, longestReset)
	if !r.Allowed {
		r.RetryAfter = max(1, r.RetryAfter)
	}
	r.Receipt = bucket.Receipt(binary.LittleEndian.Uint64(b[34:]))
	r.ResetNumber = binary.LittleEndian.Uint64(b[42:])
	r.Lease = ParseLease(b[50:])
	return r
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
