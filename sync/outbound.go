package countsync

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"

	"github.com/weir-go/weir/bucket"
)

// outbound is what one member is to be sent: a queue, of which one frame is in
// flight. All that it keeps is bounded; when too much waits, what waits is
// dropped for a scan of the whole store.
type outbound struct {
	to     Member
	stamp  stamp // what it has been sent bears
	queue  queue
	bulk   deque[bucket.ID] // whose tallies and resets a review found for it: each at most once, and sent behind queue
	flight flight

	scan     Ranges // owed by scans, of which Complete has not been acknowledged
	scanning bool
	began    int64  // the stream's time when it began, 0 if it is to bring what waited before that
	beside   review // how far it is through the resets and tallies, which come first
	counts   bool   // it is through them
	cursor   uint64 // how far it is through the store
	owes     bool   // Complete has not been told yet since Owe
	owed     int64  // the stream's time of Owe, or when the scan was over

	sent Ranges // that a scan has brought once: what changes there has been queued ever since

	gives []give
	begs  bool

	refused bool // it has refused a state, as who knows better
	again   bool // it begs for everything, and is to have it once the scan that is under way has come

	// covered are ids whose state was acknowledged while older items of theirs
	// may wait still, with the time up to which those are part of that state.
	covered []item

	marks map[bucket.ID]piece // of logs, what the member has
}

// give is authority to be told of after all that was queued before it.
type give struct {
	move   uint64
	ranges Ranges
	at     int64
}

// piece says which frame brought a log up to which mark.
type piece struct {
	mark   bucket.Mark
	number uint64
}

// flight is the frame that has no answer yet. It stays until it is known
// whether it was applied.
type flight struct {
	number   uint64 // 0 if there is none
	at       int64  // the stream's time when it was built
	lost     bool
	asked    bool // about: it was sent, and got no answer
	items    []item
	more     []int   // items that are the piece of a log which more follow
	marks    []piece // of logs: their mark once it is applied
	marked   []int   // the items that marks are of
	riders   []rider
	gives    []give
	complete bool
	begs     bool
}

// rider is units that came to an item when the frame was built.
type rider struct {
	of   int
	item item
}

func (f *flight) clear() {
	*f = flight{items: f.items[:0], riders: f.riders[:0], marks: f.marks[:0], marked: f.marked[:0], more: f.more[:0]}
}

// states are the items and riders that are states.
func (f *flight) states() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for i := range f.items {
			if f.items[i].kind == state && !yield(&f.items[i]) {
				return
			}
		}
		for i := range f.riders {
			if !yield(&f.riders[i].item) {
				return
			}
		}
	}
}

// states are the items that are states, and wait or are in flight.
func (o *outbound) states() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for it := range o.queue.all() {
			if it.kind == state && !yield(it) {
				return
			}
		}
		o.flight.states()(yield)
	}
}

// statesOf is states of these ids, and of others where it is no more work.
func (o *outbound) statesOf(ids []bucket.ID) iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for it := range o.queue.of(ids) {
			if it.kind == state && !yield(it) {
				return
			}
		}
		o.flight.states()(yield)
	}
}

const (
	scanBelow = 256  // items that wait, for a scan to go on
	scanLooks = 4096 // counts, about, that one frame's scan looks at: it goes by pieces of the store

	scanBesides  = 8192 // resets, at most, that one frame's scan looks at
	besideCost   = 8    // of these a tally counts for, and as many more what it may have to send
	besidesBelow = 512  // items that wait, for it to go on with these: a frame of tombstones
	maxMarks     = 64 << 10
)

// due is whether what came up to a time is acknowledged: nothing older waits, nor has
// a scan yet to bring it.
func (o *outbound) due(at int64) bool {
	oldest, waits := o.queue.oldest()
	return (!o.scanning || o.began >= at) && (!waits || oldest > at)
}

// ready is whether there is something to be sent now.
func (o *outbound) ready() bool {
	if o.flight.number != 0 {
		return o.flight.lost
	}
	return o.queue.len() > 0 || o.bulk.len() > 0 || o.scanning || o.owes || o.begs || len(o.gives) > 0
}

func (o *outbound) giving() bool { return len(o.gives)+len(o.flight.gives) > 0 }

func (o *outbound) owe(ranges Ranges, at int64) {
	o.owes, o.owed = true, at
	if len(ranges) == 0 {
		return
	}
	if !o.scanning {
		o.began = at
	}
	o.scan, o.scanning = o.scan.Union(ranges), true
	o.beside, o.counts, o.cursor = review{}, false, 0
}

// begged is told that the member begs for everything. A scan that is under way goes on
// first: begun again, it would bring once more as new what it has brought.
func (o *outbound) begged(at int64) {
	if o.again = o.scanning || o.owes; !o.again {
		o.owe(All(), at)
	}
}

// covers is whether an item's units are part of a state that has been
// acknowledged.
func covers(covered map[bucket.ID]int64, it *item) bool {
	at, ok := covered[it.id]
	return ok && it.last() <= at
}

func (o *outbound) coveredIDs() map[bucket.ID]int64 {
	if len(o.covered) == 0 {
		return nil
	}
	ids := make(map[bucket.ID]int64, len(o.covered))
	for _, it := range o.covered {
		ids[it.id] = max(ids[it.id], it.at)
	}
	return ids
}

func (o *outbound) mark(id bucket.ID, at piece) {
	if o.marks == nil || len(o.marks) >= maxMarks {
		o.marks = make(map[bucket.ID]piece)
	}
	o.marks[id] = at
}

// cover remembers that the flight's states were applied, as long as older items
// wait.
func (o *outbound) cover(it item) {
	if oldest, waits := o.queue.oldest(); waits && oldest <= it.at && !o.queue.cover(&it, it.at) {
		o.covered = append(o.covered, it)
	}
}

// trim forgets what nothing waits for any more.
func (o *outbound) trim() {
	oldest, waits := o.queue.oldest()
	n := len(o.covered)
	switch {
	case n == 0:
	case !waits || oldest > o.covered[n-1].at:
		o.covered = emptied(o.covered)
	case o.covered[n/2].at < oldest:
		o.covered = o.covered[:copy(o.covered, o.covered[n/2+1:])]
	}
}

// Next builds the next frame for a member, in the place of b: nil if there is
// nothing to send, or one is in flight. It has at most max bytes, unless one item
// alone has more: a piece of a log can have 16 KiB. After Lost it is a question
// what became of that frame.
func (s *Stream) Next(to Member, now int64, roles Roles, b []byte, max int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(to)
	if o == nil || !o.ready() {
		return nil
	}
	flags := byte(0)
	if s.leaving {
		flags |= flagLeaving
	}
	if s.left {
		flags |= flagLeft
	}
	f := &o.flight
	if f.number != 0 {
		f.lost, f.asked = false, true
		return appendHeader(b[:0], flags|flagSettle, s.self, to, f.number)
	}
	s.tick(now)
	s.number++
	f.number, f.at = s.number, s.clock
	if len(o.gives) > 0 && o.due(o.gives[0].at) {
		flags |= flagGives
		f.gives = append(f.gives, o.gives[0])
		o.gives = o.gives[1:]
	}
	if o.owes && !o.scanning && o.due(o.owed) {
		flags |= flagComplete
		f.complete = true
	}
	if o.begs {
		flags |= flagBegs
		f.begs = true
	}
	b = appendHeader(b[:0], flags, s.self, to, f.number)
	for _, g := range f.gives {
		b = appendRanges(b, g.move, g.ranges)
		b = binary.AppendUvarint(b, uint64(s.holdings.Doubt()))
	}
	s.scan(o, now, roles)
	s.limits = s.limits[:0]
	for len(b) < max {
		it, ok := o.pop(s.clock)
		if !ok {
			break
		}
		before := len(b)
		known, riders, marks, more := len(s.limits), len(f.riders), len(f.marks), len(f.more)
		b = s.encode(o, it, now, roles, b)
		if len(b) > max && len(f.items) > 0 {
			o.putBack([]item{it}, s.voided)
			for _, r := range f.riders[riders:] {
				o.queue.insert(r.item)
			}
			b, s.limits = b[:before], s.limits[:known]
			f.riders, f.marks, f.marked, f.more = f.riders[:riders], f.marks[:marks], f.marked[:marks], f.more[:more]
			break
		}
		if len(b) > before {
			f.items = append(f.items, it)
		}
	}
	return b
}

// scan takes the scan that a member is owed a step further, if little waits.
func (s *Stream) scan(o *outbound, now int64, roles Roles) {
	if !o.scanning || o.queue.len() >= scanBelow {
		return
	}
	if !o.counts {
		if o.counts = s.scanBeside(o, now, roles); !o.counts {
			return
		}
		for _, id := range s.holdings.ids() {
			if o.scan.Contains(id.Hi) && s.isTarget(o.to, id, roles) {
				s.push(o, item{id: id, at: s.clock, kind: grants})
			}
		}
	}
	for looks := 0; looks < scanLooks; looks += max(scanLooks/64, len(s.ids)) {
		o.cursor, s.ids = s.store.Scan(o.cursor, s.ids[:0])
		for _, id := range s.ids {
			if o.scan.Contains(id.Hi) && s.isTarget(o.to, id, roles) {
				it := item{id: id, units: everything, at: s.clock, kind: state}
				if o.sent.Contains(id.Hi) || !roles.Holds(id) {
					it.units = 0 // what is new of it waits by itself, or is in a tally
				}
				s.push(o, it)
			}
		}
		if o.cursor == 0 {
			o.scanning, o.owed = false, s.clock
			return
		}
		if o.queue.len() >= scanBelow {
			return
		}
	}
}

// scanBeside takes a scan a step further through the resets and tallies. It reports
// whether it is through them: what is added meanwhile is passed on by who adds it.
func (s *Stream) scanBeside(o *outbound, now int64, roles Roles) (over bool) {
	for looks := 0; looks < scanBesides; looks++ {
		if o.queue.len() >= besidesBelow {
			return false
		}
		entries := o.beside.entries
		kind, id, ok := s.nextBeside(&o.beside)
		if o.beside.entries != entries {
			looks += besideCost
		}
		switch {
		case !ok:
			return true
		case kind == ofTally && roles.Answers(id) == o.to, kind == ofReset && o.scan.Contains(id.Hi):
			looks += besideCost
			if !s.passed(id, o.stamp, now) {
				s.stamp(id, o.stamp)
				s.push(o, item{id: id, at: s.clock, kind: spend})
			}
		}
	}
	return false
}

// isTarget is whether a member is to have the state of id from this node: so has
// who answers, from all who have a copy of what has lost its owner, since any of
// them may have been where the owner last was.
func (s *Stream) isTarget(to Member, id bucket.ID, roles Roles) bool {
	if !roles.Holds(id) && roles.Answers(id) != s.self {
		return roles.Answers(id) == to
	}
	s.targets = roles.Targets(s.targets[:0], id)
	return slices.Contains(s.targets, to)
}

// encode appends an item; nothing, if there is nothing to tell.
func (s *Stream) encode(o *outbound, it item, now int64, roles Roles, b []byte) []byte {
	switch it.kind {
	case ask:
		return append(appendID(b, it.id), byte(ask))
	case grants:
		if with := s.holdings.appendCopy(append(appendID(b, it.id), byte(grants)), it.id, &s.limits); len(with) > len(b)+idBytes+1 {
			return with
		}
		return b // it is as every region begins
	}
	var (
		flags = byte(it.kind)
		limit *bucket.Limit
		used  int64
		known piece
		f     = &o.flight
		index = len(f.items)
	)
	if it.kind == state {
		if len(o.marks) > 0 {
			known = o.marks[it.id]
		}
		mark, more, held := s.export(o, it.id, known.mark, now, roles)
		if held {
			limit = &s.count.Limit
		}
		if it.held || roles.Holds(it.id) || s.giving(it.id) {
			flags |= itemHeld
		}
		if more {
			flags |= itemMore
			f.more = append(f.more, index)
		}
		if s.count.Partial() {
			flags |= itemPiece
		}
		if mark != (bucket.Mark{}) {
			f.marks = append(f.marks, piece{mark, f.number})
			f.marked = append(f.marked, index)
		}
	}
	if it.kind == spend {
		s.flush(it.id, now, roles)
	}
	tallied := s.ledger.has(it.id)
	if tallied {
		u, l, ok := s.store.Used(it.id, now)
		if used = u; ok && it.kind == spend {
			limit = &l
		}
	}
	at, isNew := 0, false
	if limit != nil {
		var ok bool
		if at, isNew, ok = s.limits.index(limit); !ok {
			return b // nothing that a member would take
		}
		flags |= itemLimit
	}
	r, wasReset := s.resets.get(it.id)
	if wasReset {
		flags |= itemReset
	}
	if tallied {
		flags |= itemTallies
	}
	if it.kind == spend && flags&(itemReset|itemTallies) == 0 {
		return b
	}
	b = append(appendID(b, it.id), flags)
	if wasReset {
		b = binary.AppendUvarint(b, r.number)
		b = binary.AppendUvarint(b, uint64(max(0, now-r.made)))
	}
	if tallied {
		b = s.appendTallies(b, it.id, used, now)
	}
	if flags&itemPiece != 0 {
		b = binary.AppendUvarint(b, known.number)
	}
	if limit != nil {
		b = s.limits.append(b, limit, at, isNew)
		if it.kind == state {
			b = s.count.Append(b)
		}
	}
	return b
}

// export reads a count, and sees to it that all of the units in it are known to
// be part of this item: what has been spent since it was collected rides along.
func (s *Stream) export(o *outbound, id bucket.ID, after bucket.Mark, now int64, roles Roles) (mark bucket.Mark, more, held bool) {
	const tries = 8 // under contention; then the next item of this id brings the rest twice, if it is refused
	for range tries {
		mark, more, held = s.store.Export(id, now, after, &s.count)
		if !s.count.Changed() {
			return mark, more, held
		}
		units, _ := s.store.CollectOne(id)
		s.clock++
		if it, rides := s.changed(id, units, now, roles, o); rides && it.units != 0 {
			o.flight.riders = append(o.flight.riders, rider{len(o.flight.items), it})
		}
	}
	return mark, more, held
}

func (s *Stream) appendTallies(b []byte, id bucket.ID, used, now int64) []byte {
	n := 0
	for i := s.ledger.of(id); i != none && n < maxTallies; i = s.ledger.at(i).next {
		n++
	}
	b = binary.AppendUvarint(b, uint64(n))
	for i := s.ledger.of(id); n > 0; i = s.ledger.at(i).next {
		t := s.ledger.at(i)
		b = appendTally(b, &t.tally, min(t.unrecovered, used), now)
		n--
	}
	return b
}

// pop takes what is to be sent next.
func (o *outbound) pop(now int64) (it item, ok bool) {
	switch {
	case o.queue.len() > 0:
		return o.queue.pop(), true
	case o.bulk.len() > 0:
		return item{id: o.bulk.pop(), at: now, kind: spend, bulk: true}, true
	}
	return item{}, false
}

// putBack has items that were popped wait again.
func (o *outbound) putBack(items []item, voided func(*item) bool) {
	n := len(items)
	for n > 0 && items[n-1].bulk {
		n--
		o.bulk.pushFront(items[n].id)
	}
	o.queue.putBack(items[:n], voided)
}

// Lost says that the frame in flight to a member got no answer. Whether it was
// applied is not known, so Next asks.
func (s *Stream) Lost(to Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.outbound(to); o != nil && o.flight.number != 0 {
		o.flight.lost = true
	}
}

// Unsent says that what Next built last for a member has not been sent: what it
// brings waits again.
func (s *Stream) Unsent(to Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(to)
	switch {
	case o == nil || o.flight.number == 0:
	case o.flight.asked:
		o.flight.lost = true
	default:
		o.unapplied(s.voided)
		o.trim()
	}
}

// Answered takes in the answer to the frame in flight, and says what Collect
// does. An answer to another frame changes nothing. With an error, the frame is
// in flight as before.
func (s *Stream) Answered(to Member, now int64, answer []byte, roles Roles) (more []Member, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(to)
	if o == nil {
		return nil, nil
	}
	f := &o.flight
	r := reader{b: answer}
	version, flags, number := r.byte(), r.byte(), r.uint64()
	if r.err == nil && (f.number == 0 || number != f.number) {
		return nil, nil
	}
	refused, whole := r.indexes(len(f.items)), r.indexes(len(f.items))
	if r.err == nil && (version != answerVersion || len(r.b) > 0) {
		r.fail("an answer of version %d with %d bytes more", version, len(r.b))
	}
	if r.err != nil {
		return nil, r.err
	}
	s.tick(now)
	if flags&answerApplied == 0 {
		o.unapplied(s.voided)
	} else {
		s.applied(o, flags, refused, whole, now, roles)
	}
	o.trim()
	return s.ready(), nil
}

// unapplied has what the flight carried wait again.
func (o *outbound) unapplied(voided func(*item) bool) {
	f := &o.flight
	for it := range f.states() {
		it.units, it.tallied = it.untallied(), false
	}
	o.gives = append(f.gives, o.gives...)
	o.putBack(f.items, voided)
	for _, r := range f.riders {
		o.queue.insert(r.item)
	}
	f.clear()
}

// arrived takes units out of this node's tallies that were put there while they
// were in flight, and did arrive: at the one who answers now.
func (s *Stream) arrived(o *outbound, it item, now int64, roles Roles) {
	if !it.tallied || s.voided(&it) || roles.Answers(it.id) != o.to {
		return
	}
	s.tally(it.id, -it.units, now, false)
	s.pass(it.id, roles)
	s.ask(it.id, o.to) // it may be here twice now
}

// given is told that authority over ranges has been taken, with all that this
// node had spent with it.
func (s *Stream) given(ranges Ranges, at int64) {
	for id := range s.unsent {
		if ranges.Contains(id.Hi) {
			delete(s.unsent, id)
		}
	}
	s.settle(func(it *item) bool { return it.last() <= at && ranges.Contains(it.id.Hi) })
}

// applied settles the flight: what was refused becomes this node's tally.
func (s *Stream) applied(o *outbound, flags byte, refused, whole []int, now int64, roles Roles) {
	f := &o.flight
	var back, later, own, taken []item
	riders, marked, anyRefused := f.riders, 0, len(refused) > 0
	for i, it := range f.items {
		fate := isTaken
		switch {
		case next(&refused, i):
			fate = isRefused
		case next(&whole, i):
			fate = isWhole
			delete(o.marks, it.id)
		}
		if marked < len(f.marked) && f.marked[marked] == i {
			if fate == isTaken {
				o.mark(it.id, f.marks[marked])
			}
			marked++
		}
		if next(&f.more, i) && fate == isTaken {
			fate = hasMore
		}
		for rides := false; ; rides = true {
			switch {
			case fate == isRefused && it.kind == ask:
				s.doubts.refused(it.id, o.to)
			case it.kind != state:
			case fate == isRefused:
				own = append(own, it)
			case fate == isTaken:
				s.arrived(o, it, now, roles)
				if len(s.unsent) > 0 {
					delete(s.unsent, it.id)
				}
				if !rides && (anyRefused || o.queue.behind(it.at)) {
					it.at, it.till = f.at, f.at
					taken = append(taken, it)
				}
			default:
				it.units, it.tallied = it.untallied(), false
				if rides {
					later = append(later, it)
				} else {
					back = append(back, it)
				}
			}
			if len(riders) == 0 || riders[0].of != i {
				break
			}
			it, riders = riders[0].item, riders[1:]
		}
	}
	if f.complete && o.owed <= f.at && !o.scanning {
		o.owes = false
		o.sent = o.sent.Union(o.scan)
		s.brought(o)
		o.scan = nil
		if o.again {
			o.again = false
			o.owe(All(), s.clock)
		}
	}
	for _, g := range f.gives {
		if flags&answerDoubts == 0 {
			s.given(g.ranges, f.at)
		} else {
			g.at = s.clock
			o.gives = append([]give{g}, o.gives...)
		}
	}
	if f.begs {
		o.begs = false
	}
	f.clear()
	o.queue.putBack(back, s.voided)
	for _, it := range later {
		o.queue.insert(it)
	}
	for _, it := range taken {
		o.cover(it)
	}
	if len(own) > 0 {
		o.refused = true
		s.convert(o, own, taken, now)
	}
}

// next is whether an ascending list, of which those before i are gone, goes on
// with i.
func next(list *[]int, i int) bool {
	if len(*list) == 0 || (*list)[0] != i {
		return false
	}
	*list = (*list)[1:]
	return true
}

// brought notes that a member has what a scan was to bring it: also the units that
// had been queued for others alone. It is one more of those who are sent them, so
// that they are not untold if none of the others ever has them. What another scan is
// to bring tells nothing that is new.
func (s *Stream) brought(o *outbound) {
	for _, other := range s.outbounds {
		for it := range other.states() {
			if it.last() <= o.owed && it.units != everything && it.to < math.MaxUint8 && o.scan.Contains(it.id.Hi) {
				it.to++
			}
		}
	}
}

// convert makes the units of items that a member refused part of this node's
// tallies, with what waits of the same ids, and has it told of them. What it took
// of the same ids has their units already.
func (s *Stream) convert(o *outbound, refused, taken []item, now int64) {
	covered := o.coveredIDs()
	if covered == nil {
		covered = make(map[bucket.ID]int64)
	}
	for _, it := range taken {
		covered[it.id] = it.at
	}
	var ids []bucket.ID
	lacks := make(map[bucket.ID]int64)
	for _, it := range refused {
		if _, ok := lacks[it.id]; !ok {
			ids = append(ids, it.id)
			lacks[it.id] = s.unsent[it.id]
			delete(s.unsent, it.id)
		}
	}
	lack := func(it *item) bool {
		units, ok := lacks[it.id]
		if ok && it.kind == state && !it.tallied && !covers(covered, it) && !s.voided(it) {
			lacks[it.id] = plus(units, it.units)
		}
		return ok && it.kind == state
	}
	for i := range refused {
		lack(&refused[i])
	}
	var waiting []item
	for it := range o.queue.of(ids) {
		if lack(it) {
			waiting = append(waiting, *it)
		}
	}
	s.settled(refused)
	s.settled(waiting)
	for _, id := range ids {
		s.spentWithout(item{id: id, units: lacks[id], at: s.clock, kind: state}, now)
		s.push(o, item{id: id, at: s.clock, kind: spend})
	}
}

// fate is what became of an item.
type fate uint8

const (
	isTaken fate = iota
	isRefused
	isWhole // wanted from its beginning
	hasMore // taken, with more to follow
)
