package countsync

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
)

// Member identifies a member by the hash of its name, which differs at every start. 0 is no
// member.
type Member = uint64

// Roles provides the roles of members for an id in the current view of the node. The Stream calls
// its methods with the lock held, so they must not call the Stream. The calls come from several
// goroutines, but never at the same time.
type Roles interface {
	// Holds reports whether this node has authority over id.
	Holds(id bucket.ID) bool
	// Holder returns the member with authority over id, as far as is known. Holder returns 0 if
	// it is possible that no member has authority, or only a member that has left the roster.
	Holder(id bucket.ID) Member
	// Answers returns the member that answers for id now: the member with authority or its
	// stand-in, which may be this node. Answers returns 0 if no such member is reachable.
	Answers(id bucket.ID) Member
	// Targets appends the members that receive the state of id from this node. This node has
	// authority over id, stands in for the member with authority, or has a copy and leaves. The
	// targets are successors, joiners and the next owner, but never this node.
	Targets(dst []Member, id bucket.ID) []Member
}

// Stream is the part of the stream on a node. Its methods are safe for concurrent use. They use a
// single lock, under which each method does a bounded amount of work. The argument now is the
// time in nanoseconds by the clock of this node, which is also the clock of its store.
//
// The vector of an id is either in the store, as the Total of its count, or in the ledger, but
// never in both: unfold moves the vector to the ledger, and fold moves it back. Merges rely on
// that, because the units of a tally in both places would count twice.
//
// The lock is acquired before the locks of the holdings and of the store. Code that holds such a
// lock must not call the stream.
type Stream struct {
	self  Member
	store *bucket.Store
	caps  Caps

	mu        sync.Mutex
	clock     int64       // stream time, which is now or later. It rises with each call that queues items, and so determines the order of the items
	number    uint64      // number of the last frame
	sent      uint64      // number of items in all frames so far
	moves     uint64      // number of the last transfer; a transfer that arrives twice is applied once
	leaving   bool        // set by Leaving: all frames have the leaving flag
	forgoes   bool        // set by Forgo: no states are sent
	outbounds []*outbound // sorted by member
	inbounds  inbounds
	loading   inbound // receives blocks of snapshots
	ledger    ledger
	resets    *resets
	holdings  *Holdings    // nil if there are no other regions
	whenReset ResetHook    // may be nil
	bases     recent[base] // the frame that brought each log; no entry for a log that has changed since

	cursor int // position of CollectPart

	reviewing bool   // a review has not visited all resets and tallies yet
	reviewed  review // position of the review
	stamps    stamp  // latest stamp

	changes []bucket.Change // this field and those below are used within one call
	ids     []bucket.ID
	targets []Member
	seen    vector
	mine    vector
	limits  limits
	origins origins
	itemIDs []byte // ids in the frame that is being built
	items   []byte // items in that frame
	count   bucket.Count
}

// New returns the stream of a node with a store. New does not call the store: the owner of the
// store calls Track.
func New(self Member, store *bucket.Store) *Stream {
	return &Stream{
		self: self, store: store, caps: Caps{}.withDefaults(),
		inbounds: newInbounds(), ledger: newLedger(self, store), resets: newResets(),
	}
}

// Begin sets the Member that identifies this node to other members. Until then, the stream has the
// Member that was passed to New, which is 0 if the node had no name yet. Begin must be called before
// the stream returns any data for other members. It must also be called before the Roles of a view
// that includes this node are used, because the holdings read their Member without the lock of the
// stream.
func (s *Stream) Begin(self Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.self, s.ledger.self = self, self
	if s.holdings != nil {
		s.holdings.self = self
	}
}

// ResetHook is called for each reset that this node applies, from this node or from another node.
// ResetHook must call reset once. Before that call, the count and ResetNumber are unchanged. After it,
// there is no count, and ResetNumber returns number. The hook runs under a lock, and must not
// call any method of the stream except ResetNumber.
type ResetHook func(id bucket.ID, number uint64, reset func())

// WhenReset sets the function that is called for each reset. WhenReset must be called before the
// stream is used.
func (s *Stream) WhenReset(f ResetHook) { s.whenReset = f }

// ResetNumber returns the number of the last reset of id that this node knows of and that is
// still in effect, or 0 if there is none. Units that were lent, granted or denied under a lower
// number belong to a count that no longer exists. ResetNumber does not wait for a frame, and is
// safe for concurrent use.
func (s *Stream) ResetNumber(id bucket.ID, now int64) uint64 {
	return s.resets.effectiveNumber(id, now)
}

// Hold makes the stream send and receive the holdings h in the same way as counts. Hold must
// be called after Cap, and before the stream is used.
func (s *Stream) Hold(h *Holdings) {
	s.holdings = h
	if h != nil {
		h.reports = s.caps.Reports
	}
}

// Replicate queues the holdings of ids, which have changed, for the targets of these ids. If this
// node no longer answers for an id, its holding is queued for the member that does. Replicate
// returns the same members as Collect.
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

// Meet sets the members of the roster. The stream keeps data for each of them, and drops the data
// for all other members. Before the first call, and for other members, Owe, Transfer and Next do
// nothing.
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
		// The receiver of this transfer has left, and possibly no other member knows the counts.
		for _, g := range slices.Concat(o.flight.transfers, o.transfers) {
			for _, m := range met {
				m.owe(g.ranges, s.clock)
			}
		}
	}
	s.outbounds = met
}

// Collect reads the changes of the store and queues them for other members. Collect returns the
// members for which data waits and no frame is in flight. If the argument hurried is true, Collect
// reads only changes for which the store has signalled hurry. If this node answers for an id, the
// copy of this node is queued for the targets of the id. Otherwise the vector is queued for the
// answering member.
func (s *Stream) Collect(now int64, hurried bool, roles Roles) (ready []Member) {
	for cursor, over := 0, false; !over; over = cursor == 0 {
		s.mu.Lock()
		ready, cursor = s.collect(cursor, hurried, now, roles)
		s.mu.Unlock()
	}
	return ready
}

// collectPart is the approximate number of changes that CollectPart collects. Their slots fit
// into the second-level cache of a processor until they are sent. collectStep is the number of
// changes that are collected under one lock.
const (
	collectPart = 2048
	collectStep = 512
)

// CollectPart is like Collect, but covers only a part of the store if there are many changes.
// The result done reports whether it has reached the end of the store. The next call continues from there.
func (s *Stream) CollectPart(now int64, roles Roles) (ready []Member, done bool) {
	for n := 0; n < collectPart && !done; n += collectStep {
		s.mu.Lock()
		ready, s.cursor = s.collect(s.cursor, false, now, roles)
		done = s.cursor == 0
		s.mu.Unlock()
	}
	return ready, done
}

// collect collects the changes in a part of the store.
func (s *Stream) collect(cursor int, hurried bool, now int64, roles Roles) (ready []Member, next int) {
	s.tick(now)
	next, changes := s.store.Collect(cursor, collectStep, hurried, s.changes[:0])
	s.applyChanges(changes, now, roles)
	return s.ready(), next
}

func (s *Stream) applyChanges(changes []bucket.Change, now int64, roles Roles) {
	for _, c := range changes {
		s.applyChange(c, now, roles, nil)
	}
	s.changes = changes
}

// Owe makes the stream send a member all counts in the given ranges of which the member is a target
// or the stand-in. A scan of the store finds the counts in bounded steps. Complete is sent after the
// scan, even if there are no ranges. If a scan for the member is in progress and there are ranges,
// the scan starts again.
func (s *Stream) Owe(member Member, ranges Ranges) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.outbound(member); o != nil {
		o.owe(ranges, s.clock)
	}
}

// Transfer queues a message that transfers the authority over the ranges to a member, or several
// messages if there are more than Caps.Ranges ranges. A message is sent once the member has
// acknowledged all items that wait for it now, except for the items that a review has queued
// (Backlog.Bulk). The argument move is a number that rises with each transfer. From this call on,
// Roles must not report that this node holds the ranges.
func (s *Stream) Transfer(member Member, move uint64, ranges Ranges, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(member)
	if o == nil {
		return
	}
	s.tick(now)
	for first := true; first || len(ranges) > 0; first = false {
		n := min(len(ranges), s.caps.Ranges)
		s.moves = max(s.moves+1, move)
		o.transfers = append(o.transfers, transfer{s.moves, ranges[:n:n], s.clock})
		ranges = ranges[n:]
	}
}

// RequestCounts asks all members for the counts for which this node answers, or of which it is a
// target.
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

// Yield sends the counts in the given ranges to the members that answer for these counts. This node
// has lost the authority over the ranges without a call of Transfer, because this node began
// separately from other members, or was removed from the roster while it was alive. Yield also
// cancels all transfers that have not been acknowledged.
func (s *Stream) Yield(ranges Ranges, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	for _, o := range s.outbounds {
		for _, g := range slices.Concat(o.transfers, o.flight.transfers) {
			ranges = ranges.Union(g.ranges) // this node must not transfer these ranges any more
		}
		o.transfers, o.flight.transfers = nil, nil
	}
	for _, o := range s.outbounds {
		o.owe(ranges, s.clock)
	}
}

// Leaving sets the leaving flag in all later frames. Leaving also ends the effect of Forgo.
func (s *Stream) Leaving() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving, s.forgoes = true, false
}

// Forgo stops sending states until Leaving is called again. Forgo is called by a node that leaves
// and has transferred its authority. The states of such a node are copies of counts that other
// members hold, and these members make new copies.
func (s *Stream) Forgo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgoes = true
	for _, o := range s.outbounds {
		o.scan, o.scanning, o.rescans, o.owes, o.again = nil, false, false, false, false
	}
}

// Reset deletes the count and the vector of id. The number of the reset is sent like a change of
// the count. A node that receives the number applies the reset, even if it has no such count. Reset
// returns the number, for ResetTo on other nodes.
func (s *Stream) Reset(id bucket.ID, now int64) (number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	before, _ := s.resets.get(id)
	number = max(before.number+1, uint64(max(0, now)))
	s.reset(id, number, now, noStamp)
	return number
}

// ResetTo applies a reset of another node. The argument age is the time that has passed since the
// reset. If the given number is not above the known number, or not in time (ResetInTime), ResetTo
// changes nothing. A reset deletes no count if the reset is no longer in effect, or if this node may
// have forgotten the reset.
func (s *Stream) ResetTo(id bucket.ID, number uint64, age time.Duration, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick(now)
	s.raise(id, number, now-int64(max(0, age)), now, noStamp)
}

// raise applies a reset if it is new. The parameter from is the stamp of a member that is known to
// have the reset, or noStamp. raise reports whether data with this number still counts. It returns
// false if a later reset is in effect, or if the number is new and ResetInTime refuses it.
func (s *Stream) raise(id bucket.ID, number uint64, made, now int64, from stamp) bool {
	known, ok := s.resets.get(id)
	switch {
	case !ok && number == 0:
		return true
	case number == known.number:
		if from != noStamp && known.passed == (stamps{}) {
			s.resets.pass(id, from)
		}
		return true
	case number < known.number:
		return !known.isEffective(now)
	case !ResetInTime(number, now):
		return false
	case !ok && s.resets.forgot(made):
		if (reset{made: made}).isEffective(now) {
			s.resets.put(id, reset{number: number, made: made, passed: stamps{from}})
			s.store.Touch(id) // a member that remembers the reset accepts a state only with the number of the reset
		}
		return true
	}
	switch t := (reset{number: number, made: made, passed: stamps{from}}); {
	case t.isEffective(now):
		s.reset(id, number, made, from)
	case now-made <= learnedFor && !(ok && known.isEffective(now)):
		s.resets.put(id, t) // because a member that has loaded the reset from a snapshot may still apply it, to a count from after the reset that has no number
	}
	return true
}

func (s *Stream) reset(id bucket.ID, number uint64, made int64, from stamp) {
	forget := func() {
		s.store.Reset(id, number)
		s.resets.put(id, reset{number: number, made: made, passed: stamps{from}})
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

// Sweep forgets tallies that have recovered and tombstones that are old. Each call examines a
// part of the tallies, and sweepParts calls examine all of them. The number of recovered
// tallies in the ledger is therefore bounded by the number that recover during that time, however
// fast tallies arrive.
func (s *Stream) Sweep(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const resets, tallies = 1024, 64 // maximum number of examined resets, minimum number of examined tallies
	s.resets.sweep(now, resets)
	l := &s.ledger
	for range min(max(tallies, (l.all.len()+sweepParts-1)/sweepParts), l.all.len()) {
		if l.swept++; l.swept >= l.all.len() {
			l.swept = 0
		}
		if l.n == 0 {
			return
		}
		t := l.entry(int32(l.swept))
		switch id := t.id; {
		case t.origin == 0:
		case !s.isRecovered(t, now):
			s.recordExpired(id, now)
		case s.hasRefunds(id):
			l.drop(id) // all tallies of id, because the refunds may belong to units of any origin
		default:
			l.remove(int32(l.swept))
			s.fold(id)
		}
	}
}

// sweepParts is a number of calls of Sweep that is enough to examine all tallies.
const sweepParts = 128

// rememberedFor is the time for which a recovered tally is kept, because the tally may arrive
// again by another path. A sweep of all tallies takes less time, so when one member forgets the
// tally, the units no longer count on any member.
const rememberedFor = int64(10e9)

// isRecovered reports whether a tally may be forgotten. If a count is never empty, only the age of
// a tally shows that it has recovered.
func (s *Stream) isRecovered(t *entry, now int64) bool {
	if t.changed > now { // the clock has stepped back
		t.changed = now
	}
	_, limit, _ := s.store.Used(t.id, now)
	changed, lasts := t.changed, lastsFor(&limit)
	if s.hasRefunds(t.id) { // the count may be empty because of the refunds, and reclaimed
		limit, _ = s.store.Judge(t.id)
		lasts = lastsFor(&limit)
		for i := s.ledger.firstEntry(t.id); i != noEntry; i = s.ledger.entry(i).next {
			changed, lasts = max(changed, s.ledger.entry(i).changed), max(lasts, s.ledger.entry(i).lasts)
		}
	}
	return now-changed-rememberedFor > lasts
}

// lastsFor returns the time for which spent units of a limit can count.
func lastsFor(l *bucket.Limit) int64 { return int64(min(2*recovery(l), 1<<62)) }

// hasRefunds reports whether units of an id were refunded, as far as is known.
func (s *Stream) hasRefunds(id bucket.ID) bool {
	for i := s.ledger.firstEntry(id); i != noEntry; i = s.ledger.entry(i).next {
		if s.ledger.entry(i).refunded > 0 {
			return true
		}
	}
	return s.store.Uncollected(id) < 0
}

// recovery returns the maximum time in nanoseconds in which a count of this limit becomes empty,
// if the count has no debt. If a share judged the count, the capacity of the share may be zero,
// but the count may have units of the whole limit.
func recovery(l *bucket.Limit) float64 {
	if l.Algorithm != bucket.TokenBucket && l.Algorithm != bucket.LeakyBucket {
		return 2 * float64(l.Per)
	}
	return float64(l.Per) * float64(max(l.Capacity(), l.Whole)) / max(float64(l.Rate), 1e-9)
}

// Tallies returns the number of tallies.
func (s *Stream) Tallies() int { return s.Stats().Tallies }

// StreamStats describes the data of a stream other than counts.
type StreamStats struct {
	Tallies        int
	Resets         int    // number of tombstones
	Bytes          int    // approximate size of the tallies and tombstones
	TalliesDropped uint64 // tallies that were dropped for want of room, and may not have recovered
	ResetsDropped  uint64 // tombstones that were forgotten early, for want of room
	Sent           uint64 // number of items in frames to other members: states, spends and holdings; an item that is sent again is counted again
}

// Stats returns the sizes of the data other than counts.
func (s *Stream) Stats() StreamStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return StreamStats{
		Tallies: s.ledger.len(), Resets: len(s.resets.byID),
		Bytes:          s.ledger.len()*entryBytes + len(s.resets.byID)*resetBytes + s.resets.order.len()*knownBytes,
		TalliesDropped: s.ledger.dropped, ResetsDropped: s.resets.dropped,
		Sent: s.sent,
	}
}

// Backlog describes the data that waits for a member.
type Backlog struct {
	Counts       int           // number of ids, queued or in flight, that the member has not acknowledged; the same id may be counted more than once
	Age          time.Duration // age of the oldest id that is queued or in flight, without Bulk
	Bulk         int           // how many of the ids in Counts a review has queued; ids in flight are not included
	Scanning     bool          // a scan for the member is in progress
	Transferring bool          // authority is being transferred to the member, which has not acknowledged the transfer
}

// Lag returns the data that waits for a member.
func (s *Stream) Lag(member Member, now int64) Backlog {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(member)
	if o == nil {
		return Backlog{}
	}
	l := Backlog{Counts: len(o.flight.items) + o.queue.len() + o.bulk.len(), Bulk: o.bulk.len(), Scanning: o.scanning, Transferring: o.isTransferring()}
	at, waits := o.queue.oldest()
	if len(o.flight.items) > 0 {
		at, waits = o.flight.items[0].at, true
	}
	if waits {
		l.Age = time.Duration(max(0, now-at))
	}
	return l
}

// Idle reports whether no data is owed to a member, queued for it or in flight, and no review is
// in progress, which may find more data.
func (s *Stream) Idle(member Member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(member)
	return o == nil || o.flight.number == 0 && !o.ready() && !s.reviewing
}

// Time returns the stream time, for Acknowledged. Items that are collected later have a later
// time.
func (s *Stream) Time() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

// Acknowledged reports whether no review is in progress, and the member has acknowledged all data
// that was owed to it, queued for it or in flight to it at the given stream time.
func (s *Stream) Acknowledged(member Member, at int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(member)
	return o == nil || o.acknowledged(at) && !s.reviewing
}

// Transferring reports whether a transfer of authority has not been acknowledged yet.
func (s *Stream) Transferring() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.outbounds, (*outbound).isTransferring)
}

func (s *Stream) tick(now int64) { s.clock = max(s.clock+1, now) }

func (s *Stream) outbound(member Member) *outbound {
	i, ok := slices.BinarySearchFunc(s.outbounds, member, (*outbound).compare)
	if !ok {
		return nil
	}
	return s.outbounds[i]
}

func (o *outbound) compare(member Member) int { return cmp.Compare(o.to, member) }

func (s *Stream) ready() (members []Member) {
	for _, o := range s.outbounds {
		if o.ready() {
			members = append(members, o.to)
		}
	}
	return members
}

// applyChange queues a change for the members that need it. If the argument except is not nil, the
// frame that is being built for this member contains the change, so the change is not queued for it.
func (s *Stream) applyChange(c bucket.Change, now int64, roles Roles, except *outbound) {
	id := c.ID
	s.bases.delete(id)
	s.holdings.recordSpent(id, c.Units)
	holds := roles.Holds(id)
	if c.Folded && c.Units != 0 && s.ledger.contains(id) { // the store had no count of id, and treated the units as units of a new count
		s.store.SetTotal(id, bucket.Total{})
		c.Folded = false
	}
	if !c.Folded {
		s.addOwn(id, c.Units, now)
	} else if c.Units != 0 && !holds {
		s.unfold(id, 0, now) // so that a review finds the tally
	}
	if !holds && roles.Answers(id) != s.self {
		if to, _ := s.receiver(id, roles); !s.isPassed(id, to, now) {
			s.passOn(id, roles)
		}
		return
	}
	s.setStamp(id, home)
	s.send(id, roles, except)
	if holds {
		s.fold(id)
	}
}

// vector appends the tallies of id to v, which must be empty.
func (s *Stream) vector(v vector, id bucket.ID, now int64) vector {
	if s.ledger.contains(id) {
		return s.ledger.vector(v, id)
	}
	if t, ok := s.store.TotalOf(id); ok && t.Origin != 0 {
		v = append(v, s.storedTally(id, t, 0, now))
	}
	return v
}

// storedTally returns the tally that a store keeps of a count. All used units belong to this tally,
// except for the given number of units, which this node has just collected as its own. The oldest
// units recover first. The time at which the tally last grew is not known.
func (s *Stream) storedTally(id bucket.ID, t bucket.Total, units, now int64) tally {
	used := max(0, s.store.Collected(id, now)-units)
	return tally{origin: t.Origin, series: t.Series, spent: int64(t.Spent), expired: max(0, int64(t.Spent)-used), changed: now}
}

// recordExpired records which units in the tallies of id no longer count: the used units of an
// origin are never more than the used units of the count. Another member may have forgotten a
// tally after its units have recovered. If an older copy then brought the tally back, the member
// would count these units again.
//
// If units were refunded, recordExpired does nothing: the refunds belong to spent units, of which
// other members may have heard. It also ignores a count that is not in the store, because the
// count may have been evicted.
func (s *Stream) recordExpired(id bucket.ID, now int64) {
	if !s.ledger.contains(id) || s.hasRefunds(id) {
		return
	}
	if _, held := s.store.Judge(id); !held {
		return
	}
	used, _, _ := s.store.Used(id, now)
	for i := s.ledger.firstEntry(id); i != noEntry; i = s.ledger.entry(i).next {
		t := s.ledger.entry(i)
		t.expired = max(t.expired, t.spent-used)
	}
}

// unfold moves the vector of id from the store to the ledger. The argument units is the number of
// used units that are not in the vector, because this node has just collected them as its own.
func (s *Stream) unfold(id bucket.ID, units, now int64) {
	if s.ledger.contains(id) {
		return
	}
	if t, ok := s.store.TotalOf(id); ok && t.Origin != 0 {
		limit, _ := s.store.Judge(id)
		s.ledger.add(id, s.storedTally(id, t, units, now)).lasts = lastsFor(&limit)
		s.store.SetTotal(id, bucket.Total{})
	}
}

// fold moves the vector of id from the ledger to the store, if the vector is a single tally of
// another origin without refunds, and the holder knows it.
func (s *Stream) fold(id bucket.ID) {
	i := s.ledger.firstEntry(id)
	if i == noEntry || s.ledger.entry(i).next != noEntry || s.ledger.entry(i).kept {
		return
	}
	if t, ok := s.ledger.entry(i).total(); ok && t.Origin != s.self {
		s.store.SetTotal(id, t)
		s.ledger.drop(id)
	}
}

// join adds v to the vector of id, and reports whether the vector grew. It returns the total that
// the caller must give the count, which has no origin if the vector is in the ledger. If passOn is
// set, the vector is in the ledger, so that a review finds it.
func (s *Stream) join(id bucket.ID, v vector, l *bucket.Limit, passOn bool, now int64) (whose bucket.Total, grew bool) {
	if !s.ledger.contains(id) && !passOn {
		t, _ := s.store.TotalOf(id)
		if len(v) == 1 && v[0].origin != s.self && (t.Origin == 0 || t.Origin == v[0].origin) {
			known := tally{origin: v[0].origin}
			if t.Origin != 0 {
				known = s.storedTally(id, t, 0, now)
			}
			if !v[0].isLater(&known) {
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

// addOwn adds to this node's own tally of an id. Negative units are refunds.
func (s *Stream) addOwn(id bucket.ID, units, now int64) {
	s.unfold(id, units, now)
	own := s.ledger.find(id, s.self)
	if own == nil {
		own = s.ledger.add(id, tally{origin: s.self})
		own.heard = true
	}
	limit, held := s.store.Judge(id)
	if own.heard || held && isLapsed(own, &limit, now) {
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

// isLapsed reports whether a tally is so old that all of its units have recovered. Its origin
// then begins another tally, because a member that first hears of the old tally would count
// the recovered units.
func isLapsed(t *entry, l *bucket.Limit, now int64) bool {
	return now-t.changed >= agesOf(l, now).recovered
}

// collectOne collects the units of id that were spent since the last collection.
func (s *Stream) collectOne(id bucket.ID, now int64, roles Roles) (changed bool) {
	c, changed := s.store.CollectOne(id)
	if changed {
		s.clock++ // an id is queued only once with the same stream time
		s.applyChange(c, now, roles, nil)
	}
	return changed
}

// send queues a state for the targets of id, except for the given member.
func (s *Stream) send(id bucket.ID, roles Roles, except *outbound) {
	s.targets = roles.Targets(s.targets[:0], id)
	for _, to := range s.targets {
		if o := s.outbound(to); o != nil && o != except {
			s.push(o, item{id: id, at: s.clock, kind: state})
		}
	}
}

// push queues an item. If too many items wait for the member, a scan sends the item later.
func (s *Stream) push(o *outbound, it item) {
	if !o.queue.push(it) {
		o.stamp = s.newStamp() // because the scan must also send the items that were passed on before
		o.oweRest(s.clock)
	}
}

// passOn queues the vector and the reset number of id for the member that answers for id. If this
// node answers for id, passOn queues them with the state for the targets of id.
func (s *Stream) passOn(id bucket.ID, roles Roles) {
	if !s.ledger.contains(id) {
		if _, ok := s.resets.get(id); !ok {
			return
		}
	}
	switch to, o := s.receiver(id, roles); {
	case to == home:
		s.setStamp(id, home)
		s.send(id, roles, nil)
	case o != nil:
		s.setStamp(id, to) // before push, which may change the stamp of the member
		s.push(o, item{id: id, at: s.clock, kind: spend})
	}
}
