package wire

// Op is the operation of a request.
type Op uint8

const (
	OpTake     Op = iota + 1 // spends units if there is room
	OpDebit                  // spends units in any case
	OpRefund                 // returns units
	OpPeek                   // returns the result that a take would have, and spends no units
	OpWait                   // spends units of a LeakyBucket for the waiters of the asking node
	OpLend                   // requests leases, without a take
	OpReturn                 // returns the unspent units of leases
	OpReset                  // deletes a count
	OpStream                 // a frame of the stream of replicas (package countsync) follows
	OpPublish                // published values follow
	OpCompare                // digests of published values follow
	OpExchange               // statements between regions follow
	OpDeclare                // declared limits follow
	OpLocate                 // requests the ranges over which the receiver has authority; the hash of the name of the sender (8 bytes) and ranges follow
	OpTop                    // requests the top keys of the receiver, and has no body
	OpTotals                 // requests the totals of the receiver, and has no body
	OpHold                   // holds units of an InFlight limit
	OpRelease                // ends a hold
	OpRenew                  // digests, lists or names of holds, or records of clients' holds, follow
	OpHeld                   // requests the holds that the receiver knows in the given ranges; ranges follow
	OpExtend                 // renews, shrinks or reads a client's hold
	OpSince                  // requests the age and the epoch of the cluster; the age and the epoch that the sender knows follow
	OpStrike                 // counts a denial of a limit with bans, and bans the key after enough denials
	OpBans                   // requests the bans that the receiver lists, and has no body
	OpPause                  // pauses a key: all checks of the key are denied for a time

	lastOp = OpPause
)

// parts is a set of the parts that an Ask or a Result can have on the wire.
type parts uint16

const (
	// Parts of an Ask.
	takePart parts = 1 << iota
	spentPart
	lentPart
	peekPart
	waitPart
	holdPart
	resetPart
	banPart
	// Parts of a Result.
	receiptPart
	leasePart
	grantedPart
	renewalPart
	unitsPart
)

// bytes returns the length of the parts on the wire.
func (p parts) bytes() (n int) {
	for i, length := range [...]int{14, 25, 8, 1, 16, 33, 8, 4 * BanSteps, 16, leaseBytes, 4, 8, 8} {
		if p&(1<<i) != 0 {
			n += length
		}
	}
	return n
}

// properties describes an operation for the other packages.
type properties struct {
	// name is the name of the operation in traces, empty if the operation is not traced.
	name string
	// If askBytes is above 0, asks with the parts in ask follow the header, and the answer has
	// results with the parts in result. Other operations have a body of their own.
	ask, result  parts
	askBytes     int
	resultBytes  int
	ofHold       bool // the operation is about a single hold
	checks       bool // the member that answers for the count executes the operation
	passes       bool // any other member passes the operation on to that member
	givesBack    bool // the operation returns units or ends a hold, and must not be sent twice
	once         bool // no other member executes the operation after a member may have executed it
	grantsUnits  bool // a response can grant units, which the sender returns if the response is late
	learnsLeases bool // the results can contain leases and firm denials, which the sender learns even if the response is late
}

// table has the properties of each operation, and never changes.
var table = func() (t [lastOp + 1]properties) {
	t[OpTake] = properties{name: "take", ask: takePart, result: receiptPart | leasePart, checks: true, passes: true, grantsUnits: true, learnsLeases: true}
	t[OpDebit] = properties{name: "debit", ask: spentPart, result: receiptPart, checks: true, passes: true, grantsUnits: true}
	t[OpRefund] = properties{name: "refund", ask: spentPart, checks: true, passes: true, givesBack: true, once: true}
	t[OpPeek] = properties{name: "peek", ask: peekPart, checks: true, passes: true}
	t[OpWait] = properties{name: "wait", ask: waitPart, result: receiptPart | grantedPart, checks: true, passes: true, grantsUnits: true}
	t[OpLend] = properties{ask: takePart, result: receiptPart | leasePart, checks: true, learnsLeases: true}
	t[OpReturn] = properties{ask: spentPart | lentPart, checks: true, givesBack: true}
	t[OpReset] = properties{ask: resetPart}
	t[OpHold] = properties{name: "hold", ask: holdPart, result: renewalPart, ofHold: true, checks: true, passes: true, grantsUnits: true}
	t[OpRelease] = properties{name: "release", ask: holdPart, ofHold: true, checks: true, passes: true, givesBack: true}
	t[OpExtend] = properties{name: "renew", ask: holdPart, result: renewalPart | unitsPart, ofHold: true, checks: true, passes: true}
	t[OpStrike] = properties{name: "strike", ask: banPart, result: receiptPart | grantedPart, checks: true, passes: true, once: true}
	t[OpPause] = properties{name: "pause", result: receiptPart, checks: true, passes: true}
	for op := range t {
		p := &t[op]
		if p.ask|p.result != 0 {
			p.askBytes, p.resultBytes = subjectBytes+p.ask.bytes(), outcomeBytes+p.result.bytes()
		}
	}
	return t
}()

// properties returns the properties of the operation. An operation that this release does not know has no
// properties.
func (o Op) properties() *properties {
	if o > lastOp {
		return &table[0]
	}
	return &table[o]
}

// Checks reports whether the member that answers for the count executes the operation.
func (o Op) Checks() bool { return o.properties().checks }

// Passes reports whether any other member passes the operation on to the member that answers for the count.
func (o Op) Passes() bool { return o.properties().passes }

// GivesBack reports whether the operation returns units or ends a hold. Its requests must not be sent twice.
func (o Op) GivesBack() bool { return o.properties().givesBack }

// IsOnce reports whether no second member may execute a request of the operation after a first member may have
// executed the request.
func (o Op) IsOnce() bool { return o.properties().once }

// GrantsUnits reports whether a response to the operation may grant units. The asking node returns the units if
// the response arrives after the node has given up.
func (o Op) GrantsUnits() bool { return o.properties().grantsUnits }

// LearnsLeases reports whether the results of the operation can have leases and firm denials, which the asking
// node learns even if the response is late.
func (o Op) LearnsLeases() bool { return o.properties().learnsLeases }

// IsOfHold reports whether the operation is about a single hold.
func (o Op) IsOfHold() bool { return o.properties().ofHold }

// Traced returns the name of the operation in traces.
func (o Op) Traced() string { return o.properties().name }

// AskBytes returns the length of each ask of the operation, or 0 if its requests have a body of their own.
func (o Op) AskBytes() int { return o.properties().askBytes }
