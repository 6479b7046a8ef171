package countsync

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Arrival describes the contents of a frame other than counts.
type Arrival struct {
	From      Member
	Authority Ranges // ranges over which the frame transfers authority; nil without a transfer, or if the transfer arrived before. A node that takes the authority calls Review
	Complete  bool   // all counts that From has owed this node so far (Stream.Owe) have arrived
	Leaving   bool   // From is leaving, and transfers its authority
}

// inbound is the state of the frames from a sender. The number of the last applied frame only
// rises, so that a frame that arrives twice or late changes nothing, and gets the answer to the
// last frame.
type inbound struct {
	applied uint64 // number of the last frame that was applied
	answer  []byte // answer to that frame
	move    uint64 // number of the last transfer
	parts   parts
}

// parts contains the first pieces of a log until the last piece arrives. Until then, the count is
// unchanged.
type parts struct {
	id     bucket.ID
	number uint64 // number of the frame with the latest piece
	list   []part
}

type part struct {
	count bucket.Count
	at    int64
}

// base identifies the frame that brought a log.
type base struct {
	from   Member
	number uint64
}

// inbounds contains the state of each sender. If there are too many, inbounds removes the sender
// that was added first.
type inbounds struct {
	byMember map[Member]*inbound
	order    []Member
}

const (
	maxInbounds = 4096
)

func newInbounds() inbounds { return inbounds{byMember: make(map[Member]*inbound)} }

func (in *inbounds) get(m Member) *inbound {
	i := in.byMember[m]
	if i == nil {
		if len(in.order) >= maxInbounds {
			delete(in.byMember, in.order[0])
			in.order = in.order[1:]
		}
		i = new(inbound)
		in.byMember[m] = i
		in.order = append(in.order, m)
	}
	return i
}

// Serve applies a frame, and appends the answer to dst. A frame changes nothing if the same
// frame or a newer frame has arrived before. If this node must send data to other members as a
// result, the data waits until Collect or Answered returns these members. Serve returns an
// error if the frame is malformed, too long, or for another member. The items before a
// malformed item have then been applied.
func (s *Stream) Serve(now int64, frame []byte, roles Roles, dst []byte) (answer []byte, a Arrival, err error) {
	if len(frame) > maxFrame {
		return dst, Arrival{}, fmt.Errorf("%w: the frame has %d bytes, and at most %d are allowed", errFrame, len(frame), maxFrame)
	}
	r := reader{b: frame}
	version, flags, from, to, number := r.byte(), r.byte(), r.uint64(), r.uint64(), r.uint64()
	switch {
	case r.err != nil:
	case version != frameVersion || flags&^byte(knownFlags) != 0:
		r.fail("the frame has the version %d and the flags %#x, and one of them is unknown", version, flags)
	case to != s.self:
		r.fail("the frame is for member %016x, and this member is %016x", to, s.self)
	case from == 0 || from == s.self || number == 0:
		r.fail("the frame has the number %d and the sender %016x, and one of them is invalid", number, from)
	}
	if r.err != nil {
		return dst, Arrival{}, r.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a = Arrival{From: from, Leaving: flags&flagLeaving != 0}
	in := s.inbounds.get(from)
	if number <= in.applied {
		return append(dst, in.answer...), a, nil
	}
	s.tick(now)
	var (
		move      uint64
		uncertain int64
	)
	if flags&flagTransfer != 0 {
		move, a.Authority = r.ranges()
		uncertain = r.age()
	}
	x := arriving{Stream: s, roles: roles, in: in, from: from, leaving: a.Leaving, number: number, now: now}
	if x.items(&r); r.err != nil {
		return dst, Arrival{}, r.err
	}
	if move <= in.move {
		a.Authority = nil
	} else {
		in.move = move
		s.holdings.inheritKnowledge(time.Duration(uncertain))
	}
	a.Complete = flags&flagComplete != 0
	if o := s.outbound(from); o != nil && flags&flagRequest != 0 {
		o.stamp = s.newStamp()
		o.handleRequest(s.clock)
	}
	in.applied = number
	in.answer = appendAnswer(in.answer[:0], number, x.whole)
	return append(dst, in.answer...), a, nil
}

// arriving is a frame that is being applied.
type arriving struct {
	*Stream
	roles   Roles
	in      *inbound
	from    Member
	leaving bool
	number  uint64
	now     int64
	limits  limits
	origins origins

	// For a block of a snapshot, lain is the age of the block, and saved is set: a scan passes on
	// the counts of the block once all blocks are loaded. For a frame, both are zero.
	lain  int64
	saved bool

	index int
	whole []int
	flags byte // flags of the current item
}

// items reads each item from r and applies it. A block of a snapshot must not contain grants.
func (x *arriving) items(r *reader) {
	x.limits, x.origins = x.Stream.limits[:0], x.Stream.origins[:0]
	ids := reader{b: r.ids()}
	for x.index = 0; r.err == nil && len(ids.b) > 0; x.index++ {
		if x.index%prefetched == 0 {
			x.prefetch(ids)
		}
		if x.saved && len(r.b) > 0 && kind(r.b[0]&kindMask) == grants {
			r.fail("the snapshot has an item of kind %d, which only frames may have", grants)
			break
		}
		x.item(ids.id(), r)
	}
	if len(r.b) > 0 {
		r.fail("%d bytes follow the last item", len(r.b))
	}
	x.Stream.limits, x.Stream.origins = x.limits, x.origins
}

// prefetched is the number of counts that are prefetched at a time.
const prefetched = 32

// prefetch starts to load the memory of the next counts.
func (x *arriving) prefetch(ids reader) {
	var next [prefetched]bucket.ID
	n := 0
	for ; n < len(next) && len(ids.b) > 0; n++ {
		next[n] = ids.id()
	}
	x.store.Prefetch(next[:n])
}

func (x *arriving) item(id bucket.ID, r *reader) {
	flags := r.byte()
	switch {
	case r.err != nil:
		return
	case kind(flags&kindMask) == grants:
		x.holdings.adoptCopy(id, r, &x.limits, x.now)
		return
	}
	var number uint64
	made := x.now
	if flags&itemReset != 0 {
		number = r.uvarint()
		age := r.age()
		if x.saved {
			age = loadedResetAge(age)
		}
		made -= age
	}
	x.seen, x.flags = x.seen[:0], flags
	switch flags & (itemVector | itemTotal) {
	case itemVector | itemTotal:
		r.fail("an item has both a vector and a total")
	case itemVector:
		x.seen = x.origins.vector(r, x.seen, x.now-x.lain)
	case itemTotal:
		x.seen = x.origins.total(r, x.seen, x.now-x.lain)
	}
	if kind(flags&kindMask) == spend {
		var (
			limit bucket.Limit
			used  int64
		)
		if flags&itemLimit != 0 {
			limit, used = x.limits.read(r), r.units()
		}
		if r.err == nil && x.acceptReset(id, number, made) {
			x.mergeSpend(id, &limit, used)
		}
		return
	}
	follows := uint64(0)
	if flags&itemPiece != 0 {
		follows = r.uvarint()
	}
	c := &x.count
	if flags&itemLimit == 0 {
		*c = bucket.Count{}
	} else {
		c.Limit = x.limits.read(r)
		if r.err != nil {
			return
		}
		rest, err := c.Parse(r.b)
		if err != nil {
			r.fail("%w", err)
			return
		}
		r.b = rest
		c.Age(x.lain)
	}
	if r.err != nil || !x.acceptReset(id, number, made) || flags&(itemTotal|itemMore) == itemTotal && x.importTotal(id, c) {
		return
	}
	x.mergeState(id, c, flags, follows)
}

// loadedResetAge returns the age that is used for a reset in a snapshot. The snapshots that a
// node loads after a stop were written at most effectiveFor apart, because the loader skips
// older snapshots. If the loader does not know of the newest snapshot yet, the distance can be
// larger. A distance of up to 2*effectiveFor is harmless.
//
// If the reset was at most effectiveFor old, its age is 0, as if it were made now. A count
// without its number is then from before the reset, because a node that knew of the reset would
// have kept the number. An older reset is recorded but has no effect, because each snapshot was
// written after the reset. The count must keep the number of the reset, so that another snapshot
// does not reset the count again.
func loadedResetAge(age int64) int64 {
	if age <= effectiveFor {
		return 0
	}
	return effectiveFor + 1
}

// acceptReset reports whether data with this reset number still counts. If a later reset is known
// here, it is queued for the sender. If ResetInTime refuses the number of the sender, nothing is
// queued, because the sender would only send the same number again.
func (x *arriving) acceptReset(id bucket.ID, number uint64, made int64) bool {
	if x.raise(id, number, made, x.now, x.senderStamp()) {
		return true
	}
	if known, _ := x.resets.get(id); known.number < number {
		return false
	}
	if o := x.outbound(x.from); o != nil {
		x.push(o, item{id: id, at: x.clock, kind: spend})
	}
	return false
}

// mergeSpend merges a spend: the vector of another copy, and the number of used units of that
// copy.
func (x *arriving) mergeSpend(id bucket.ID, l *bucket.Limit, used int64) {
	if len(x.seen) == 0 {
		return
	}
	x.collectOne(id, x.now, x.roles)
	own, stored, ok := x.store.Used(id, x.now)
	if ok && (l.Per == 0 || stored.Version > l.Version || stored.Version == l.Version && stored.Capacity() > l.Capacity()) {
		l = &stored
	}
	x.recordExpired(id, x.now)
	x.mine = x.vector(x.mine[:0], id, x.now)
	x.spendOnTop(id, l, x.mine.unitsOnTop(x.seen, own, used, agesOf(l, x.now)))
}

// spendOnTop spends the units that another copy has beyond the copy of this node, and joins the
// vectors.
func (x *arriving) spendOnTop(id bucket.ID, l *bucket.Limit, units int64) {
	whose, grew := x.join(id, x.seen, l, x.passesOn(id), x.now)
	x.recordHeard(id)
	if grew {
		x.bases.delete(id)
		if units != 0 && l.Per > 0 {
			x.store.SpendElsewhere(id, l, x.now, units)
		}
		x.store.SetTotal(id, whose)
		if _, held := x.store.TotalOf(id); held || whose.Origin == 0 {
			x.touch(id)
		}
	}
	x.queueMissing(id, l)
}

// touch marks id as changed, so that the next Collect queues it. If this node holds id, touch also
// moves the vector of id to the ledger: if this node transfers id before that Collect, it sends
// only tallies that are in the ledger. For a block of a snapshot, touch does nothing, because a scan
// follows.
func (x *arriving) touch(id bucket.ID) {
	if x.saved {
		return
	}
	x.store.Touch(id)
	if x.roles.Holds(id) {
		x.unfold(id, 0, x.now)
	}
}

// passesOn reports whether the holder of id may lack the units of this item, so that the ledger
// keeps them for reviews. A sender shows its authority only by sending a state. Views differ, so
// this node may take a sender without authority for the holder. If a leaving member knows that
// the holder has the units, it sends them as a total, and otherwise as a vector.
func (x *arriving) passesOn(id bucket.ID) bool {
	holder := x.roles.Holder(id)
	switch {
	case holder == x.self:
		return false
	case x.leaving && x.flags&itemTotal != 0 && holder != 0 && x.roles.Answers(id) == holder:
		return false
	}
	return holder != x.from || kind(x.flags&kindMask) != state
}

// queueMissing queues the vector of id for the sender, if the sender answers for id and lacks
// units.
func (x *arriving) queueMissing(id bucket.ID, l *bucket.Limit) {
	if o := x.outbound(x.from); o != nil && x.roles.Answers(id) == x.from && x.mine.unitsBeyond(x.seen, agesOf(l, x.now)) != 0 {
		x.push(o, item{id: id, at: x.clock, kind: spend})
	}
}

// senderStamp returns the stamp of the sender, or noStamp if there is none.
func (x *arriving) senderStamp() stamp {
	if o := x.outbound(x.from); o != nil {
		return o.stamp
	}
	return noStamp
}

// recordHeard records that the sender has the tallies that it has sent.
func (x *arriving) recordHeard(id bucket.ID) {
	from := x.senderStamp()
	if from == noStamp {
		return
	}
	for i := range x.seen {
		if e := x.ledger.find(id, x.seen[i].origin); e != nil && !e.isLater(&x.seen[i]) {
			e.passed.add(from)
		}
	}
}

// agesOf returns the ages at which units and refunds of a limit have recovered.
func agesOf(l *bucket.Limit, now int64) ages {
	empties := recovery(l)
	return ages{now: now, maxOfCopies: l.MaxOfCopies, late: int64(min(empties/32, 1<<62)), recovered: lastsFor(l)}
}

// importTotal imports a copy with a single origin without a merge, and reports whether it did.
// The copy must be whole, and have used units of an origin other than this node. On this node, the
// count must have no uncollected change, and no tally except for an earlier total of the same
// origin. In addition, this node must not have to pass on the units to the holder. Nearly all copies
// meet these conditions.
func (x *arriving) importTotal(id bucket.ID, c *bucket.Count) bool {
	t := &x.seen[0]
	used := c.Used(x.now)
	t.expired = max(0, t.spent-used)
	var ok bool
	if c.Total, ok = t.total(); !ok || used == 0 || c.Partial() || t.origin == x.self || x.ledger.contains(id) || x.passesOn(id) || !x.store.Renew(id, c, x.now) {
		return false
	}
	x.in.parts.list = nil
	x.recordBase(id, c, 0)
	if x.roles.Answers(id) != x.from {
		x.touch(id)
	}
	return true
}

// mergeState merges a copy.
func (x *arriving) mergeState(id bucket.ID, c *bucket.Count, flags byte, follows uint64) {
	more := flags&itemMore != 0
	parts := &x.in.parts
	if c.Partial() {
		switch at, ok := x.bases.get(id); {
		case parts.id == id && len(parts.list) > 0 && parts.number == follows:
		case ok && at == base{x.from, follows} && !x.collectOne(id, x.now, x.roles):
			parts.list = nil
			x.replace(id, c, 0)
			return
		default:
			x.whole = append(x.whole, x.index)
			return
		}
	} else {
		parts.list = nil
	}
	if more {
		parts.id, parts.number = id, x.number
		parts.list = append(parts.list, part{*c, x.now})
		x.count = bucket.Count{} // the entries belong to the part now
		return
	}
	used, lasts := c.Used(x.now), c.RecoversIn(x.now)
	for i := range parts.list {
		p := &parts.list[i]
		used += p.count.Used(x.now)
		lasts = max(lasts, p.count.RecoversIn(p.at)-time.Duration(x.now-p.at))
	}
	x.collectOne(id, x.now, x.roles)
	own, stored, ok := x.store.Used(id, x.now)
	if ok && c.Limit.Per == 0 {
		c.Limit = stored
	}
	x.recordExpired(id, x.now)
	x.mine = x.vector(x.mine[:0], id, x.now)
	earlier := stored == c.Limit && lasts < x.store.RecoversIn(id, x.now) // under other numbers, the times are not comparable
	replaces, onTop := merge(x.mine, x.seen, own, used, earlier, agesOf(&c.Limit, x.now))
	if !replaces {
		parts.list = nil
		x.spendOnTop(id, &c.Limit, onTop)
		return
	}
	for i := range parts.list {
		x.store.Import(id, &parts.list[i].count, parts.list[i].at, 0)
	}
	parts.list = nil
	x.replace(id, c, onTop)
	if x.roles.Holds(id) || x.roles.Answers(id) != x.from {
		x.touch(id)
	}
	x.queueMissing(id, &c.Limit)
}

// replace replaces the count of id on this node with c, and spends onTop units on top.
func (x *arriving) replace(id bucket.ID, c *bucket.Count, onTop int64) {
	c.Total, _ = x.join(id, x.seen, &c.Limit, x.passesOn(id), x.now)
	x.recordHeard(id)
	x.store.Import(id, c, x.now, onTop)
	x.recordBase(id, c, onTop)
}

// recordBase records the frame that brought the log of c. If c has no log, or if onTop units were spent
// on top of c, so that the log here differs from the log in the frame, recordBase deletes the record.
func (x *arriving) recordBase(id bucket.ID, c *bucket.Count, onTop int64) {
	if c.Limit.Algorithm == bucket.SlidingLog && onTop == 0 {
		x.bases.set(id, base{x.from, x.number}, x.now, x.caps.Logs)
	} else {
		x.bases.delete(id)
	}
}
