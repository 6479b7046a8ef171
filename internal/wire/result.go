package wire

import (
	"encoding/binary"
	"time"

	"github.com/weir-go/weir/bucket"
)

// A result on the wire is an outcome and the parts of its operation, in this order:
//
//	outcome  allowed 1 | source 1 | limit 8 | remaining 8 | retry or age 8 | reset 8
//	receipt  receipt 8, or the time of a denied take or loan | reset number 8
//	lease    units 4 | until 4 | term 2 (ms)
//	granted  units 4
//	renewal  number 8
//	units    units 8
//
// The byte allowed is 1 if the result is allowed, 2 if it is a firm denial, 3 if the key is banned, 4 if a take
// with AtMost was granted a part of its units, and 5 if the key is paused. With 4, no unit remains, so the granted
// part is in the place of Remaining. An allowed result has its Age in the place of RetryAfter, which is 0. The
// highest bit of source is set if the deciding member had no authority.
const (
	outcomeBytes = 34
	leaseBytes   = 10

	sourceStoodInBit = 1 << 7
)

// Lease is a granted lease. The zero Lease stands for no lease.
type Lease struct {
	Units uint32
	Term  uint16 // time for which the asker may spend the units, in ms from the time at which it sent the ask
	Until uint32 // the end of the lease by the owner's clock, in a unit of the owner: the asker only sends the value back
}

// Result is the answer to an ask. The operation determines which of Receipt and the fields from
// Lease on are sent.
type Result struct {
	bucket.Result
	Source  Source
	StoodIn bool // the answering member decided without authority
	// Firm reports that the denial holds until its RetryAfter, unless units are returned, the count is
	// reset, or a limit with a higher Version judges it. For OpExtend it reports that the hold has ended.
	Firm   bool
	Banned bool // the denial of a banned or paused key; it is Firm, and before RetryAfter only a reset ends it
	Paused bool // the key is paused; only with Banned
	Lease  Lease
	// ResetNumber is the number of the last reset of the count that the answering member knew of
	// (Owner.ResetNumber), which is never 0. The field is 0 in a decision of this node itself, and in
	// the results of other operations than takes, debits, waits, loans, strikes and pauses. A member
	// that knows of a later reset uses neither the lease nor the denial of this result, and refunds
	// none of its units.
	ResetNumber uint64
	// At is the time of the decision by the clock of the deciding node, or 0 if the time is unknown, as in the
	// response to an operation other than a take or a loan. Only Observers use At.
	At int64
	// Age is the time from the Receipt of an allowed take to the decision, both by the clock of the
	// deciding node. It is 0 or negative if the Receipt is for the present or the future, and undefined for a denial.
	Age time.Duration
	// Granted is the number of granted units for OpWait, and for an OpTake with AtMost that was granted a
	// part of its units. For OpStrike it is 1 if the denial began a ban.
	Granted int64
	Renewal uint64 // for OpHold and OpExtend: number of the renewal of a client's hold
	Held    int64  // for OpExtend: number of units of the hold
	Ahead   int64  // units that wait before this ask, in Owner.TakeAll; not on the wire
	// Unknown reports that the deciding node does not know all holds of the count yet, so that the
	// result may change once the node knows them; not on the wire.
	Unknown bool
}

// hasTime reports whether results of op have the time of the decision.
func hasTime(op Op) bool { return op == OpTake || op == OpLend }

// AppendResponse appends the header of an answer.
func AppendResponse(b []byte, s Status, asks int) []byte { return append(b, byte(s), byte(asks)) }

// Append appends r as the result of an ask of op.
func (r *Result) Append(op Op, b []byte) []byte {
	var allowed byte
	remaining := r.Remaining
	switch {
	case r.Allowed && op == OpTake && r.Granted > 0:
		allowed, remaining = 4, r.Granted
	case r.Allowed:
		allowed = 1
	case r.Paused:
		allowed = 5
	case r.Banned:
		allowed = 3
	case r.Firm:
		allowed = 2
	}
	source := byte(r.Source)
	if r.StoodIn {
		source |= sourceStoodInBit
	}
	b = append(b, allowed, source)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Limit))
	b = binary.LittleEndian.AppendUint64(b, uint64(remaining))
	wait := r.RetryAfter
	if r.Allowed {
		wait = r.Age
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(wait))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.ResetAfter))
	p := op.properties().result
	if p&receiptPart != 0 {
		receipt := uint64(r.Receipt)
		if hasTime(op) && !r.Allowed {
			receipt = uint64(r.At)
		}
		b = binary.LittleEndian.AppendUint64(b, receipt)
		b = binary.LittleEndian.AppendUint64(b, r.ResetNumber)
	}
	if p&leasePart != 0 {
		b = binary.LittleEndian.AppendUint32(b, r.Lease.Units)
		b = binary.LittleEndian.AppendUint32(b, r.Lease.Until)
		b = binary.LittleEndian.AppendUint16(b, r.Lease.Term)
	}
	if p&grantedPart != 0 {
		b = binary.LittleEndian.AppendUint32(b, uint32(r.Granted))
	}
	if p&renewalPart != 0 {
		b = binary.LittleEndian.AppendUint64(b, r.Renewal)
	}
	if p&unitsPart != 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Held))
	}
	return b
}

// UnmarkStoodIn clears StoodIn in all results of an answer. A member that has passed on a request
// calls UnmarkStoodIn before it returns the answer, unless the request was for the member that has
// answered.
func UnmarkStoodIn(op Op, answer []byte) {
	stride := op.properties().resultBytes
	for at := ResponseHeaderBytes; stride > 0 && at+stride <= len(answer); at += stride {
		answer[at+1] &^= sourceStoodInBit
	}
}

// ParseResponse checks that an answer fits a request of op with the given number of asks, and
// returns its status. asks is 0 for a request with a body of its own. The error is ErrMalformed, or
// ErrUnknownOp with the status Unknown.
func ParseResponse(b []byte, op Op, asks int) (Status, error) {
	if len(b) < ResponseHeaderBytes {
		return 0, ErrMalformed
	}
	s := Status(b[0])
	switch {
	case s == Unreached && len(b) == ResponseHeaderBytes:
		return s, nil
	case s == Done && asks == 0 && b[1] == 0: // the body follows
		return s, nil
	case s == Done && asks > 0 && int(b[1]) == asks && len(b) == ResponseHeaderBytes+asks*op.properties().resultBytes:
		return s, nil
	case s == Unknown && len(b) == ResponseHeaderBytes:
		return s, ErrUnknownOp
	}
	return 0, ErrMalformed
}

// ParseResult parses result i of an answer to a request of op for which ParseResponse has returned Done.
// An unknown source counts as Owner. Values that no count returns are clamped, so that no caller waits
// for a negative time.
func ParseResult(answer []byte, op Op, i int) (r Result) {
	p := op.properties()
	b := answer[ResponseHeaderBytes+i*p.resultBytes:]
	r.Allowed, r.Paused = b[0] == 1 || b[0] == 4, b[0] == 5
	r.Banned = r.Paused || b[0] == 3
	r.Firm = r.Banned || b[0] == 2
	r.StoodIn = b[1]&sourceStoodInBit != 0
	if r.Source = Source(b[1] &^ sourceStoodInBit); r.Source == 0 || r.Source >= Sources {
		r.Source = Owner
	}
	r.Limit = max(0, int64(binary.LittleEndian.Uint64(b[2:])))
	r.Remaining = max(0, int64(binary.LittleEndian.Uint64(b[10:])))
	if b[0] == 4 {
		r.Granted, r.Remaining = r.Remaining, 0
	}
	sent := int64(binary.LittleEndian.Uint64(b[18:]))
	wait := clampDuration(sent, 1, longestReset)
	r.ResetAfter = clampDuration(int64(binary.LittleEndian.Uint64(b[26:])), 1, longestReset)
	if r.Allowed {
		r.Age = wait
	} else {
		r.RetryAfter = max(1, wait)
	}
	b = b[outcomeBytes:]
	if p.result&receiptPart != 0 {
		r.Receipt = bucket.Receipt(binary.LittleEndian.Uint64(b))
		r.ResetNumber = binary.LittleEndian.Uint64(b[8:])
		switch {
		case !hasTime(op):
		case r.Allowed:
			r.At = int64(r.Receipt) + sent // a bucket has its Receipt in the future, and a negative Age
		default:
			r.At, r.Receipt = int64(r.Receipt), 0
		}
		b = b[16:]
	}
	if p.result&leasePart != 0 {
		r.Lease = Lease{Units: binary.LittleEndian.Uint32(b), Until: binary.LittleEndian.Uint32(b[4:]), Term: parseTerm(b[8:])}
		b = b[leaseBytes:]
	}
	if p.result&grantedPart != 0 {
		r.Granted = int64(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	if p.result&renewalPart != 0 {
		r.Renewal = binary.LittleEndian.Uint64(b)
		b = b[8:]
	}
	if p.result&unitsPart != 0 {
		r.Held = max(0, int64(binary.LittleEndian.Uint64(b)))
	}
	return r
}
