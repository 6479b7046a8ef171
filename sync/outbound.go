package countsync

import (
	"encoding/binary"
	"slices"

	"github.com/weir-go/weir/bucket"
)

// outbound contains the data to be sent to a member: a queue, and the frame in flight. The size of
// the queue is bounded: a scan of the whole store sends the items for which there was no room.
//
// An item is removed from outbound only when a frame that contains it has been acknowledged.
// Until then, the item is in queue, in bulk, in flight, or covered by a scan. Hand-overs depend
// on this: a transfer or a Complete is sent only after everything older in queue and in scans
// has been acknowledged (hasSentUntil, while no frame is in flight). Code that takes an item from
// the queue without storing it anywhere would break this. Three calls drop items: Forgo makes Next drop the
// states of a node that leaves, Meet drops the items for a member that has left the roster, and Next
// drops an item without data to send.
type outbound struct {
	to     Member
	stamp  stamp // marks the entries that were queued for the member
	queue  queue
	bulk   deque[bucket.ID] // ids for which a review found that vectors or resets must be sent; sent after queue
	flight flight

	scan     Ranges // ranges to be scanned, kept until Complete is acknowledged
	scanning bool
	rescans  bool   // the queue had no room for an item during the scan, so another scan follows
	began    int64  // stream time at which the scan began, or 0 if the scan must also send items from before that time
	beside   review // position in the vectors and resets, which are scanned first
	counts   bool   // all vectors and resets have been scanned
	cursor   uint64 // position in the store
	owes     bool   // Complete has not been acknowledged since Owe
	owed     int64  // stream time of Owe, or of the end of the scan

	transfers   []transfer
	wantsCounts bool
	again       bool // the member has requested all counts; they are sent after the current scan

	marks recent[piece] // last piece of each log that the member has
}

// transfer contains ranges. The authority over them is transferred after all items that were
// queued before.
type transfer struct {
	move   uint64
	ranges Ranges
	at     int64
}

// piece identifies a piece of a log by the frame that sent it. The member has the log up to mark.
type piece struct {
	mark   bucket.Mark
	number uint64
}

// flight is the frame that has not been answered yet. If no answer arrives, its contents are sent
// again. Applying a frame twice has the same effect as applying it once.
type flight struct {
	number      uint64 // 0 if no frame is in flight
	at          int64  // stream time at which the frame was built
	items       []item
	more        []int   // indexes of the items that are a piece of a log and are followed by more pieces
	marks       []piece // the marks that logs have on the member once the frame has been applied
	marked      []int   // for each element of marks, the index of the item
	transfers   []transfer
	complete    bool
	wantsCounts bool
}

func (f *flight) clear() {
	*f = flight{items: f.items[:0], marks: f.marks[:0], marked: f.marked[:0], more: f.more[:0]}
}

// besideCost is the cost of a vector in the scan for a frame, as a number of visited resets. A
// vector or reset that may have to be sent costs besideCost more.
const besideCost = 8

// hasSentUntil reports whether all items up to the given stream time have been sent: queue contains no
// such item, and the scan, if one is in progress, has no such item left to find. hasSentUntil ignores
// bulk, and treats items in flight as sent.
func (o *outbound) hasSentUntil(at int64) bool {
	oldest, waits := o.queue.oldest()
	return (!o.scanning || o.began >= at) && (!waits || oldest > at)
}

// ready reports whether a frame can be sent now.
func (o *outbound) ready() bool {
	return o.flight.number == 0 && o.hasData()
}

// hasData reports whether there is anything to be sent.
func (o *outbound) hasData() bool {
	return o.queue.len() > 0 || o.bulk.len() > 0 || o.scanning || o.owes || o.wantsCounts || len(o.transfers) > 0
}

// acknowledged reports whether the member has acknowledged all data that was to be sent at the
// given stream time.
func (o *outbound) acknowledged(at int64) bool {
	f := o.flight.items // in order of their time, bulk items last
	flies := len(f) > 0 && (f[0].at <= at || f[len(f)-1].bulk)
	return !flies && !o.scanning && !o.owes && !o.wantsCounts && o.bulk.len() == 0 && !o.isTransferring() && o.hasSentUntil(at)
}

func (o *outbound) isTransferring() bool { return len(o.transfers)+len(o.flight.transfers) > 0 }

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

// oweRest makes a scan send an item for which there was no room. The waiting items stay, because
// the oldest items may belong to counts that have spent much. If a scan is in progress, another
// scan follows: a scan that is started again each time would never reach the last counts of the
// store.
func (o *outbound) oweRest(at int64) {
	if o.scanning {
		o.rescans, o.scan, o.owes, o.owed = true, All(), true, at
	} else {
		o.owe(All(), at)
	}
	o.began = 0 // the scan must send earlier items
}

// handleRequest handles a request of the member for all counts. A scan that is in progress
// continues first: if it were started again, it would send the same counts twice.
func (o *outbound) handleRequest(at int64) {
	if o.again = o.scanning || o.owes; !o.again {
		o.owe(All(), at)
	}
}

// Next builds the next frame for a member, using the memory of b. Next returns nil if there is
// nothing to send or if a frame is in flight. The frame has at most `most` bytes, and at most
// Caps.Frame, unless a single item is larger: a piece of a log can have 16 KiB.
func (s *Stream) Next(member Member, now int64, roles Roles, b []byte, most int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(member)
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
	if len(o.transfers) > 0 && o.hasSentUntil(o.transfers[0].at) {
		flags |= flagTransfer
		f.transfers = append(f.transfers, o.transfers[0])
		o.transfers = o.transfers[1:]
	}
	if o.owes && !o.scanning && o.hasSentUntil(o.owed) {
		flags |= flagComplete
		f.complete = true
	}
	if o.wantsCounts {
		flags |= flagRequest
		f.wantsCounts = true
	}
	b = appendHeader(b[:0], flags, s.self, member, f.number)
	for _, g := range f.transfers {
		b = appendRanges(b, g.move, g.ranges)
		b = binary.AppendUvarint(b, uint64(s.holdings.uncertainFor()))
	}
	s.scan(o, now, roles)
	s.limits, s.origins = s.limits[:0], s.origins[:0]
	ids, items := s.itemIDs[:0], s.items[:0]
	room := min(most, s.caps.Frame) - len(b) - maxItemsBytes
	for n := 0; len(ids)+len(items) < room; n++ {
		if n%prefetched == 0 {
			s.prefetchQueued(o)
		}
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

// scan continues the scan for a member by a step, if the queue is short. The step after the vectors and
// resets examines all holdings, so its work grows with their number.
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

// scanBeside continues a scan by one step through the vectors and resets. scanBeside reports
// whether all of them have been visited. An entry that is added during the scan is sent by the
// call that adds it.
func (s *Stream) scanBeside(o *outbound, now int64, roles Roles) (done bool) {
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
			if !s.isPassed(id, o.stamp, now) {
				s.setStamp(id, o.stamp)
				o.queue.bring(item{id: id, at: s.clock, kind: spend})
			}
		case kind == ofVector && o.scan.Contains(id.Hi) && s.isTarget(o.to, id, roles):
			looks += besideCost
			if used, _, _ := s.store.Used(id, now); used == 0 {
				// The scan of the store does not find this count, and the older copy on the
				// member may lack a later refund.
				o.queue.bring(item{id: id, at: s.clock, kind: state})
			}
		}
	}
	return false
}

// isTarget reports whether a member receives the state of id from this node. A node that does not
// answer for id sends its copy only to the member that does: if the owner of id is lost, that
// member may have an older copy, because it may have been disconnected from the owner earlier. A
// leaving node sends its copy to the other targets as well.
func (s *Stream) isTarget(member Member, id bucket.ID, roles Roles) bool {
	if answers := roles.Answers(id); !roles.Holds(id) && answers != s.self && (!s.leaving || answers == member) {
		return answers == member
	}
	s.targets = roles.Targets(s.targets[:0], id)
	return slices.Contains(s.targets, member)
}

// encode appends the contents of an item, but not its id. If there is nothing to send, it returns
// b unchanged.
func (s *Stream) encode(o *outbound, it item, now int64, roles Roles, b []byte) []byte {
	switch it.kind {
	case grants:
		if with := s.holdings.appendCopy(append(b, byte(grants)), it.id, &s.limits); len(with) > len(b)+1 {
			return with
		}
		return b // there is no holding, so the initial holding judges the id, or the holding is unsure
	case state:
		return s.encodeState(o, it.id, now, roles, b)
	}
	return s.encodeSpend(it.id, now, roles, b)
}

// encodeState appends a count with its vector, and records in the flight which piece of a log it
// is.
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
	if s.count.Total.Origin != 0 && !more && !s.count.Partial() && !s.ledger.contains(id) {
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

// encodeSpend appends a vector and the number of used units. If there is neither a vector nor a
// reset, it returns b unchanged.
func (s *Stream) encodeSpend(id bucket.ID, now int64, roles Roles, b []byte) []byte {
	s.collectOne(id, now, roles)
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

// appendHead appends the first part of a state or a spend: the flags, the reset number and its
// age, and the vector s.mine. The result at is the index of the limit in the frame. limit may
// be nil. If no member would accept the limit, appendHead appends nothing and ok is false.
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

// export reads a count and makes sure that its vector includes all units of the count.
func (s *Stream) export(o *outbound, id bucket.ID, received bucket.Mark, now int64, roles Roles) (mark bucket.Mark, more, exists bool) {
	const tries = 8 // under contention; after that, the next item of this id sends the rest
	for range tries {
		mark, more, exists = s.store.Export(id, now, received, &s.count)
		if !s.count.Changed() {
			return mark, more, exists
		}
		c, _ := s.store.CollectOne(id)
		s.clock++
		s.applyChange(c, now, roles, o)
	}
	s.store.Touch(id)
	return mark, more, exists
}

// prefetchQueued starts to load the memory of the counts of the next items in the queue.
func (s *Stream) prefetchQueued(o *outbound) {
	s.ids = s.ids[:0]
	for i := range min(prefetched, o.queue.items.len()) {
		s.ids = append(s.ids, o.queue.items.element(i).id)
	}
	s.store.Prefetch(s.ids)
}

// pop removes the item that is to be sent next.
func (o *outbound) pop(now int64) (it item, ok bool) {
	switch {
	case o.queue.len() > 0:
		return o.queue.pop(), true
	case o.bulk.len() > 0:
		return item{id: o.bulk.pop(), at: now, kind: spend, bulk: true}, true
	}
	return item{}, false
}

// putBack inserts popped items at the front of the queue and of bulk.
func (o *outbound) putBack(items []item) {
	n := len(items)
	for n > 0 && items[n-1].bulk {
		n--
		o.bulk.pushFront(items[n].id)
	}
	o.queue.putBack(items[:n])
}

// Lost records that the frame in flight to a member was not sent or not answered. Its contents
// are queued again.
func (s *Stream) Lost(member Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.outbound(member); o != nil && o.flight.number != 0 {
		o.transfers = append(o.flight.transfers, o.transfers...)
		o.putBack(o.flight.items)
		o.flight.clear()
	}
}

// Answered handles the answer to the frame in flight, and returns the same members as Collect.
// Answered ignores the answer to any other frame. If there is an error, the frame stays in
// flight.
func (s *Stream) Answered(member Member, now int64, answer []byte, roles Roles) (more []Member, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbound(member)
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
		r.fail("the answer has the version %d, and %d bytes follow its items", version, len(r.b))
	}
	if r.err != nil {
		return nil, r.err
	}
	s.tick(now)
	s.completeFlight(o, whole)
	return s.ready(), nil
}

// completeFlight completes the flight. Logs that the member requests as a whole, and logs with more
// pieces, are queued to be sent next.
func (s *Stream) completeFlight(o *outbound, whole []int) {
	f := &o.flight
	var back []item
	marked := 0
	for i, it := range f.items {
		wanted, more := takeFirst(&whole, i), takeFirst(&f.more, i)
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

// takeFirst reports whether i is the first element of an ascending list, and removes it. Elements
// less than i must already have been removed.
func takeFirst(list *[]int, i int) bool {
	if len(*list) == 0 || (*list)[0] != i {
		return false
	}
	*list = (*list)[1:]
	return true
}
