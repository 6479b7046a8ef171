package countsync

import (
	"encoding/binary"
	"slices"

	"github.com/weir-go/weir/bucket"
)

// outbound is what one member is to be sent: a queue, of which one frame is in
// flight. All that it keeps is bounded: a scan of the whole store brings the items for which there was no room.
//
// An item leaves outbound only when a frame that has it is acknowledged, and until then is
// in the queue, in bulk, in the flight, or covered by a scan. Hand-overs rely on it: a give,
// and Complete, go once everything older is acknowledged (due). An item that is taken from
// the queue and put nowhere breaks it; only Forgo drops items, of a node that leaves.
type outbound struct {
	to     Member
	stamp  stamp // what it has been sent bears
	queue  queue
	bulk   deque[bucket.ID] // whose vectors and resets a review found for it: each at most once, and sent behind queue
	flight flight

	scan     Ranges // owed by scans, of which Complete has not been acknowledged
	scanning bool
	rescans  bool   // the queue had no room for an item during the scan, so another scan follows
	began    int64  // the stream's time when it began, 0 if it is to bring what waited before that
	beside   review // how far it is through the vectors and resets, which come first
	counts   bool   // it is through them
	cursor   uint64 // how far it is through the store
	owes     bool   // Complete has not been sent yet since Owe
	owed     int64  // the stream's time of Owe, or when the scan was over

	gives       []give
	wantsCounts bool
	again       bool // it requests everything, and is to have it once the scan that is under way has come

	marks recent[piece] // the last piece of each log that the member has
}

// give is authority to be handed over after all that was queued before it.
type give struct {
	move   uint64
	ranges Ranges
	at     int64
}

// piece names the frame that brought a log up to which mark.
type piece struct {
	mark   bucket.Mark
	number uint64
}

// flight is the frame that has no answer yet. If none comes, what it carried is sent
// again: to take it in twice is to take it in once.
type flight struct {
	number      uint64 // 0 if there is none
	at          int64  // the stream's time when it was built
	items       []item
	more        []int   // items that are the piece of a log which more follow
	marks       []piece // of logs: their mark once it is applied
	marked      []int   // the items that marks are of
	gives       []give
	complete    bool
	wantsCounts bool
}

func (f *flight) clear() {
	*f = flight{items: f.items[:0], marks: f.marks[:0], marked: f.marked[:0], more: f.more[:0]}
}

// besideCost is how many resets a vector counts for, and as many more what it may have to
// send, of those that one frame's scan looks at.
const besideCost = 8

// due reports whether what came up to a time is acknowledged: nothing older waits, nor has
// a scan yet to bring it.
func (o *outbound) due(at int64) bool {
	oldest, waits := o.queue.oldest()
	return (!o.scanning || o.began >= at) && (!waits || oldest > at)
}

// ready reports whether there is something to be sent now.
func (o *outbound) ready() bool {
	return o.flight.number == 0 && o.any()
}

// any reports whether something waits.
func (o *outbound) any() bool {
	return o.queue.len() > 0 || o.bulk.len() > 0 || o.scanning || o.owes || o.wantsCounts || len(o.gives) > 0
}

// acknowledged reports whether the member has acknowledged all that was to be sent at a time.
func (o *outbound) acknowledged(at int64) bool {
	f := o.flight.items // in order of their time, those of bulk last
	flies := len(f) > 0 && (f[0].at <= at || f[len(f)-1].bulk)
	return !flies && !o.scanning && !o.owes && !o.wantsCounts && o.bulk.len() == 0 && !o.giving() && o.due(at)
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
	o.scan, o.scanning, o.rescans = o.scan.Union(ranges), true, false
	o.beside, o.counts, o.cursor = review{}, false, 0
}

// oweRest has a scan bring an item for which there was no room. The items that wait stay, as the oldest may
// be of counts that have spent much. If a scan is under way, another one follows: if it began
// again each time, it would never reach the last counts of the store.
func (o *outbound) oweRest(at int64) {
	if o.scanning {
		o.rescans, o.scan, o.owes, o.owed = true, All(), true, at
	} else {
		o.owe(All(), at)
	}
	o.began = 0 // it brings items from before
}

// requested is told that the member requests everything. A scan that is under way goes on
// first: begun again, it would bring once more as new what it has brought.
func (o *outbound) requested(at int64) {
	if o.again = o.scanning || o.owes; !o.again {
		o.owe(All(), at)
	}
}

// Next builds the next frame for a member, in the place of b: nil if there is
// nothing to send, or one is in flight. It has at most most bytes, unless one item
// alone has more: a piece of a log can have 16 KiB.
func (s *Stream) Next(to Member, now int64, roles Roles, b []byte, most int) []byte {
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
	f := &o.flight
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
	if o.wantsCounts {
		flags |= flagBegs
		f.wantsCounts = true
	}
	b = appendHeader(b[:0], flags, s.self, to, f.number)
	for _, g := range f.gives {
		b = appendRanges(b, g.move, g.ranges)
		b = binary.AppendUvarint(b, uint64(s.holdings.uncertainFor()))
	}
	s.scan(o, now, roles)
	s.limits, s.origins = s.limits[:0], s.origins[:0]
	ids, items := s.itemIDs[:0], s.items[:0]
	room := min(most, s.caps.Frame) - len(b) - maxItemsBytes
	for len(ids)+len(items) < room {
		it, ok := o.pop(s.clock)
		if !ok {
			break
		}
		if s.forgoes && it.kind == state {
			continue
		}
		before := len(items)
		limits, origins, marks, more := len(s.limits), len(s.origins), len(f.marks), len(f.more)
		items = s.encode(o, it, now, roles, items)
		if len(ids)+idBytes+len(items) > room && len(f.items) > 0 {
			o.putBack([]item{it})
			items, s.limits, s.origins = items[:before], s.limits[:limits], s.origins[:origins]
			f.marks, f.marked, f.more = f.marks[:marks], f.marked[:marks], f.more[:more]
			break
		}
		if len(items) > before {
			f.items, ids = append(f.items, it), appendID(ids, it.id)
		}
	}
	s.itemIDs, s.items = ids, items
	s.sent += uint64(len(f.items))
	b = binary.AppendUvarint(b, uint64(len(f.items)))
	return append(append(b, ids...), items...)
}

// scan takes the scan that a member is owed a step further, if little waits.
func (s *Stream) scan(o *outbound, now int64, roles Roles) {
	if !o.scanning || o.queue.len() >= s.caps.ScanBelow {
		return
	}
	if !o.counts {
		if o.counts = s.scanBeside(o, now, roles); !o.counts {
			return
		}
		for _, id := range s.holdings.ids() {
			if o.scan.Contains(id.Hi) && s.isTarget(o.to, id, roles) {
				o.queue.bring(item{id: id, at: s.clock, kind: grants})
			}
		}
	}
	for looks := 0; looks < s.caps.Looks; looks += max(1, s.caps.Looks/64, len(s.ids)) {
		o.cursor, s.ids = s.store.Scan(o.cursor, s.ids[:0])
		for _, id := range s.ids {
			if o.scan.Contains(id.Hi) && s.isTarget(o.to, id, roles) {
				o.queue.bring(item{id: id, at: s.clock, kind: state})
			}
		}
		if o.cursor == 0 {
			o.scanning, o.owed = o.rescans, s.clock
			o.rescans, o.beside, o.counts = false, review{}, false
			return
		}
		if o.queue.len() >= s.caps.ScanBelow {
			return
		}
	}
}

// scanBeside takes a scan a step further through the vectors and resets. It reports
// whether it is through them: the call that adds something meanwhile passes it on.
func (s *Stream) scanBeside(o *outbound, now int64, roles Roles) (over bool) {
	for looks := 0; looks < 2*s.caps.Looks; looks++ {
		if o.queue.len() >= 2*s.caps.ScanBelow {
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
		case kind == ofVector && roles.Answers(id) == o.to, kind == ofReset && o.scan.Contains(id.Hi):
			looks += besideCost
			if !s.passed(id, o.stamp, now) {
				s.setStamp(id, o.stamp)
				o.queue.bring(item{id: id, at: s.clock, kind: spend})
			}
		case kind == ofVector && o.scan.Contains(id.Hi) && s.isTarget(o.to, id, roles):
			looks += besideCost
			if used, _, _ := s.store.Used(id, now); used == 0 {
				// The scan of the store finds nothing of it, and the member's older copy may
				// lack a refund since.
				o.queue.bring(item{id: id, at: s.clock, kind: state})
			}
		}
	}
	return false
}

// isTarget reports whether a member gets the state of id from this node. The member that
// answers for an id that has lost its owner gets the state of every copy, since any of them
// may have been made where the owner last was. From a leaver the other targets get it too.
func (s *Stream) isTarget(to Member, id bucket.ID, roles Roles) bool {
	if answers := roles.Answers(id); !roles.Holds(id) && answers != s.self && (!s.leaving || answers == to) {
		return answers == to
	}
	s.targets = roles.Targets(s.targets[:0], id)
	return slices.Contains(s.targets, to)
}

// encode appends an item, without its id; nothing, if there is nothing to tell.
func (s *Stream) encode(o *outbound, it item, now int64, roles Roles, b []byte) []byte {
	switch it.kind {
	case grants:
		if with := s.holdings.appendCopy(append(b, byte(grants)), it.id, &s.limits); len(with) > len(b)+1 {
			return with
		}
		return b // it is as every region begins
	case state:
		return s.encodeState(o, it.id, now, roles, b)
	}
	return s.encodeSpend(it.id, now, roles, b)
}

// encodeState appends a count with its vector, and notes in the flight which part of a log
// that is.
func (s *Stream) encodeState(o *outbound, id bucket.ID, now int64, roles Roles, b []byte) []byte {
	known, _ := o.marks.get(id)
	mark, more, held := s.export(o, id, known.mark, now, roles)
	f, flags := &o.flight, byte(state)
	if !roles.Holds(id) {
		flags = byte(replica)
	}
	if more {
		flags |= itemMore
		f.more = append(f.more, len(f.items))
	}
	if s.count.Partial() {
		flags |= itemPiece
	}
	if mark != (bucket.Mark{}) {
		f.marks = append(f.marks, piece{mark, f.number})
		f.marked = append(f.marked, len(f.items))
	}
	s.mine = s.mine[:0]
	if s.count.Total.Origin != 0 && !more && !s.count.Partial() && !s.ledger.has(id) {
		flags |= itemTotal
	} else {
		s.mine = s.vector(s.mine, id, now)
	}
	var limit *bucket.Limit
	if held {
		limit = &s.count.Limit
	}
	b, at, ok := s.appendHead(b, id, flags, limit, now)
	if !ok {
		return b
	}
	if flags&itemTotal != 0 {
		b = s.origins.appendTotal(b, s.count.Total)
	}
	if flags&itemPiece != 0 {
		b = binary.AppendUvarint(b, known.number)
	}
	if held {
		b = s.count.Append(s.limits.append(b, limit, at))
	}
	return b
}

// encodeSpend appends a vector with how much is used; nothing, if there is neither a vector
// nor a reset.
func (s *Stream) encodeSpend(id bucket.ID, now int64, roles Roles, b []byte) []byte {
	s.flush(id, now, roles)
	s.mine = s.vector(s.mine[:0], id, now)
	if _, wasReset := s.resets.get(id); len(s.mine) == 0 && !wasReset {
		return b
	}
	var limit *bucket.Limit
	used, numbers, held := s.store.Used(id, now)
	if held {
		limit = &numbers
	}
	b, at, ok := s.appendHead(b, id, byte(spend), limit, now)
	if ok && held {
		b = binary.AppendUvarint(s.limits.append(b, limit, at), uint64(used))
	}
	return b
}

// appendHead appends what states and spends begin with: the flags, the reset number and
// s.mine, the vector. at is the place of the limit, which may be nil. It appends nothing,
// and is not ok, where no member would take the limit.
func (s *Stream) appendHead(b []byte, id bucket.ID, flags byte, limit *bucket.Limit, now int64) (_ []byte, at int, ok bool) {
	if limit != nil {
		if at, ok = s.limits.index(limit); !ok {
			return b, 0, false
		}
		flags |= itemLimit
	}
	r, wasReset := s.resets.get(id)
	if wasReset {
		flags |= itemReset
	}
	if len(s.mine) > 0 {
		flags |= itemVector
	}
	b = append(b, flags)
	if wasReset {
		b = binary.AppendUvarint(b, r.number)
		b = binary.AppendUvarint(b, uint64(max(0, now-r.made)))
	}
	if len(s.mine) > 0 {
		b = s.origins.appendVector(b, s.mine, now)
	}
	return b, at, true
}

// export reads a count, and sees to it that all of the units in it are in its vector.
func (s *Stream) export(o *outbound, id bucket.ID, after bucket.Mark, now int64, roles Roles) (mark bucket.Mark, more, held bool) {
	const tries = 8 // under contention; then the next item of this id brings the rest
	for range tries {
		mark, more, held = s.store.Export(id, now, after, &s.count)
		if !s.count.Changed() {
			return mark, more, held
		}
		c, _ := s.store.CollectOne(id)
		s.clock++
		s.changed(c, now, roles, o)
	}
	s.store.Touch(id)
	return mark, more, held
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
func (o *outbound) putBack(items []item) {
	n := len(items)
	for n > 0 && items[n-1].bulk {
		n--
		o.bulk.pushFront(items[n].id)
	}
	o.queue.putBack(items[:n])
}

// Lost takes in that the frame in flight to a member got no answer, or was not sent: what
// it brings waits again.
func (s *Stream) Lost(to Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.outbound(to); o != nil && o.flight.number != 0 {
		o.gives = append(o.flight.gives, o.gives...)
		o.putBack(o.flight.items)
		o.flight.clear()
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
	version, _, number := r.byte(), r.byte(), r.uint64()
	if r.err == nil && (f.number == 0 || number != f.number) {
		return nil, nil
	}
	whole := r.indexes(len(f.items))
	if r.err == nil && (version != answerVersion || len(r.b) > 0) {
		r.fail("an answer of version %d with %d bytes more", version, len(r.b))
	}
	if r.err != nil {
		return nil, r.err
	}
	s.tick(now)
	s.applied(o, whole)
	return s.ready(), nil
}

// applied ends the flight: of logs, what is wanted whole and what has more to come
// is sent next.
func (s *Stream) applied(o *outbound, whole []int) {
	f := &o.flight
	var back []item
	marked := 0
	for i, it := range f.items {
		wanted, more := next(&whole, i), next(&f.more, i)
		if wanted {
			o.marks.delete(it.id)
		}
		if marked < len(f.marked) && f.marked[marked] == i {
			if !wanted {
				o.marks.set(it.id, f.marks[marked], s.clock, s.caps.Logs)
			}
			marked++
		}
		if wanted || more {
			back = append(back, it)
		}
	}
	if f.complete && o.owed <= f.at && !o.scanning {
		o.owes, o.scan = false, nil
		if o.again {
			o.again = false
			o.owe(All(), s.clock)
		}
	}
	if f.wantsCounts {
		o.wantsCounts = false
	}
	f.clear()
	o.queue.putBack(back)
}

// next reports whether an ascending list, of which those before i are taken off, goes on
// with i.
func next(list *[]int, i int) bool {
	if len(*list) == 0 || (*list)[0] != i {
		return false
	}
	*list = (*list)[1:]
	return true
}
