package countsync

import (
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Arrival is what came with a frame beside counts.
type Arrival struct {
	From     Member
	Given    Ranges // authority that came with the frame; nil if none, or if that move came before. Who takes it calls Review
	Complete bool   // all that From owed by its scans has come
	Leaving  bool   // From hands over what it holds
	Doubted  bool   // authority came and was not taken: From is asked about what is in doubt, and is to be sent that at once
}

// inbound is what is known of one sender's frames.
type inbound struct {
	applied uint64 // the number of the last frame that was applied, or that never will be
	answer  []byte // what was answered to it
	move    uint64 // the last that came
	doubted uint64 // the last that was not taken, for doubts
	since   int64  // when it came first, by the stream's time
	parts   parts
}

// doubtedFor is how long authority is not taken for doubts. Where several give to
// each other in a circle, each asks one that has yet to be told itself.
const doubtedFor = int64(1e9)

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

// base says which frame a log is of.
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
	maxBases    = 64 << 10
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
	if flags&flagSettle != 0 {
		in.applied = number
		in.answer = appendAnswer(in.answer[:0], number, 0, nil, nil)
		return append(dst, in.answer...), a, nil
	}
	var (
		move  uint64
		doubt int64
	)
	if flags&flagGives != 0 {
		move, a.Given = r.ranges()
		doubt = r.age()
	}
	x := arriving{Stream: s, roles: roles, in: in, from: from, number: number, now: now}
	x.limits = s.limits[:0]
	for x.index = 0; len(r.b) > 0; x.index++ {
		x.item(&r)
	}
	s.limits = x.limits
	if r.err != nil {
		return dst, Arrival{}, r.err
	}
	outcome := byte(answerApplied)
	doubted := a.Given != nil && s.inDoubt(a.Given, from)
	if doubted && in.doubted != move {
		in.doubted, in.since = move, s.clock
	}
	if doubted && s.clock-in.since < doubtedFor {
		outcome |= answerDoubts
		a.Given, a.Doubted = nil, true
	} else if move < in.move {
		a.Given = nil
	} else {
		in.move = move
		if a.Given != nil {
			s.holdings.Sure(time.Duration(doubt))
		}
	}
	a.Complete = flags&flagComplete != 0
	if o := s.outbound(from); o != nil {
		if o.refused && a.Given != nil {
			o.owe(a.Given, s.clock) // it has held what this node held as well, and has taken none of its states
		} else {
			o.sent = o.sent.Union(a.Given) // it had all there is
		}
		if flags&flagBegs != 0 {
			o.stamp = s.newStamp()
			o.begged(s.clock)
		}
	}
	in.applied = number
	in.answer = appendAnswer(in.answer[:0], number, outcome, x.refused, x.whole)
	return append(dst, in.answer...), a, nil
}

// arriving is a frame that is being taken in.
type arriving struct {
	*Stream
	roles  Roles
	in     *inbound
	from   Member
	number uint64
	now    int64
	limits limits

	index          int
	refused, whole []int
}

func (x *arriving) item(r *reader) {
	id, flags := r.id(), r.byte()
	switch kind := kind(flags & kindMask); {
	case r.err != nil:
		return
	case kind == ask:
		x.asked(id)
		return
	case kind == grants:
		x.holdings.adoptCopy(id, r, &x.limits, x.now)
		return
	}
	var number uint64
	made := x.now
	if flags&itemReset != 0 {
		number = r.uvarint()
		made -= r.age()
	}
	x.seen = x.seen[:0]
	if flags&itemTallies != 0 {
		x.seen = r.tallies(x.seen, x.now)
	}
	if kind(flags&kindMask) == spend {
		var limit bucket.Limit
		if flags&itemLimit != 0 {
			limit = x.limits.read(r)
		}
		if r.err == nil && x.heeded(id, number, made) {
			x.spent(id, &limit)
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
	}
	if r.err != nil || !x.heeded(id, number, made) {
		return
	}
	if x.knows(id, flags&itemHeld != 0) {
		x.refused = append(x.refused, x.index)
		x.spent(id, &c.Limit)
		return
	}
	x.state(id, c, flags, follows)
}

// knows is whether this node knows better than who sends a state: it has
// authority, or that is still on its way to another. Once it may be there, its
// new owner does.
func (x *arriving) knows(id bucket.ID, held bool) bool {
	if x.roles.Holds(id) {
		return true
	}
	if o := x.outbound(x.from); held && o != nil && givesOf(o.flight.gives, id) {
		return false
	}
	return x.giving(id)
}

// giving is whether this node's authority over id is on its way to another.
func (s *Stream) giving(id bucket.ID) bool {
	for _, o := range s.outbounds {
		if givesOf(o.gives, id) || givesOf(o.flight.gives, id) {
			return true
		}
	}
	return false
}

func givesOf(gives []give, id bucket.ID) bool {
	return slices.ContainsFunc(gives, func(g give) bool { return g.ranges.Contains(id.Hi) })
}

// inDoubt is whether a count in ranges came last from another than who gives
// authority over it away, or before that had it. It is asked for then: after it
// has given, nobody would know better.
func (s *Stream) inDoubt(ranges Ranges, giver Member) (doubted bool) {
	for _, id := range s.doubts.order {
		x, known := s.doubts.from[id]
		if !known || x.over || !ranges.Contains(id.Hi) || x.from == giver && x.held {
			continue
		}
		doubted = true
		s.ask(id, giver)
	}
	return doubted
}

// heeded is whether what comes with a reset number still counts. If a later
// reset is known here, the sender is told of it.
func (x *arriving) heeded(id bucket.ID, number uint64, made int64) bool {
	if x.raise(id, number, made, x.now, x.stamped()) {
		return true
	}
	if o := x.outbound(x.from); o != nil {
		x.push(o, item{id: id, at: x.clock, kind: spend})
	}
	return false
}

// asked is told that the sender wants id's state. It gets it, also if it is no
// target any more: what it has may be wrong, and go to who stands in one day.
func (x *arriving) asked(id bucket.ID) {
	if !x.giving(id) && !x.roles.Holds(id) && x.roles.Answers(id) != x.self {
		x.refused = append(x.refused, x.index)
		return
	}
	if o := x.outbound(x.from); o != nil {
		x.push(o, item{id: id, at: x.clock, kind: state})
	}
}

// spent takes in tallies: what is new of them, and has not recovered, is debited.
// l is of the sender's count.
func (x *arriving) spent(id bucket.ID, l *bucket.Limit) {
	if len(x.seen) == 0 {
		return
	}
	x.flush(id, x.now, x.roles)
	used, stored, ok := x.store.Used(id, x.now)
	if ok && (l.Per == 0 || stored.Version > l.Version || stored.Version == l.Version && stored.Capacity() > l.Capacity()) {
		l = &stored
	}
	x.ledger.cap(id, used)
	late := x.late(l)
	var units int64
	holds := x.roles.Holds(id)
	for _, t := range x.seen {
		most := used + units
		if !holds { // the authority's units that it gives back may be yet to come
			most = x.ledger.spares(id, t.origin, most)
		}
		units += x.ledger.learn(id, t, max(0, most), late)
	}
	x.heard(id)
	if units != 0 && l.Per > 0 {
		x.store.SpendElsewhere(id, l, x.now, units)
		delete(x.bases, id)
		if !holds {
			// What was spent elsewhere may have been in a state already, and be
			// here twice now: only the authority's next one tells.
			x.doubt(id, 0, false)
		}
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
		if e := x.ledger.find(id, x.seen[i].origin); e != nil && e.says(&x.seen[i]) {
			e.passed.add(from)
		}
	}
}

// late says whether a refund that was made at a time comes too late: then time
// has given back already some of what it would, and it only takes back what its
// own tally has spent.
func (x *arriving) late(l *bucket.Limit) func(changed int64) bool {
	after := int64(min(recovery(l)/32, 1<<62))
	return func(changed int64) bool { return x.now-changed > after }
}

// state takes in a count from whoever answers for it.
func (x *arriving) state(id bucket.ID, c *bucket.Count, flags byte, follows uint64) {
	more := flags&itemMore != 0
	parts := &x.in.parts
	if c.Partial() {
		switch at, ok := x.bases[id]; {
		case parts.id == id && len(parts.list) > 0 && parts.number == follows:
		case ok && at == base{x.from, follows} && !x.touched(id):
			parts.list = nil
			x.replace(id, c, flags)
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
	answers := false
	if flags&itemHeld == 0 && !x.doubts.cameFrom(id, x.from) {
		used := c.Used(x.now)
		for i := range parts.list {
			used += parts.list[i].count.Used(x.now)
		}
		answers = x.roles.Answers(id) == x.self
		if x.older(id, used, answers) {
			parts.list = nil
			if x.spent(id, &c.Limit); !answers {
				x.doubt(id, 0, false) // the authority's next one tells which is right
			}
			return
		}
	}
	for i := range parts.list {
		x.store.Import(id, &parts.list[i].count, parts.list[i].at, 0)
	}
	parts.list = nil
	if x.replace(id, c, flags); answers {
		x.store.Touch(id) // its targets have yet to hear of it
	}
}

// older is whether a count with so much used, of who has no authority, is an older
// copy of the authority's than this node's: less of it is in no tally. Each tally
// is known by itself, so with the other's tallies either has all of both. Of two
// that are the same, who answers keeps its own.
func (x *arriving) older(id bucket.ID, used int64, answers bool) bool {
	x.flush(id, x.now, x.roles)
	own, _, _ := x.store.Used(id, x.now)
	own -= x.ledger.cap(id, own)
	came := used
	for _, t := range x.seen {
		came -= min(t.unrecovered, used) + min(0, t.net())
	}
	return came < own || came == own && answers
}

// touched is whether something was spent here since id was collected.
func (x *arriving) touched(id bucket.ID) bool {
	units, changed := x.store.CollectOne(id)
	if changed {
		x.clock++
		x.changed(id, units, x.now, x.roles, nil)
	}
	return changed
}

// replace makes c this node's count of id, with what it lacks on top.
func (x *arriving) replace(id bucket.ID, c *bucket.Count, flags byte) {
	var onTop int64
	if len(x.seen) > 0 || x.ledger.has(id) {
		x.flush(id, x.now, x.roles)
		used, stored, ok := x.store.Used(id, x.now)
		if ok && c.Limit.Per == 0 {
			c.Limit = stored
		}
		x.ledger.cap(id, used)
		onTop = x.ledger.adopt(id, x.seen, x.late(&c.Limit))
		x.heard(id)
	}
	x.store.Import(id, c, x.now, onTop)
	if c.Limit.Algorithm == bucket.SlidingLog {
		if len(x.bases) >= maxBases {
			clear(x.bases)
		}
		if x.bases[id] = (base{x.from, x.number}); onTop != 0 {
			delete(x.bases, id)
		}
	} else if len(x.bases) > 0 {
		delete(x.bases, id)
	}
	x.doubt(id, x.from, flags&itemHeld != 0)
}

// doubt notes whose word a count is.
func (x *arriving) doubt(id bucket.ID, from Member, held bool) {
	answers := x.roles.Answers(id)
	if x.doubts.arrived(id, x.self, from, answers, held, x.now) {
		x.ask(id, answers)
	}
}
