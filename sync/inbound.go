package countsync

import (
	"time"

	"github.com/weir-go/weir/bucket"
)

// Arrival is what came with a frame beside counts.
type Arrival struct {
	From     Member
	Given    Ranges // authority that came with the frame; nil if none, or if that move came before. A node that takes it calls Review
	Complete bool   // all that From owed by its scans has come
	Leaving  bool   // From hands over what it holds
}

// inbound is what is known of one sender's frames. The number that was applied only rises,
// so that a frame that comes twice, or late, is answered as before and changes nothing.
type inbound struct {
	applied uint64 // the number of the last frame that was applied
	answer  []byte // what was answered to it
	move    uint64 // the last that came
	parts   parts
}

// parts are the first pieces of a log whose last one is yet to come: until then
// the count stays what it was.
type parts struct {
	id     bucket.ID
	number uint64 // of the frame that the last of them came with
	list   []part
}

type part struct {
	count bucket.Count
	at    int64
}

// base names the frame that a log is of.
type base struct {
	from   Member
	number uint64
}

// inbounds are the senders there have been, the latest of them.
type inbounds struct {
	of    map[Member]*inbound
	order []Member
}

const (
	maxInbounds = 4096
)

func newInbounds() inbounds { return inbounds{of: make(map[Member]*inbound)} }

func (in *inbounds) get(m Member) *inbound {
	i := in.of[m]
	if i == nil {
		if len(in.order) >= maxInbounds {
			delete(in.of, in.order[0])
			in.order = in.order[1:]
		}
		i = new(inbound)
		in.of[m] = i
		in.order = append(in.order, m)
	}
	return i
}

// Serve takes in a frame, and appends the answer to dst. A frame that came
// before, or is older than one that did, changes nothing. What it makes this node
// tell others waits for them until Collect or Answered names them.
func (s *Stream) Serve(now int64, frame []byte, roles Roles, dst []byte) (answer []byte, a Arrival, err error) {
	if len(frame) > maxFrame {
		return dst, Arrival{}, errFrame
	}
	r := reader{b: frame}
	version, flags, from, to, number := r.byte(), r.byte(), r.uint64(), r.uint64(), r.uint64()
	switch {
	case r.err != nil:
	case version != frameVersion || flags&^byte(knownFlags) != 0:
		r.fail("version %d, flags %#x", version, flags)
	case to != s.self:
		r.fail("it is for %016x, and this is %016x", to, s.self)
	case from == 0 || from == s.self || number == 0:
		r.fail("number %d from %016x", number, from)
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
	if flags&flagGives != 0 {
		move, a.Given = r.ranges()
		uncertain = r.age()
	}
	x := arriving{Stream: s, roles: roles, in: in, from: from, leaving: a.Leaving, number: number, now: now}
	if x.items(&r); r.err != nil {
		return dst, Arrival{}, r.err
	}
	if move <= in.move {
		a.Given = nil
	} else {
		in.move = move
		s.holdings.sure(time.Duration(uncertain))
	}
	a.Complete = flags&flagComplete != 0
	if o := s.outbound(from); o != nil && flags&flagBegs != 0 {
		o.stamp = s.newStamp()
		o.requested(s.clock)
	}
	in.applied = number
	in.answer = appendAnswer(in.answer[:0], number, x.whole)
	return append(dst, in.answer...), a, nil
}

// arriving is a frame that is being taken in.
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

	// Of a block of a snapshot: how long it has lain, and that it is passed on by a scan
	// once all blocks are loaded. Of a frame zero.
	lain  int64
	saved bool

	index int
	whole []int
	flags byte // of the item
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
			r.fail("an item of kind %d", grants)
			break
		}
		x.item(ids.id(), r)
	}
	if len(r.b) > 0 {
		r.fail("%d bytes more than its items", len(r.b))
	}
	x.Stream.limits, x.Stream.origins = x.limits, x.origins
}

// prefetched is how many counts are prefetched at a time.
const prefetched = 32

// prefetch has the memory of the counts that come next come nearer.
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
		r.fail("a vector and a total")
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
		if r.err == nil && x.heeded(id, number, made) {
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
	if r.err != nil || !x.heeded(id, number, made) || flags&(itemTotal|itemMore) == itemTotal && x.renewed(id, c) {
		return
	}
	x.mergeState(id, c, flags, follows)
}

// loadedResetAge returns how old a reset counts as that a snapshot contains. The snapshots of one
// stop are at most heeded apart, as the loader skips older ones. Those of nodes that started before
// the loader knew of the newest one can be further apart: up to 2*heeded is without effect.
//
// If the reset was at most heeded old, its age is 0, as if it were made now. A count without its
// number is then from before the reset, since a node that knew of it would have kept the number.
// An older reset is remembered but has no effect, because each snapshot was written after the reset.
// The count must keep the number of the reset, so that another snapshot does not reset the count again.
func loadedResetAge(age int64) int64 {
	if age <= heeded {
		return 0
	}
	return heeded + 1
}

// heeded reports whether what comes with a reset number still counts. If a later
// reset is known here, the sender is told of it; if its own is not in time, there is
// nothing to tell it, and it would only say the same again.
func (x *arriving) heeded(id bucket.ID, number uint64, made int64) bool {
	if x.raise(id, number, made, x.now, x.stamped()) {
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

// mergeSpend takes in a vector of a copy of which so much is used.
func (x *arriving) mergeSpend(id bucket.ID, l *bucket.Limit, used int64) {
	if len(x.seen) == 0 {
		return
	}
	x.flush(id, x.now, x.roles)
	own, stored, ok := x.store.Used(id, x.now)
	if ok && (l.Per == 0 || stored.Version > l.Version || stored.Version == l.Version && stored.Capacity() > l.Capacity()) {
		l = &stored
	}
	x.wane(id, x.now)
	x.mine = x.vector(x.mine[:0], id, x.now)
	x.onTop(id, l, x.mine.onTop(x.seen, own, used, agesOf(l, x.now)))
}

// onTop spends what another copy has beyond this node's, and takes over its vector.
func (x *arriving) onTop(id bucket.ID, l *bucket.Limit, units int64) {
	whose, grew := x.join(id, x.seen, l, x.passesOn(id), x.now)
	x.heard(id)
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
	x.retort(id, l)
}

// touch has the next Collect queue id for the members that have to know. Until then a holder keeps
// the tally in its ledger. If the holder transfers id before that Collect, the new holder receives
// only the tallies of the ledger.
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
// keeps them for reviews. Only a state shows that its sender has authority. Views differ, so this
// node may take a sender without authority for the holder. A leaver sends the units that the
// holder knows as a total, and other units as a vector.
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

// retort tells the sender, if it answers for id, what it has yet to hear.
func (x *arriving) retort(id bucket.ID, l *bucket.Limit) {
	if o := x.outbound(x.from); o != nil && x.roles.Answers(id) == x.from && x.mine.beyond(x.seen, agesOf(l, x.now)) != 0 {
		x.push(o, item{id: id, at: x.clock, kind: spend})
	}
}

// stamped is the stamp of what the sender has.
func (x *arriving) stamped() stamp {
	if o := x.outbound(x.from); o != nil {
		return o.stamp
	}
	return nobody
}

// heard notes that the sender has the tallies that it has sent.
func (x *arriving) heard(id bucket.ID) {
	from := x.stamped()
	if from == nobody {
		return
	}
	for i := range x.seen {
		if e := x.ledger.find(id, x.seen[i].origin); e != nil && !e.later(&x.seen[i]) {
			e.passed.add(from)
		}
	}
}

// agesOf are what time does to what is spent of a limit.
func agesOf(l *bucket.Limit, now int64) ages {
	empties := recovery(l)
	return ages{now: now, late: int64(min(empties/32, 1<<62)), recovered: lastsFor(l)}
}

// renewed takes in a copy of which all units are of one origin, if all that is known here
// of the count is an earlier total of the same: a merge of nearly all copies, in one step.
func (x *arriving) renewed(id bucket.ID, c *bucket.Count) bool {
	t := &x.seen[0]
	used := c.Used(x.now)
	t.expired = max(0, t.spent-used)
	var ok bool
	if c.Total, ok = t.total(); !ok || used == 0 || c.Partial() || t.origin == x.self || x.ledger.has(id) || x.passesOn(id) || !x.store.Renew(id, c, x.now) {
		return false
	}
	x.in.parts.list = nil
	x.replaced(id, c, 0)
	if x.roles.Answers(id) != x.from {
		x.touch(id)
	}
	return true
}

// mergeState takes in a copy.
func (x *arriving) mergeState(id bucket.ID, c *bucket.Count, flags byte, follows uint64) {
	more := flags&itemMore != 0
	parts := &x.in.parts
	if c.Partial() {
		switch at, ok := x.bases.get(id); {
		case parts.id == id && len(parts.list) > 0 && parts.number == follows:
		case ok && at == base{x.from, follows} && !x.flush(id, x.now, x.roles):
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
		x.count = bucket.Count{} // its entries are the part's now
		return
	}
	used := c.Used(x.now)
	for i := range parts.list {
		used += parts.list[i].count.Used(x.now)
	}
	x.flush(id, x.now, x.roles)
	own, stored, ok := x.store.Used(id, x.now)
	if ok && c.Limit.Per == 0 {
		c.Limit = stored
	}
	x.wane(id, x.now)
	x.mine = x.vector(x.mine[:0], id, x.now)
	replaces, onTop := merge(x.mine, x.seen, own, used, agesOf(&c.Limit, x.now))
	if !replaces {
		parts.list = nil
		x.onTop(id, &c.Limit, onTop)
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
	x.retort(id, &c.Limit)
}

// replace makes c this node's count of id, with what it lacks on top.
func (x *arriving) replace(id bucket.ID, c *bucket.Count, onTop int64) {
	c.Total, _ = x.join(id, x.seen, &c.Limit, x.passesOn(id), x.now)
	x.heard(id)
	x.store.Import(id, c, x.now, onTop)
	x.replaced(id, c, onTop)
}

// replaced records the frame that brought a log, unless this node had more of it.
func (x *arriving) replaced(id bucket.ID, c *bucket.Count, onTop int64) {
	if c.Limit.Algorithm == bucket.SlidingLog && onTop == 0 {
		x.bases.set(id, base{x.from, x.number}, x.now, x.caps.Logs)
	} else {
		x.bases.delete(id)
	}
}
