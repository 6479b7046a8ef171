package countsync

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Member names a member: the hash of its name, which differs at every start.
// 0 is nobody.
type Member = uint64

// Roles says who is what for an id, as the node's view has it now. The Stream
// calls it with its lock held, so its methods must not call the Stream, and from
// several goroutines, though never at the same time.
type Roles interface {
	// Holds is whether this node has authority over id.
	Holds(id bucket.ID) bool
	// Answers is who answers for id now: the authority or its stand-in, this
	// node itself if that is it, 0 if nobody is reached.
	Answers(id bucket.ID) Member
	// Targets appends who is to have id's state from this node, which holds id
	// or stands in for it: successors, joiners, the next owner. Never itself.
	Targets(dst []Member, id bucket.ID) []Member
}

// Stream is one node's side of the stream. Its methods are safe for concurrent
// use, and take one lock: each does a bounded amount of work under it. now is in
// nanoseconds of this node's own clock, the one that its store is told.
type Stream struct {
	self  Member
	store *bucket.Store

	mu        sync.Mutex
	clock     int64 // rises with each call that queues, so that it orders what is queued; else it is now
	series    int64 // the last that was given to a tally
	number    uint64
	leaving   bool
	left      bool
	outbounds []*outbound // by member, ascending
	inbounds  inbounds
	ledger    ledger
	resets    resets
	doubts    doubts
	holdings  *Holdings          // nil where there are no other regions
	bases     map[bucket.ID]base // of logs: the frame that brought this node's count, if nothing has changed it since
	asked     int64              // when those in doubt were last asked about

	// unsent is what was spent with authority while nobody was there to be sent
	// it, by id until somebody has acknowledged its state: of so many ids at most,
	// the first ones.
	unsent map[bucket.ID]int64

	cursor int // of CollectPart

	reviewing bool   // a review has not gone through the resets and tallies yet
	reviewed  review // how far it is
	stamps    stamp  // the last that was given

	changes []bucket.Change // what follows is used within one call
	ids     []bucket.ID
	targets []Member
	seen    []tally
	limits  limits
	count   bucket.Count
}

const maxUnsent = 64 << 10

// New makes the stream of a node and its store. It calls nothing on the store:
// its owner calls Track.
func New(self Member, store *bucket.Store) *Stream {
	return &Stream{
		self: self, store: store,
		inbounds: newInbounds(), ledger: newLedger(), resets: newResets(), doubts: newDoubts(),
		bases: make(map[bucket.ID]base), unsent: make(map[bucket.ID]int64),
	}
}

// Hold has the stream carry holdings, as it carries counts. It is called before
// anything else.
func (s *Stream) Hold(h *Holdings) { s.holdings = h }

// Copy queues the holdings of these ids, which have changed, for those who are to
// have the ids' states; of an id for which this node does not answer any more, for
// whoever does. It returns what Collect does.
func (s *Stream) Copy(ids []bucket.ID, now int64, roles Roles) []Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	for _, id := range ids {
		answers := roles.Answers(id)
		if s.targets = append(s.targets[:0], answers); answers == s.self || roles.Holds(id) {
			s.targets = roles.Targets(s.targets[:0], id)
		}
		for _, to := range s.targets {
			if o := s.outbound(to); o != nil {
				s.push(o, item{id: id, at: s.clock, kind: grants})
			}
		}
	}
	return s.ready()
}

// Meet says who is in the roster: something is kept to be sent for each of
// them, and what was kept for others is dropped. Before it is called, and for
// others, Owe, Give and Next do nothing.
func (s *Stream) Meet(members []Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var met []*outbound
	for _, m := range slices.Compact(slices.Sorted(slices.Values(members))) {
		if m == s.self || m == 0 {
			continue
		}
		o := s.outbound(m)
		if o == nil {
			o = &outbound{to: m, stamp: s.newStamp(), queue: queue{foldAt: foldAbove, most: maxQueued}}
		}
		met = append(met, o)
	}
	was := s.outbounds
	s.outbounds = met
	s.unmet(slices.DeleteFunc(was, func(o *outbound) bool { return s.outbound(o.to) != nil }))
}

// unmet keeps in mind what was to be sent to members that are gone, and to nobody
// else, and did not arrive.
func (s *Stream) unmet(gone []*outbound) {
	missed := make(map[batch]uint8)
	for _, o := range gone {
		covered := o.coveredIDs()
		for it := range o.states() {
			if it.units == 0 || it.tallied || covers(covered, it) || s.voided(it) {
				continue
			}
			if missed[it.batch()]++; missed[it.batch()] == it.to {
				s.unsend(*it)
			}
		}
	}
	for _, o := range gone {
		for _, g := range slices.Concat(o.flight.gives, o.gives) {
			s.disown(g.ranges, s.clock) // the one who was to have it is gone, and whether with it is not known
		}
	}
}

// unsend remembers units that nobody has been sent.
func (s *Stream) unsend(it item) {
	if units, ok := s.unsent[it.id]; it.units != 0 && (ok || len(s.unsent) < maxUnsent) {
		s.unsent[it.id] = plus(units, it.units)
	}
}

// Collect takes in what the store has spent and who has to know of it, and says
// for which members something waits and nothing is in flight. With hurried it
// takes in only what hurries. Units that were spent with authority go to the
// id's targets with its state. Others go into a tally of this node, and that to
// whoever answers for the id.
func (s *Stream) Collect(now int64, hurried bool, roles Roles) (ready []Member) {
	for cursor, over := 0, false; !over; over = cursor == 0 {
		s.mu.Lock()
		ready, cursor = s.collect(cursor, hurried, now, roles)
		s.mu.Unlock()
	}
	return ready
}

// collectPart is how many changes CollectPart takes in, about: their slots fit
// into a processor's second cache until they are sent. collectStep is how many it
// takes in under one lock.
const (
	collectPart = 2048
	collectStep = 512
)

// CollectPart is Collect of a part of the store where much has changed, and of
// the whole of it else, which is told by over. The next call goes on from there.
func (s *Stream) CollectPart(now int64, roles Roles) (ready []Member, over bool) {
	for n := 0; n < collectPart && !over; n += collectStep {
		s.mu.Lock()
		ready, s.cursor = s.collect(s.cursor, false, now, roles)
		over = s.cursor == 0
		s.mu.Unlock()
	}
	return ready, over
}

// collect takes in the changes of a part of the store.
func (s *Stream) collect(cursor int, hurried bool, now int64, roles Roles) (ready []Member, next int) {
	s.tick(now)
	next, changes := s.store.CollectPart(cursor, collectStep, hurried, s.changes[:0])
	s.collected(changes, now, roles)
	return s.ready(), next
}

func (s *Stream) collected(changes []bucket.Change, now int64, roles Roles) {
	for _, c := range changes {
		s.changed(c.ID, c.Units, now, roles, nil)
	}
	s.changes = changes
	if s.doubts.again && !s.doubts.reviewing && (now-s.asked >= askAgain || now < s.asked) {
		s.asked = now
		s.doubts.begin(false)
		s.doubts.reviewOn(reviewPart, now, s.self, roles, s.ask)
	}
}

// Owe has all counts in ranges that `to` is a target of, or stands in for, sent to
// it, by a scan of the store in bounded steps, and Complete told once that is done (also if ranges
// is empty). What is owed while a scan is under way begins that scan again.
func (s *Stream) Owe(to Member, ranges Ranges) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.outbound(to); o != nil {
		o.owe(ranges, s.clock)
	}
}

// Give queues the word that authority over ranges is `to`'s: it is sent once
// all is acknowledged that waits for `to` now. move is a number that rises with
// each move. From this call on, Roles must not say that this node holds them:
// what it spends there is without authority.
func (s *Stream) Give(to Member, move uint64, ranges Ranges, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(to)
	if o == nil {
		return
	}
	s.tick(now)
	for first := true; first || len(ranges) > 0; first = false {
		n := min(len(ranges), maxGiven)
		o.gives = append(o.gives, give{move, ranges[:n:n], s.clock})
		ranges = ranges[n:]
	}
}

// Beg asks all members for their counts of what this node answers for, or is a
// target of.
func (s *Stream) Beg() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beg()
}

func (s *Stream) beg() {
	for _, o := range s.outbounds {
		o.begs = true
	}
}

// disown makes part of this node's tallies what it has spent with authority over
// ranges, and what any member has not acknowledged. What is in flight is tallied
// until it is known whether it arrives. Scans do not count: what one of them was
// to bring the others have.
func (s *Stream) disown(ranges Ranges, now int64) {
	lacks := func(it *item) bool {
		return it.kind == state && it.units != 0 && it.units != everything && !it.tallied && ranges.Contains(it.id.Hi) && !s.voided(it)
	}
	var waiting []item
	for id, units := range s.unsent {
		if ranges.Contains(id.Hi) {
			waiting = append(waiting, item{id: id, units: units, at: s.clock})
			delete(s.unsent, id)
		}
	}
	for _, o := range s.outbounds {
		covered := o.coveredIDs()
		for it := range o.queue.all() {
			if lacks(it) && !covers(covered, it) {
				waiting = append(waiting, *it)
			}
		}
	}
	// Several members lack the same units, which have the same id and time.
	slices.SortFunc(waiting, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.id.Hi, b.id.Hi), cmp.Compare(a.id.Lo, b.id.Lo), cmp.Compare(a.at, b.at), cmp.Compare(b.units, a.units))
	})
	waiting = slices.CompactFunc(waiting, func(a, b item) bool { return a.id == b.id && a.at == b.at })
	s.settled(waiting)
	for i := 0; i < len(waiting); {
		sum := waiting[i]
		for i++; i < len(waiting) && waiting[i].id == sum.id; i++ {
			sum.units = plus(sum.units, waiting[i].units)
		}
		s.spentWithout(sum, now)
	}
	flying := make(map[batch]int)
	for _, o := range s.outbounds {
		covered := o.coveredIDs()
		for it := range o.flight.states() {
			if covers(covered, it) {
				it.units = 0
			}
			if lacks(it) {
				flying[it.batch()]++
			}
		}
	}
	for _, o := range s.outbounds {
		for it := range o.flight.states() {
			if lacks(it) {
				tallied := *it
				it.units = s.spentWithout(tallied, now)
				it.tallied = flying[it.batch()] == 1 // else one of them having it would not do
				s.settled([]item{tallied})
			}
		}
	}
	s.settle(func(it *item) bool { return ranges.Contains(it.id.Hi) })
}

// Disown makes all that this node has counted of what it holds, ranges, a tally: it had
// begun apart from others, and what they have counted is no part of it. So it does with
// what it has given and nobody has taken, which it keeps, and with its copies of what it
// stands in for, roles says: whoever holds that does the same, if it lives. apart is the
// origin of these tallies, one for all who began together, so that the units count once
// whoever tells of them. Of what others answer for only the tallies stay here: beside
// theirs their copies would count once more. For fellows, who have done so or have been
// sent it all by the others, no copy of this node's is left to be put right: they may
// have taken another's count by now, which it would replace. It is called before Roles
// says that this node holds nothing any more; Review passes the tallies on. It goes
// through the whole store in one step: not for one that holds very much.
func (s *Stream) Disown(ranges Ranges, now int64, roles Roles, apart Member, fellows []Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	for _, o := range s.outbounds {
		for _, g := range slices.Concat(o.gives, o.flight.gives) {
			ranges = ranges.Union(g.ranges) // it is not this node's to give any more
		}
		o.gives, o.flight.gives = nil, nil
	}
	for cursor, over := uint64(0), false; !over; over = cursor == 0 {
		cursor, s.ids = s.store.Scan(cursor, s.ids[:0])
		for _, id := range s.ids {
			if ranges.Contains(id.Hi) {
				if units, changed := s.store.CollectOne(id); changed {
					s.holdings.Spent(id, units)
					s.store.Touch(id) // others have yet to hear of it
				}
				s.spentApart(id, apart, fellows, now)
				continue
			}
			answers := roles.Answers(id)
			if answers == 0 {
				continue
			}
			s.spentWithout(item{id: id, at: s.clock, kind: state}, now)
			if answers == s.self {
				s.spentApart(id, apart, fellows, now)
				continue
			}
			used, limit, _ := s.store.Used(id, now)
			s.store.Import(id, &bucket.Count{Limit: limit}, now, s.ledger.cap(id, used))
			delete(s.bases, id)
		}
	}
	s.settleAll(ranges) // it is in the tallies now
}

// spentApart makes what is in use of an id, and in no tally yet, part of the one of
// those who began apart together. What another of them has told of it already goes.
func (s *Stream) spentApart(id bucket.ID, apart Member, fellows []Member, now int64) {
	used, limit, _ := s.store.Used(id, now)
	units := max(0, used-s.ledger.cap(id, used))
	if units == 0 {
		return
	}
	more := s.ledger.learn(id, tally{origin: apart, spent: units, unrecovered: units, changed: now}, used, func(int64) bool { return false })
	if more != units {
		s.store.SpendElsewhere(id, &limit, now, more-units)
		delete(s.bases, id)
	}
	s.retell(id, fellows)
}

// settleAll forgets of ranges which units have yet to be told with a state.
func (s *Stream) settleAll(ranges Ranges) {
	for id := range s.unsent {
		if ranges.Contains(id.Hi) {
			delete(s.unsent, id)
		}
	}
	s.settle(func(it *item) bool { return ranges.Contains(it.id.Hi) })
}

// Leaving is told in every frame from now on.
func (s *Stream) Leaving() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
}

// Left is told in every frame from now on: this node holds nothing any more, nor
// will it. It is told before goodbye is said to the others.
func (s *Stream) Left() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = true
}

// Reset forgets the id's count and tallies, here and, as its number is passed
// on, wherever it is known. It returns the number, for ResetTo elsewhere.
func (s *Stream) Reset(id bucket.ID, now int64) (number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	before, _ := s.resets.get(id)
	number = max(before.number+1, uint64(max(0, now)))
	s.reset(id, number, now, nobody)
	return number
}

// ResetTo is another node's Reset, made so long ago. If its number is not above
// the one that is known, it changes nothing.
func (s *Stream) ResetTo(id bucket.ID, number uint64, age time.Duration, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	s.raise(id, number, now-int64(max(0, age)), now, nobody)
}

// raise makes a reset known, which a member has (nobody, if that is not known), and says
// whether what came with it still counts: not if a later one is known.
func (s *Stream) raise(id bucket.ID, number uint64, made, now int64, from stamp) bool {
	known, ok := s.resets.get(id)
	switch {
	case !ok && number == 0:
		return true
	case number == known.number:
		if from != nobody && known.passed == (stamps{}) {
			s.resets.pass(id, from)
		}
		return true
	case number < known.number:
		return !known.heeded(now)
	case !ok && s.resets.forgot(made):
		if (reset{made: made}).heeded(now) {
			s.resets.put(id, reset{number: number, made: made, passed: stamps{from}})
			s.store.Touch(id) // those who remember it have taken no state without its number
		}
		return true
	}
	if (reset{made: made}).heeded(now) {
		s.reset(id, number, made, from)
	}
	return true
}

func (s *Stream) reset(id bucket.ID, number uint64, made int64, from stamp) {
	s.store.Reset(id)
	s.store.Touch(id)
	s.ledger.drop(id)
	delete(s.bases, id)
	delete(s.unsent, id)
	s.resets.put(id, reset{number: number, at: s.clock, made: made, passed: stamps{from}})
}

// Sweep takes one step: it forgets tallies that have recovered and tombstones
// that are old. It looks at a part of the tallies, so that how many there are
// follows from how many come in the time of so many steps, however fast they come.
func (s *Stream) Sweep(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const step, parts = 1024, 128
	s.resets.sweep(now, step)
	l := &s.ledger
	for range min(max(step, l.all.len()/parts), l.all.len()) {
		if l.swept++; l.swept >= l.all.len() {
			l.swept = 0
		}
		if l.n == 0 {
			return
		}
		if t := l.at(int32(l.swept)); t.origin != 0 && s.recovered(t, now) {
			l.remove(int32(l.swept))
		}
	}
}

// remembered is for how long a tally that has recovered is kept, since it may
// arrive once more by another path: longer than a sweep of all tallies takes, so
// that by the time somebody forgets it, it counts nothing for anybody.
const remembered = int64(10e9)

// recovered is whether a tally may be forgotten. A count that never runs empty does
// not show that a tally has recovered: its age does.
func (s *Stream) recovered(t *entry, now int64) bool {
	if t.changed > now { // the clock has stepped back
		t.changed = now
	}
	_, limit, _ := s.store.Used(t.id, now)
	since, most := now-t.changed, 2*recovery(&limit)
	if float64(since) >= most {
		t.unrecovered = 0
	}
	return float64(since-remembered) > most
}

// recovery is how long a count of this limit takes to empty at most, in
// nanoseconds, if it has no debt.
func recovery(l *bucket.Limit) float64 {
	if l.Algorithm != bucket.TokenBucket && l.Algorithm != bucket.LeakyBucket {
		return 2 * float64(l.Per)
	}
	return float64(l.Per) * float64(l.Capacity()) / max(float64(l.Rate), 1e-9)
}

// Tallies is how many are known.
func (s *Stream) Tallies() int { return s.Beside().Tallies }

// Beside is what is known beside counts.
type Beside struct {
	Tallies        int
	Resets         int    // their tombstones
	Bytes          int    // that these take, about
	TalliesDropped uint64 // that had not recovered, for want of room
	ResetsDropped  uint64 // tombstones that were forgotten before their time, for want of room
}

// Beside is what is known beside counts.
func (s *Stream) Beside() Beside {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Beside{
		Tallies: s.ledger.len(), Resets: len(s.resets.of),
		Bytes:          s.ledger.len()*entryBytes + len(s.resets.of)*resetBytes + s.resets.order.len()*knownBytes,
		TalliesDropped: s.ledger.dropped, ResetsDropped: s.resets.dropped,
	}
}

// Lag is how much waits for a member.
type Lag struct {
	Counts   int           // ids that it has not acknowledged; an id can be among them more than once
	Age      time.Duration // of the oldest of them
	Bulk     int           // of these, ids that a review has found
	Scanning bool          // a scan is under way
	Giving   bool          // it is given authority, and has yet to take it
}

// Lag is how much waits for a member.
func (s *Stream) Lag(to Member, now int64) Lag {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(to)
	if o == nil {
		return Lag{}
	}
	l := Lag{Counts: len(o.flight.items) + o.queue.len() + o.bulk.len(), Bulk: o.bulk.len(), Scanning: o.scanning, Giving: o.giving()}
	at, waits := o.queue.oldest()
	if len(o.flight.items) > 0 {
		at, waits = o.flight.items[0].at, true
	}
	if waits {
		l.Age = time.Duration(max(0, now-at))
	}
	return l
}

// Idle is whether nothing is owed to a member, queued for it or in flight, and no review
// is under way that may find something.
func (s *Stream) Idle(to Member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(to)
	return o == nil || o.flight.number == 0 && !o.ready() && !s.unreviewed()
}

// Giving is whether authority that was given has not been taken yet.
func (s *Stream) Giving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.outbounds, (*outbound).giving)
}

func (s *Stream) tick(now int64) { s.clock = max(s.clock+1, now) }

func (s *Stream) outbound(to Member) *outbound {
	i, ok := slices.BinarySearchFunc(s.outbounds, to, func(o *outbound, m Member) int { return cmp.Compare(o.to, m) })
	if !ok {
		return nil
	}
	return s.outbounds[i]
}

func (s *Stream) ready() (members []Member) {
	for _, o := range s.outbounds {
		if o.ready() {
			members = append(members, o.to)
		}
	}
	return members
}

// changed tells those who have to know of a change of this many units. A change
// that came while a frame for a member was built, except, is not queued for it:
// the item that it is part of is returned.
func (s *Stream) changed(id bucket.ID, units, now int64, roles Roles, except *outbound) (rider item, rides bool) {
	if len(s.bases) > 0 {
		delete(s.bases, id)
	}
	s.holdings.Spent(id, units)
	holds := roles.Holds(id)
	if holds && units < 0 {
		// Whoever does not know this node for the authority has its tally.
		if own := s.ledger.find(id, s.self); own != nil && own.unrecovered > 0 {
			back := min(-units, own.unrecovered)
			s.tally(id, -back, now, true)
			units += back
		}
	}
	if !holds {
		if units != 0 {
			s.tally(id, units, now, true)
			units = 0
		}
		if roles.Answers(id) != s.self {
			if to, _ := s.passee(id, roles); !s.passed(id, to, now) {
				s.pass(id, roles)
			}
			return item{}, false
		}
	}
	s.stamp(id, home)
	return s.send(item{id: id, units: units, at: s.clock, kind: state}, roles, except)
}

// flush takes in what has been spent of an id since it was collected.
func (s *Stream) flush(id bucket.ID, now int64, roles Roles) {
	if units, changed := s.store.CollectOne(id); changed {
		s.clock++ // one time queues each id once
		s.changed(id, units, now, roles, nil)
	}
}

// send queues a state for all of the id's targets but one.
func (s *Stream) send(it item, roles Roles, except *outbound) (rider item, rides bool) {
	s.targets = roles.Targets(s.targets[:0], it.id)
	s.targets = slices.DeleteFunc(s.targets, func(m Member) bool { return s.outbound(m) == nil })
	it.to = uint8(min(len(s.targets), math.MaxUint8))
	for _, to := range s.targets {
		if o := s.outbound(to); o == except {
			rider, rides = it, true
		} else {
			s.push(o, it)
		}
	}
	if len(s.targets) == 0 {
		s.unsend(it)
	}
	return rider, rides
}

// push queues an item. When too much waits for a member, all of that is dropped
// for a scan.
func (s *Stream) push(o *outbound, it item) {
	if !o.queue.push(it, s.voided) {
		o.queue.clear()
		o.bulk = deque[bucket.ID]{}
		o.stamp = s.newStamp() // what was queued is to be passed on again
		o.covered, o.sent = nil, nil
		o.owe(All(), s.clock)
		o.began = 0 // it brings what waited
	}
}

// pass queues what is known of an id beside its state, the tallies and the reset
// number, for whoever answers for it; if that is this node, then as part of the
// state for its targets.
func (s *Stream) pass(id bucket.ID, roles Roles) {
	if !s.ledger.has(id) {
		if _, ok := s.resets.get(id); !ok {
			return
		}
	}
	switch to, o := s.passee(id, roles); {
	case to == home:
		s.stamp(id, home)
		s.send(item{id: id, at: s.clock, kind: state}, roles, nil)
	case o != nil:
		s.stamp(id, to) // before its queue may be dropped
		s.push(o, item{id: id, at: s.clock, kind: spend})
	}
}

func (s *Stream) ask(id bucket.ID, who Member) {
	if o := s.outbound(who); o != nil {
		s.push(o, item{id: id, at: s.clock, kind: ask})
		s.doubts.asked(id, who)
	} else {
		s.doubts.again = true
	}
}

// voided is whether an item was queued before the id was reset.
func (s *Stream) voided(it *item) bool {
	r, ok := s.resets.get(it.id)
	return ok && it.last() <= r.at
}

// tally adds to this node's own tally of an id what it has spent without
// authority, and what its count includes already.
func (s *Stream) tally(id bucket.ID, units, now int64, spentNow bool) {
	used, _, _ := s.store.Used(id, now) // these units among them
	own := s.ledger.find(id, s.self)
	if own == nil {
		own = s.ledger.add(id, tally{origin: s.self})
		own.foreign = true
	}
	own.passed = stamps{}
	if own.foreign {
		s.series = max(s.series+1, own.series+1, now)
		own.tally, own.foreign = tally{origin: s.self, series: s.series}, false
	}
	own.changed = now
	if units < 0 {
		own.refunded -= units
		own.unrecovered = min(max(0, own.unrecovered+units), used)
		return
	}
	if spentNow {
		own.unrecovered = min(own.unrecovered, max(0, used-units)) // what was there before recovers first
	}
	own.spent += units
	own.unrecovered = min(own.unrecovered+units, used, max(0, own.net()))
}

// spentWithout makes an item's units, which were spent with authority, part of
// this node's tally, as others cannot have them otherwise; everything is what is
// in use and in no tally yet. It returns how many.
func (s *Stream) spentWithout(it item, now int64) int64 {
	if units, changed := s.store.CollectOne(it.id); changed {
		s.holdings.Spent(it.id, units)
		if units != 0 {
			s.tally(it.id, units, now, true)
		}
		s.store.Touch(it.id) // others have yet to hear of it
	}
	units := it.units
	if used, _, _ := s.store.Used(it.id, now); units == everything {
		units = max(0, used-s.ledger.cap(it.id, used))
	}
	if units != 0 {
		s.tally(it.id, units, now, false)
		s.retell(it.id, nil)
	}
	return units
}

// retell has the copies that others have from this node, or are being sent, say
// which of the authority's units have become a tally: they would count once more,
// beside it. Those of except have no such copy.
func (s *Stream) retell(id bucket.ID, except []Member) {
	for _, o := range s.outbounds {
		if (o.sent.Contains(id.Hi) || o.scan.Contains(id.Hi)) && !slices.Contains(except, o.to) {
			s.push(o, item{id: id, at: s.clock, kind: state, held: true})
		}
	}
}

// settled takes items' units, which are part of a tally now, from all that waits.
func (s *Stream) settled(items []item) {
	tallied := make(map[batch]bool, len(items))
	var ids []bucket.ID
	for _, it := range items {
		switch it.units {
		case 0: // what was queued at that time for others can have units all the same
			continue
		case everything:
			it.at = 0
		}
		if !tallied[it.batch()] {
			ids = append(ids, it.id)
		}
		tallied[it.batch()] = true
	}
	if len(tallied) == 0 {
		return
	}
	for _, o := range s.outbounds {
		for it := range o.statesOf(ids) {
			if !it.tallied && (tallied[it.batch()] || tallied[batch{it.id, 0}]) {
				it.units = 0
			}
		}
	}
}

// settle takes the units from all states that wait or are in flight and that are
// meant.
func (s *Stream) settle(meant func(*item) bool) {
	for _, o := range s.outbounds {
		for it := range o.states() {
			if !it.tallied && meant(it) {
				it.units = 0
			}
		}
	}
}
