package wire

import (
	"encoding/binary"
	"time"

	"github.com/weir-go/weir/bucket"
)

// An ask on the wire is a subject and the parts of its operation, in this order:
//
//	subject  id 16 | version 8 | rate 8 | per 8 | burst or start 8 | algorithm 1 | partition 1 | units 8 | keep 8
//	take     sent 8 | units 4 | term 2 (ms)
//	spent    receipt 8 | age 8 | reset number 8 | marks 1
//	lent     units 4 | until 4
//	peek     marks 1
//	wait     ticket 8 | waiting 4 | age 4
//	hold     holder 8 | number 8 | ttl 8 | cluster age 8 | marks 1
//	reset    number 8
//	ban      length in seconds 4, for each of BanSteps
//
// Buckets have a burst, and other limits may have a start. The highest bit of partition marks a
// shadow, the next bit a limit with bans, the third an ask with AtMost, and the fourth a limit with
// pauses. The ID shows whether the limit is Global (GlobalIDBit).
const (
	subjectBytes  = 66
	algorithmByte = 48

	shadowBit = 1 << 7
	bansBit   = 1 << 6
	atMostBit = 1 << 5
	pausesBit = 1 << 4

	stoodInMark  = 1 << 0 // mark of the part spent
	onlyLastMark = 1 << 1
	latestMark   = 1 << 0 // mark of the part peek
	waitsMark    = 1 << 0 // mark of the part hold
	deniedMark   = 1 << 1
	shrinksMark  = 1 << 2
	readsMark    = 1 << 3
)

// LongestLease bounds the term of a lease.
const LongestLease = 500 * time.Millisecond

// LongestTTL is the longest time from the renewal of a client's hold to its end.
const LongestTTL = time.Hour

// BanSteps is the maximum number of ban lengths of a limit.
const BanSteps = 4

// LongestBan is the longest time for which a key is banned.
const LongestBan = 366 * 24 * time.Hour

// LongestPause is the longest time for which a key is paused.
const LongestPause = 24 * time.Hour

// Ban has the lengths of the first ban of a key and of the bans that follow, in whole seconds. The last length
// that is not 0 applies to all further bans.
type Ban [BanSteps]time.Duration

// Ask is a request for units of one key of a limit. All operations use the fields up to Began. The
// operation determines which of the parts below are sent. ParseAsk leaves the other parts zero.
//
// With a struct for each operation, a refund took 145 ns to write and read instead of 65, and an owned
// check 192 ns instead of 157. With a table of functions, the Ask would escape to the heap.
type Ask struct {
	ID        bucket.ID
	Limit     *bucket.Limit
	Partition Policy
	Shadow    bool   // a denial of this ask does not deny the other asks of the request
	Global    bool   // the ID is of a Global limit (IsGlobal), so that this region decides by its part of the limit
	BansKeys  bool   // the limit has bans: the deciding member denies a take, a peek or a wait of a banned key
	Pauses    bool   // the limit has pauses: the same for a paused key
	AtMost    bool   // for a request of OpTake with one ask: spend as many of the units as there is room for
	Leases    bool   // the limit has leases; not on the wire
	Name      string // name of the limit, empty if another member asks; not on the wire
	Units     int64  // milliseconds for OpPause
	Began     int64  // monotonic time of this node at which the decision began; not on the wire

	Take  Take   // part of OpTake and OpLend
	Spent Spent  // part of OpDebit, OpRefund and OpReturn
	Lent  Lent   // part of OpReturn
	Peek  Peek   // part of OpPeek
	Wait  Wait   // part of OpWait
	Hold  Hold   // part of OpHold, OpExtend and OpRelease
	Reset uint64 // part of OpReset: the reset number that the count gets
	Ban   Ban    // part of OpStrike, whose Limit is the number of denials that ban a key
}

// Take is the part of OpTake and OpLend.
type Take struct {
	Sent int64 // monotonic time of the asking node at which it sent the ask; no other node reads this time
	Want Want
}

// Want is the lease that a node requests in addition to a take. The zero Want requests no lease.
type Want struct {
	Units uint32
	Term  uint16 // term in ms, from the time at which the ask was sent; at most LongestLease
}

// Spent is a reference to the units of an earlier take. The zero Spent refers to no take.
type Spent struct {
	Receipt bucket.Receipt // the receipt of that take
	// Age is the time since the time of Receipt: negative if that time is in the future, and 0 if
	// that time is not known. With an Age, every member finds the units. Without an Age, only the member
	// that gave the receipt finds them, because the windows of a member begin by its own clock: refunds
	// after a hand-over then returned none of 100 units.
	Age time.Duration
	// ResetNumber is the ResetNumber of the result that granted the units. With 0, a reset after the
	// grant is not noticed.
	ResetNumber uint64
	StoodIn     bool // the member that decided the take had no authority
	OnlyLast    bool // whether a refund applies only if no units were taken since
}

// Lent is the part of an Ask of OpReturn. The Units of the Ask are the units of the lease
// that were not spent.
type Lent struct {
	Units uint32 // the units of the lease that were spent
	Until uint32 // Lease.Until of the lease
}

// Peek is the part of an Ask of OpPeek.
type Peek struct {
	Latest bool // for an InFlight limit: decide by the Rate of the highest Version with which the count was requested
}

// Wait is the part of an Ask of OpWait: the waiters of a key on the asking node.
type Wait struct {
	Ticket  uint64        // identifies the queue of the asking node
	Waiting uint32        // units of all waiters in that queue, including the requested units
	Age     time.Duration // how long the first waiter has waited, in steps of 16.4 µs
}

// Hold is the part of an Ask about a hold (OpHold, OpExtend, OpRelease).
type Hold struct {
	Holder, Number uint64        // hash of the name of the node that first asked for the hold, and the number of the hold on that node
	TTL            time.Duration // time until a client's hold ends unless renewed; 0 for the hold of a process
	// ClusterAge is the age of the cluster at the time of the request, or 0 if the sender does not
	// know the age.
	ClusterAge time.Duration
	Waits      bool // for OpHold: whether the asker waits in the queue
	Denied     bool // for OpRelease: whether the hold was not granted, and leaves the queue
	Shrinks    bool // for OpExtend: whether the hold keeps at most the Units of the Ask
	Reads      bool // for OpExtend: whether the hold is not renewed
}

// WithReceipt returns a copy of a that refers, in Spent, to the units that r granted.
func (a Ask) WithReceipt(r *Result) Ask {
	a.Take, a.Spent = Take{}, Spent{Receipt: r.Receipt, ResetNumber: r.ResetNumber, StoodIn: r.StoodIn}
	return a
}

// LeastUnits returns the fewest units that the ask can be granted.
func (a *Ask) LeastUnits() int64 {
	if a.AtMost {
		return 1
	}
	return a.Units
}

// GrantedUnits returns the number of units that r, which is allowed, has granted to a take, a debit
// or a wait.
func (a *Ask) GrantedUnits(op Op, r *Result) int64 {
	if op == OpWait || a.AtMost && r.Granted > 0 {
		return min(r.Granted, a.Units)
	}
	return a.Units
}

// Append appends a to a request. The request must begin with its Header, which has the operation.
func (a *Ask) Append(request []byte) []byte {
	b, p := request, Op(request[0]).properties().ask
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
	partition := byte(a.Partition)
	if a.Shadow {
		partition |= shadowBit
	}
	if a.BansKeys {
		partition |= bansBit
	}
	if a.AtMost {
		partition |= atMostBit
	}
	if a.Pauses {
		partition |= pausesBit
	}
	b = append(b, a.Limit.Code(), partition)
	b = binary.LittleEndian.AppendUint64(b, uint64(a.Units))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.Limit.Keep))
	if p&takePart != 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(a.Take.Sent))
		b = binary.LittleEndian.AppendUint32(b, a.Take.Want.Units)
		b = binary.LittleEndian.AppendUint16(b, a.Take.Want.Term)
	}
	if p&spentPart != 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(a.Spent.Receipt))
		b = binary.LittleEndian.AppendUint64(b, uint64(a.Spent.Age))
		b = binary.LittleEndian.AppendUint64(b, a.Spent.ResetNumber)
		b = append(b, mark(a.Spent.StoodIn, stoodInMark)|mark(a.Spent.OnlyLast, onlyLastMark))
	}
	if p&lentPart != 0 {
		b = binary.LittleEndian.AppendUint32(b, a.Lent.Units)
		b = binary.LittleEndian.AppendUint32(b, a.Lent.Until)
	}
	if p&peekPart != 0 {
		b = append(b, mark(a.Peek.Latest, latestMark))
	}
	if p&waitPart != 0 {
		b = binary.LittleEndian.AppendUint64(b, a.Wait.Ticket)
		b = binary.LittleEndian.AppendUint32(b, a.Wait.Waiting)
		b = binary.LittleEndian.AppendUint32(b, ticksOf(a.Wait.Age))
	}
	if p&holdPart != 0 {
		b = binary.LittleEndian.AppendUint64(b, a.Hold.Holder)
		b = binary.LittleEndian.AppendUint64(b, a.Hold.Number)
		b = binary.LittleEndian.AppendUint64(b, uint64(a.Hold.TTL))
		b = binary.LittleEndian.AppendUint64(b, uint64(a.Hold.ClusterAge))
		b = append(b, mark(a.Hold.Waits, waitsMark)|mark(a.Hold.Denied, deniedMark)|mark(a.Hold.Shrinks, shrinksMark)|mark(a.Hold.Reads, readsMark))
	}
	if p&resetPart != 0 {
		b = binary.LittleEndian.AppendUint64(b, a.Reset)
	}
	if p&banPart != 0 {
		for _, length := range a.Ban {
			b = binary.LittleEndian.AppendUint32(b, uint32(length/time.Second))
		}
	}
	return b
}

func mark(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}

// ParseAsk parses ask i of a request that ParseHeader has accepted, and stores the numbers of the ask in the
// argument limit. The result is as valid as an ask of a Limiter. The error is ErrMalformed.
func ParseAsk(request []byte, i int, limit *bucket.Limit) (a Ask, err error) {
	op := Op(request[0])
	p := op.properties()
	b := request[HeaderBytes+i*p.askBytes:]
	a.ID.Hi = binary.LittleEndian.Uint64(b)
	a.ID.Lo = binary.LittleEndian.Uint64(b[8:])
	a.Limit = limit
	a.Limit.Version = binary.LittleEndian.Uint64(b[16:])
	a.Limit.Rate = int64(binary.LittleEndian.Uint64(b[24:]))
	a.Limit.Per = time.Duration(binary.LittleEndian.Uint64(b[32:]))
	capacity := int64(binary.LittleEndian.Uint64(b[40:]))
	a.Limit.SetCode(b[algorithmByte])
	a.Limit.Burst, a.Limit.Start = capacity, 0
	if !a.Limit.IsBucket() {
		a.Limit.Burst, a.Limit.Start = 0, capacity
	}
	a.Partition = Policy(b[49] &^ (shadowBit | bansBit | atMostBit | pausesBit))
	a.Shadow, a.BansKeys, a.AtMost = b[49]&shadowBit != 0, b[49]&bansBit != 0, b[49]&atMostBit != 0
	a.Pauses = b[49]&pausesBit != 0
	a.Global = IsGlobal(a.ID)
	a.Units = int64(binary.LittleEndian.Uint64(b[50:]))
	a.Limit.Keep = int64(binary.LittleEndian.Uint64(b[58:]))
	a.parse(p.ask, b[subjectBytes:])
	holds := p.ofHold || op == OpPeek && a.Limit.Algorithm == bucket.InFlight
	if a.Units < 0 || a.Partition > FailClosed || a.Limit.Validate() != nil || holds != (a.Limit.Algorithm == bucket.InFlight) ||
		a.Hold.TTL < 0 || a.Hold.TTL > LongestTTL {
		return Ask{}, ErrMalformed
	}
	return a, nil
}

// parse reads the parts of an ask.
func (a *Ask) parse(p parts, b []byte) {
	if p&takePart != 0 {
		a.Take.Sent = int64(binary.LittleEndian.Uint64(b))
		a.Take.Want = Want{Units: binary.LittleEndian.Uint32(b[8:]), Term: parseTerm(b[12:])}
		b = b[14:]
	}
	if p&spentPart != 0 {
		a.Spent.Receipt = bucket.Receipt(binary.LittleEndian.Uint64(b))
		a.Spent.Age = clampAge(binary.LittleEndian.Uint64(b[8:]))
		a.Spent.ResetNumber = binary.LittleEndian.Uint64(b[16:])
		a.Spent.StoodIn, a.Spent.OnlyLast = b[24]&stoodInMark != 0, b[24]&onlyLastMark != 0
		b = b[25:]
	}
	if p&lentPart != 0 {
		a.Lent = Lent{Units: binary.LittleEndian.Uint32(b), Until: binary.LittleEndian.Uint32(b[4:])}
	}
	if p&peekPart != 0 {
		a.Peek.Latest = b[0]&latestMark != 0
	}
	if p&waitPart != 0 {
		a.Wait.Ticket = binary.LittleEndian.Uint64(b)
		a.Wait.Waiting = binary.LittleEndian.Uint32(b[8:])
		a.Wait.Age = time.Duration(binary.LittleEndian.Uint32(b[12:])) * ageTick
	}
	if p&holdPart != 0 {
		a.Hold.Holder = binary.LittleEndian.Uint64(b)
		a.Hold.Number = binary.LittleEndian.Uint64(b[8:])
		a.Hold.TTL = time.Duration(binary.LittleEndian.Uint64(b[16:]))
		a.Hold.ClusterAge = clampAge(binary.LittleEndian.Uint64(b[24:]))
		a.Hold.Waits, a.Hold.Denied = b[32]&waitsMark != 0, b[32]&deniedMark != 0
		a.Hold.Shrinks, a.Hold.Reads = b[32]&shrinksMark != 0, b[32]&readsMark != 0
	}
	if p&resetPart != 0 {
		a.Reset = binary.LittleEndian.Uint64(b)
	}
	if p&banPart != 0 {
		for i := range a.Ban {
			a.Ban[i] = min(time.Duration(binary.LittleEndian.Uint32(b[4*i:]))*time.Second, LongestBan)
		}
	}
}

func clampAge(n uint64) time.Duration { return min(max(time.Duration(n), -longestReset), longestReset) }

func parseTerm(b []byte) uint16 {
	return uint16(clampDuration(binary.LittleEndian.Uint16(b), time.Millisecond, LongestLease) / time.Millisecond)
}

// IsAboutHold reports whether a request that ParseHeader has accepted is about a hold: an operation on
// holds, or the peek of one InFlight limit.
func IsAboutHold(h Header, request []byte) bool {
	return h.Op.IsOfHold() || h.Op == OpPeek && h.Asks == 1 && bucket.Algorithm(request[HeaderBytes+algorithmByte]) == bucket.InFlight
}

// IDOf returns the id of ask i of a request that ParseHeader has accepted.
func IDOf(request []byte, i int) bucket.ID {
	b := request[HeaderBytes+i*Op(request[0]).AskBytes():]
	return bucket.ID{Hi: binary.LittleEndian.Uint64(b), Lo: binary.LittleEndian.Uint64(b[8:])}
}

// ClearWant clears the requested lease of ask i of a request that ParseHeader has accepted.
func ClearWant(request []byte, i int) {
	if p := Op(request[0]).properties(); p.ask&takePart != 0 {
		clear(request[HeaderBytes+i*p.askBytes+subjectBytes+8:][:6])
	}
}

// SpentBy returns the receipt of the first ask of a request that ParseHeader has accepted, if the
// receipt has no Age, so that only the member that gave the receipt finds its units. Otherwise it returns 0.
// The result stoodIn reports whether that member had no authority.
func SpentBy(request []byte) (r bucket.Receipt, stoodIn bool) {
	p := Op(request[0]).properties()
	if p.ask&spentPart == 0 {
		return 0, false
	}
	b := request[HeaderBytes+subjectBytes:]
	if binary.LittleEndian.Uint64(b[8:]) != 0 {
		return 0, false // the age is known
	}
	return bucket.Receipt(binary.LittleEndian.Uint64(b)), b[24]&stoodInMark != 0
}
