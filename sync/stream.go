package countsync

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Member names a member: the hash of its name, which differs at every start.
// 0 is nobody.
type Member = uint64

// Roles has the roles of members for an id, as the node's view has them now. The Stream
// calls it with its lock held, so its methods must not call the Stream, and from
// several goroutines, though never at the same time.
type Roles interface {
	// Holds reports whether this node has authority over id.
	Holds(id bucket.ID) bool
	// Holder returns the member with authority over id, as far as is known: 0 if there may
	// be none, or one that is not in the roster any more.
	Holder(id bucket.ID) Member
	// Answers returns the member that answers for id now: the authority or its stand-in, this
	// node itself if that is it, 0 if nobody is reached.
	Answers(id bucket.ID) Member
	// Targets appends the members that get id's state from this node, which holds id,
	// stands in for it, or has a copy and leaves: successors, joiners, the next
	// owner. Never itself.
	Targets(dst []Member, id bucket.ID) []Member
}

// Stream is one node's side of the stream. Its methods are safe for concurrent
// use, and take one lock: each does a bounded amount of work under it. now is in
// nanoseconds of this node's own clock, the one that its store goes by.
//
// The vector of an id is in the store, as the Total of its count, or in the ledger, never
// in both: unfold moves it to the ledger and fold back. Merges rely on that, as the units
// of a tally that stands in both would count twice.
//
// The lock comes before those of holdings and of the store, and nothing that holds one of
// these calls the stream.
type Stream struct {
	self  Member
	store *bucket.Store
	caps  Caps

	mu        sync.Mutex
	clock     int64 // rises with each call that queues, so that it orders what is queued; else it is now
	number    uint64
	sent      uint64 // counts in frames, ever
	moves     uint64 // the number of the last give: what comes twice is taken once
	leaving   bool
	forgoes   bool        // sends no states
	outbounds []*outbound // by member, ascending
	inbounds  inbounds
	loading   inbound // of snapshots
	ledger    ledger
	resets    *resets
	holdings  *Holdings    // nil without other regions
	whenReset ResetHook    // may be nil
	bases     recent[base] // the frame that brought each log, unless the log has changed since

	cursor int // of CollectPart

	reviewing bool   // a review has not visited all resets and tallies yet
	reviewed  review // how far it is
	stamps    stamp  // the latest

	changes []bucket.Change // what follows is used within one call
	ids     []bucket.ID
	targets []Member
	seen    vector
	mine    vector
	limits  limits
	origins origins
	itemIDs []byte // of the frame that is being built
	items   []byte // likewise
	count   bucket.Count
}

// New makes the stream of a node and its store. It calls nothing on the store:
// its owner calls Track.
func New(self Member, store *bucket.Store) *Stream {
	return &Stream{
		self: self, store: store, caps: Caps{}.withDefaults(),
		inbounds: newInbounds(), ledger: newLedger(self, store), resets: newResets(),
	}
}

// Begin says what the other members call this node, before it tells them anything. A Stream
// that is made before the node has its name is of Member 0 until then. It is called before
// any Roles of a view that this node is in, which is what makes it safe for the holdings.
func (s *Stream) Begin(self Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.self, s.ledger.self = self, self
	if s.holdings != nil {
		s.holdings.self = self
	}
}

// ResetHook is called for each count that is reset, here or as another node did it. It
// calls reset, once: until then the count and ResetNumber are as before, and from then on
// the count is none and ResetNumber is number. It runs under a lock, and calls nothing of
// the stream but ResetNumber.
type ResetHook func(id bucket.ID, number uint64, reset func())

// WhenReset sets what is called for each reset. It is called before anything else.
func (s *Stream) WhenReset(f ResetHook) { s.whenReset = f }

// ResetNumber returns the number of a count's last reset that this node knows of and still
// heeds, 0 if there is none. What was lent, granted or denied under a lower number is of a
// count that is no more. It waits for no frame, and is safe for concurrent use.
func (s *Stream) ResetNumber(id bucket.ID, now int64) uint64 { return s.resets.heeded(id, now) }

// Hold has the stream carry holdings, as it carries counts. It is called before
// anything else.
func (s *Stream) Hold(h *Holdings) {
	s.holdings = h
	if h != nil {
		h.reports = s.caps.Reports
	}
}

// Replicate queues the holdings of these ids, which have changed, for the ids'
// targets; of an id for which this node does not answer any more, for the member that
// does. It returns what Collect does.
func (s *Stream) Replicate(ids []bucket.ID, now int64, roles Roles) []Member {
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

// Meet sets the members of the roster: something is kept to be sent for each of
// them, and what was kept for others is dropped. Before it is called, and for
// others, Owe, Transfer and Next do nothing.
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
			o = &outbound{to: m, stamp: s.newStamp(), queue: queue{foldAt: s.caps.Fold, most: s.caps.Queued}}
		}
		met = append(met, o)
	}
	for _, o := range s.outbounds {
		if _, stays := slices.BinarySearchFunc(met, o.to, (*outbound).compare); stays {
			continue
		}
		// The member that was to have it has left, and no other may know it.
		for _, g := range slices.Concat(o.flight.gives, o.gives) {
			for _, m := range met {
				m.owe(g.ranges, s.clock)
			}
		}
	}
	s.outbounds = met
}

// Collect takes in what the store has spent, queues it for the members that have to know, and says
// for which members something waits and nothing is in flight. With hurried it
// takes in only what hurries. A member that answers for an id sends its copy to the id's
// targets; any other sends its vector to the member that answers.
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
// the whole of it else, which over reports. The next call goes on from there.
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
	next, changes := s.store.Collect(cursor, collectStep, hurried, s.changes[:0])
	s.collected(changes, now, roles)
	return s.ready(), next
}

func (s *Stream) collected(changes []bucket.Change, now int64, roles Roles) {
	for _, c := range changes {
		s.changed(c, now, roles, nil)
	}
	s.changes = changes
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

// Transfer queues the message that gives `to` authority over ranges. The message is sent once
// `to` has acknowledged all items that wait for it now. move is a number that rises with
// each move. From this call on, Roles must not say that this node holds them.
func (s *Stream) Transfer(to Member, move uint64, ranges Ranges, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(to)
	if o == nil {
		return
	}
	s.tick(now)
	for first := true; first || len(ranges) > 0; first = false {
		n := min(len(ranges), s.caps.Ranges)
		s.moves = max(s.moves+1, move)
		o.gives = append(o.gives, give{s.moves, ranges[:n:n], s.clock})
		ranges = ranges[n:]
	}
}

// RequestCounts asks all members for their counts of what this node answers for, or is a
// target of.
func (s *Stream) RequestCounts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requestCounts()
}

func (s *Stream) requestCounts() {
	for _, o := range s.outbounds {
		o.wantsCounts = true
	}
}

// Yield has this node owe what it has of ranges, over which it has lost authority
// otherwise than by Give, to the members that answer for it; and takes back what it was giving.
// It had begun apart from others, or was taken off the roster while it lived.
func (s *Stream) Yield(ranges Ranges, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	for _, o := range s.outbounds {
		for _, g := range slices.Concat(o.gives, o.flight.gives) {
			ranges = ranges.Union(g.ranges) // it is not this node's to give any more
		}
		o.gives, o.flight.gives = nil, nil
	}
	for _, o := range s.outbounds {
		o.owe(ranges, s.clock)
	}
}

// Leaving is told in every frame from now on.
func (s *Stream) Leaving() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving, s.forgoes = true, false
}

// Forgo has no states sent until Leaving is called again, of a node that leaves and has
// handed over what it held: they are copies of what others hold, and make new ones of.
func (s *Stream) Forgo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgoes = true
	for _, o := range s.outbounds {
		o.scan, o.scanning, o.rescans, o.owes, o.again = nil, false, false, false, false
	}
}

// Reset forgets the id's count and vector, here and, as its number is passed
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
// the one that is known, or not in time (ResetInTime), it changes nothing.
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
	case !ResetInTime(number, now):
		return false
	case !ok && s.resets.forgot(made):
		if (reset{made: made}).heeded(now) {
			s.resets.put(id, reset{number: number, made: made, passed: stamps{from}})
			s.store.Touch(id) // members that remember it have taken no state without its number
		}
		return true
	}
	switch t := (reset{number: number, made: made, passed: stamps{from}}); {
	case t.heeded(now):
		s.reset(id, number, made, from)
	case now-made <= learned && !(ok && known.heeded(now)):
		s.resets.put(id, t) // a member that has just loaded it can still heed it, and the count is from after it
	}
	return true
}

func (s *Stream) reset(id bucket.ID, number uint64, made int64, from stamp) {
	forget := func() {
		s.store.Reset(id, number)
		s.resets.put(id, reset{number: number, at: s.clock, made: made, passed: stamps{from}})
	}
	if s.whenReset != nil {
		s.whenReset(id, number, forget)
	} else {
		forget()
	}
	s.store.Touch(id)
	s.ledger.drop(id)
	s.bases.delete(id)
}

// Sweep takes one step: it forgets tallies that have recovered and tombstones
// that are old. It looks at a part of the tallies, sweepParts steps at most see all, so
// that how many there are follows from how many come in that time, however fast they come.
func (s *Stream) Sweep(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const resets, tallies = 1024, 64 // at least
	s.resets.sweep(now, resets)
	l := &s.ledger
	for range min(max(tallies, (l.all.len()+sweepParts-1)/sweepParts), l.all.len()) {
		if l.swept++; l.swept >= l.all.len() {
			l.swept = 0
		}
		if l.n == 0 {
			return
		}
		t := l.at(int32(l.swept))
		switch id := t.id; {
		case t.origin == 0:
		case !s.recovered(t, now):
			s.wane(id, now)
		case s.returned(id):
			l.drop(id) // a refund belongs to what was spent, by any member
		default:
			l.remove(int32(l.swept))
			s.fold(id)
		}
	}
}

// sweepParts is in how many steps all tallies are swept.
const sweepParts = 128

// remembered is for how long a tally that has recovered is kept, since it may
// arrive once more by another path: longer than a sweep of all tallies takes, so
// that by the time somebody forgets it, it counts nothing for anybody.
const remembered = int64(10e9)

// recovered reports whether a tally may be forgotten. A count that never runs empty does
// not show that a tally has recovered: its age does.
func (s *Stream) recovered(t *entry, now int64) bool {
	if t.changed > now { // the clock has stepped back
		t.changed = now
	}
	_, limit, _ := s.store.Used(t.id, now)
	changed, lasts := t.changed, lastsFor(&limit)
	if s.returned(t.id) { // it may be empty for that, and reclaimed
		limit, _ = s.store.Judge(t.id)
		lasts = lastsFor(&limit)
		for i := s.ledger.of(t.id); i != none; i = s.ledger.at(i).next {
			changed, lasts = max(changed, s.ledger.at(i).changed), max(lasts, s.ledger.at(i).lasts)
		}
	}
	return now-changed-remembered > lasts
}

// lastsFor is how long units that were spent of a limit can count.
func lastsFor(l *bucket.Limit) int64 { return int64(min(2*recovery(l), 1<<62)) }

// returned reports whether units of an id were refunded, as far as is known.
func (s *Stream) returned(id bucket.ID) bool {
	for i := s.ledger.of(id); i != none; i = s.ledger.at(i).next {
		if s.ledger.at(i).refunded > 0 {
			return true
		}
	}
	return s.store.Uncollected(id) < 0
}

// recovery is how long a count of this limit takes to empty at most, in
// nanoseconds, if it has no debt. A count that was asked for by a share, whose Burst may come
// to nothing, may have units of the whole limit.
func recovery(l *bucket.Limit) float64 {
	if l.Algorithm != bucket.TokenBucket && l.Algorithm != bucket.LeakyBucket {
		return 2 * float64(l.Per)
	}
	return float64(l.Per) * float64(max(l.Capacity(), l.Whole)) / max(float64(l.Rate), 1e-9)
}

// Tallies is how many are known.
func (s *Stream) Tallies() int { return s.Beside().Tallies }

// StreamStats is what is known beside counts.
type StreamStats struct {
	Tallies        int
	Resets         int    // their tombstones
	Bytes          int    // that these take, about
	TalliesDropped uint64 // that had not recovered, for want of room
	ResetsDropped  uint64 // tombstones that were forgotten before their time, for want of room
	Sent           uint64 // counts that frames to others had, again those that were sent again
}

// Beside returns what is known beside counts.
func (s *Stream) Beside() StreamStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return StreamStats{
		Tallies: s.ledger.len(), Resets: len(s.resets.of),
		Bytes:          s.ledger.len()*entryBytes + len(s.resets.of)*resetBytes + s.resets.order.len()*knownBytes,
		TalliesDropped: s.ledger.dropped, ResetsDropped: s.resets.dropped,
		Sent: s.sent,
	}
}

// Backlog is how much waits for a member.
type Backlog struct {
	Counts       int           // ids that it has not acknowledged; an id can be among them more than once
	Age          time.Duration // of the oldest of them
	Bulk         int           // of these, ids that a review has found
	Scanning     bool          // a scan is under way
	Transferring bool          // it is given authority, and has yet to take it
}

// Lag returns how much waits for a member.
func (s *Stream) Lag(to Member, now int64) Backlog {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(to)
	if o == nil {
		return Backlog{}
	}
	l := Backlog{Counts: len(o.flight.items) + o.queue.len() + o.bulk.len(), Bulk: o.bulk.len(), Scanning: o.scanning, Transferring: o.giving()}
	at, waits := o.queue.oldest()
	if len(o.flight.items) > 0 {
		at, waits = o.flight.items[0].at, true
	}
	if waits {
		l.Age = time.Duration(max(0, now-at))
	}
	return l
}

// Idle reports whether nothing is owed to a member, queued for it or in flight, and no review
// is under way that may find something.
func (s *Stream) Idle(to Member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(to)
	return o == nil || o.flight.number == 0 && !o.ready() && !s.reviewing
}

// Time returns the time of the stream, for Acknowledged. Items that are collected later have a later
// time.
func (s *Stream) Time() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

// Acknowledged reports whether a member has acknowledged all that was owed to it, queued for it or
// in flight at a time of the stream, and no review is under way.
func (s *Stream) Acknowledged(to Member, at int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(to)
	return o == nil || o.acknowledged(at) && !s.reviewing
}

// Transferring reports whether authority that was given has not been taken yet.
func (s *Stream) Transferring() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.outbounds, (*outbound).giving)
}

func (s *Stream) tick(now int64) { s.clock = max(s.clock+1, now) }

func (s *Stream) outbound(to Member) *outbound {
	i, ok := slices.BinarySearchFunc(s.outbounds, to, (*outbound).compare)
	if !ok {
		return nil
	}
	return s.outbounds[i]
}

func (o *outbound) compare(to Member) int { return cmp.Compare(o.to, to) }

func (s *Stream) ready() (members []Member) {
	for _, o := range s.outbounds {
		if o.ready() {
			members = append(members, o.to)
		}
	}
	return members
}

// changed queues a change for the members that have to know. One that came while a frame for a
// member was built, except, is not queued for it.
func (s *Stream) changed(c bucket.Change, now int64, roles Roles, except *outbound) {
	id := c.ID
	s.bases.delete(id)
	s.holdings.noteSpent(id, c.Units)
	holds := roles.Holds(id)
	if c.Folded && c.Units != 0 && s.ledger.has(id) { // the store had none of it, and took it for new
		s.store.SetTotal(id, bucket.Total{})
		c.Folded = false
	}
	if !c.Folded {
		s.addOwn(id, c.Units, now)
	} else if c.Units != 0 && !holds {
		s.unfold(id, 0, now) // a review is to find it
	}
	if !holds && roles.Answers(id) != s.self {
		if to, _ := s.passee(id, roles); !s.passed(id, to, now) {
			s.pass(id, roles)
		}
		return
	}
	s.setStamp(id, home)
	s.send(id, roles, except)
	if holds {
		s.fold(id)
	}
}

// vector appends id's to v, which is empty.
func (s *Stream) vector(v vector, id bucket.ID, now int64) vector {
	if s.ledger.has(id) {
		return s.ledger.vector(v, id)
	}
	if t, ok := s.store.TotalOf(id); ok && t.Origin != 0 {
		v = append(v, s.single(id, t, 0, now))
	}
	return v
}

// single is the tally that a store keeps of a count: all that was in use is of it, before
// units were spent that are not in it; what recovers first is the oldest. When it last grew
// is not known.
func (s *Stream) single(id bucket.ID, t bucket.Total, units, now int64) tally {
	used := max(0, s.store.Collected(id, now)-units)
	return tally{origin: t.Origin, series: t.Series, spent: int64(t.Spent), expired: max(0, int64(t.Spent)-used), changed: now}
}

// wane notes of id's tallies what counts no more: of no origin is more in use than of
// all. Others may have forgotten a tally whose units have recovered, and would count what
// an older copy brings back of it.
//
// Where units were refunded it notes nothing: these belong to what was spent, and other
// members may have heard of that. Nor of a count that is not held: it may have been evicted.
func (s *Stream) wane(id bucket.ID, now int64) {
	if !s.ledger.has(id) || s.returned(id) {
		return
	}
	if _, held := s.store.Judge(id); !held {
		return
	}
	used, _, _ := s.store.Used(id, now)
	for i := s.ledger.of(id); i != none; i = s.ledger.at(i).next {
		t := s.ledger.at(i)
		t.expired = max(t.expired, t.spent-used)
	}
}

// unfold has the ledger keep id's vector, which the store has kept, as units are spent
// that are not in it.
func (s *Stream) unfold(id bucket.ID, units, now int64) {
	if s.ledger.has(id) {
		return
	}
	if t, ok := s.store.TotalOf(id); ok && t.Origin != 0 {
		limit, _ := s.store.Judge(id)
		s.ledger.add(id, s.single(id, t, units, now)).lasts = lastsFor(&limit)
		s.store.SetTotal(id, bucket.Total{})
	}
}

// fold moves id's vector from the ledger to the store, if it is one tally of another origin,
// of which nothing was refunded, and the holder knows it.
func (s *Stream) fold(id bucket.ID) {
	i := s.ledger.of(id)
	if i == none || s.ledger.at(i).next != none || s.ledger.at(i).kept {
		return
	}
	if t, ok := s.ledger.at(i).total(); ok && t.Origin != s.self {
		s.store.SetTotal(id, t)
		s.ledger.drop(id)
	}
}

// join makes id's vector the join of itself and another, and says whose the count is,
// nobody's if the ledger says it: in any case of what is to be passed on, so that a
// review finds it.
func (s *Stream) join(id bucket.ID, v vector, l *bucket.Limit, passOn bool, now int64) (whose bucket.Total, grew bool) {
	if !s.ledger.has(id) && !passOn {
		t, _ := s.store.TotalOf(id)
		if len(v) == 1 && v[0].origin != s.self && (t.Origin == 0 || t.Origin == v[0].origin) {
			known := tally{origin: v[0].origin}
			if t.Origin != 0 {
				known = s.single(id, t, 0, now)
			}
			if !v[0].later(&known) {
				return t, false
			}
			if whose, ok := v[0].total(); ok {
				return whose, true
			}
		}
	}
	s.unfold(id, 0, now)
	return bucket.Total{}, s.ledger.join(id, v, lastsFor(l), passOn)
}

// addOwn adds to this node's own tally of an id.
func (s *Stream) addOwn(id bucket.ID, units, now int64) {
	s.unfold(id, units, now)
	own := s.ledger.find(id, s.self)
	if own == nil {
		own = s.ledger.add(id, tally{origin: s.self})
		own.heard = true
	}
	limit, held := s.store.Judge(id)
	if own.heard || held && lapsed(own, &limit, now) {
		s.ledger.forget(own)
		t := s.store.NewTotal(id)
		own.tally, own.heard = tally{origin: s.self, series: t.Series, spent: int64(t.Spent), expired: int64(t.Spent)}, false
	}
	own.passed, own.changed, own.lasts = stamps{}, now, max(own.lasts, lastsFor(&limit))
	if units > 0 {
		own.spent += units
	} else {
		own.refunded -= units
	}
}

// lapsed reports whether all that a tally says has recovered by its age: what its origin goes
// on with is another, or a member that hears of this one first would count it whole.
func lapsed(t *entry, l *bucket.Limit, now int64) bool {
	return now-t.changed >= agesOf(l, now).recovered
}

// flush takes in what has been spent of an id since it was collected.
func (s *Stream) flush(id bucket.ID, now int64, roles Roles) (changed bool) {
	c, changed := s.store.CollectOne(id)
	if changed {
		s.clock++ // one time queues each id once
		s.changed(c, now, roles, nil)
	}
	return changed
}

// send queues a state for all of the id's targets but one.
func (s *Stream) send(id bucket.ID, roles Roles, except *outbound) {
	s.targets = roles.Targets(s.targets[:0], id)
	for _, to := range s.targets {
		if o := s.outbound(to); o != nil && o != except {
			s.push(o, item{id: id, at: s.clock, kind: state})
		}
	}
}

// push queues an item. If too many wait for the member, a scan brings it.
func (s *Stream) push(o *outbound, it item) {
	if !o.queue.push(it) {
		o.stamp = s.newStamp() // because the scan must also bring the items that were passed on before
		o.oweRest(s.clock)
	}
}

// pass queues an id's vector and its reset number for the member that answers for it; if that
// is this node, then as part of the state for its targets.
func (s *Stream) pass(id bucket.ID, roles Roles) {
	if !s.ledger.has(id) {
		if _, ok := s.resets.get(id); !ok {
			return
		}
	}
	switch to, o := s.passee(id, roles); {
	case to == home:
		s.setStamp(id, home)
		s.send(id, roles, nil)
	case o != nil:
		s.setStamp(id, to) // before the stamp of the member may change
		s.push(o, item{id: id, at: s.clock, kind: spend})
	}
}
