package bucket

import (
	"math/bits"
	"sync"
)

// slot is one id's count in a shard's table. It has no pointers, so the garbage
// collector does not scan the tables. Ten million counts rely on that: one pointer here
// makes each collection walk them all.
type slot struct {
	id    ID
	cell  cell
	limit uint32 // flags, and the index of the limit that last judged the count; 0 if the slot is empty
	log   uint32 // index of a SlidingLog's log; else an int32, the units spent since the count was collected
}

// The flags of a slot's limit.
const (
	changed   = 1 << 31 // since it was collected: the id is on the shard's list of changes
	hurries   = 1 << 30 // it has spent so much that the id was put on the list of those that hurry
	parted    = 1 << 29 // the limit is the one that SetPart has set
	flagsMask = changed | hurries | parted
)

// judge is the index of the limit that last judged the count.
func (s *slot) judge() uint32 { return s.limit &^ flagsMask }

func (s *slot) flags() uint32 { return s.limit & flagsMask }

// shard is a part of the ids under one lock: a table with open addressing and
// linear probing. Where probes for an id start is its place (placement.of), scaled to the
// table's length, which so need not be a power of two: that is what keeps the slack small.
// Ids stand in the order of where their probes start (Amble and Knuth, "Ordered hash
// tables", 1974), so that a probe for one that is not there ends as soon as another's. Every
// search relies on that order: put and remove keep it by moving what follows, and resize
// builds it anew. What writes a slot's id in another way breaks it.
type shard struct {
	mu      sync.Mutex
	n       int32  // counts in the table
	hand    uint32 // where the next sample for an eviction starts, and the flag vain
	slots   []slot
	numbers numbers
	// Here the second cache line begins. The first holds all that a hit reads.
	logs    slab
	changes *changes // nil before Track
}

// The tables' sizes. At 28/32 a probe looks at 5 slots on average, whether it finds its
// id or not; a table that just grew by a fifteenth has 59 bytes for a count, and 64 with
// the totals that Track adds.
const minSlots = 4

// room is how many counts a table of this many slots may hold. At least one
// slot stays empty, where probes end.
func room(slots int) int32 { return int32(uint64(slots) * 28 / 32) }

// home is where the probes for h start: h/2^64 of the way through the table.
func (sh *shard) home(h uint64) int {
	hi, _ := bits.Mul64(h, uint64(len(sh.slots)))
	return int(hi)
}

func (sh *shard) next(i int) int {
	if i++; i < len(sh.slots) {
		return i
	}
	return 0
}

// far is how many slots the id in slot i is from where its probes start.
func (sh *shard) far(i int, p *placement) int {
	n := i - sh.home(p.of(sh.slots[i].id))
	if n < 0 {
		n += len(sh.slots)
	}
	return n
}

// find is the index of id's slot, -1 if there is none.
func (sh *shard) find(id ID, h uint64, p *placement) int {
	if len(sh.slots) == 0 {
		return -1
	}
	for i, n := sh.home(h), 0; ; i, n = sh.next(i), n+1 {
		s := &sh.slots[i]
		if s.limit == 0 {
			return -1
		}
		if s.id == id {
			return i
		}
		if n > sh.far(i, p) {
			return -1
		}
	}
}

// held is id's count and the limit that judges it, l or the stored one; nil if
// there is no count.
func (sh *shard) held(id ID, h uint64, p *placement, l *Limit, now int64) (*slot, *Limit) {
	i := sh.find(id, h, p)
	if i < 0 {
		return nil, l
	}
	s := &sh.slots[i]
	if !sh.limitOf(s).is(l) {
		l = sh.reconcile(s, l, now)
	}
	return s, l
}

// heldOrFresh returns the held count of id, or first if there is none: isFresh is true then, and
// first is an empty count.
func (sh *shard) heldOrFresh(id ID, h uint64, p *placement, l *Limit, now int64, first *slot) (c *slot, of *Limit, isFresh bool) {
	if c, l = sh.held(id, h, p, l, now); c != nil {
		return c, l, false
	}
	*first = sh.fresh(id, l)
	return first, l, true
}

// fresh is an empty count that is not in the table yet; insert puts it there, or
// release gives it up.
func (sh *shard) fresh(id ID, l *Limit) slot {
	s := slot{id: id}
	if l.Algorithm == SlidingLog {
		s.log = sh.logs.alloc()
	}
	return s
}

// release lets go of what the count of a limit l refers to.
func (sh *shard) release(l *Limit, s *slot) {
	if l.Algorithm == SlidingLog {
		sh.logs.free(s.log)
	} else if s.saturated() {
		delete(sh.changes.beyond, s.id)
	}
	s.log = 0
}

// recovered is the index of a slot that a probe for h looks at, whose count has
// recovered and can go; -1 if there is none.
func (sh *shard) recovered(h uint64, p *placement, now int64) int {
	if len(sh.slots) == 0 {
		return -1
	}
	for i, n := sh.home(h), 0; sh.slots[i].limit != 0 && n <= sh.far(i, p); i, n = sh.next(i), n+1 {
		if sh.spare(&sh.slots[i], now) {
			return i
		}
	}
	return -1
}

// spare reports whether the slot's count has recovered and nobody will miss it. A change
// keeps it until it is collected, or a refund would be lost.
func (sh *shard) spare(s *slot, now int64) bool {
	return s.limit&changed == 0 && sh.recovers(s) <= now
}

// recovers is the instant from which the slot's count equals no count.
func (sh *shard) recovers(s *slot) int64 {
	return sh.limitOf(s).recovers(&s.cell)
}

// logOf is the log of a count that l judges, nil if it needs none.
func (sh *shard) logOf(l *Limit, s *slot) *log {
	if l.Algorithm != SlidingLog {
		return nil
	}
	return &sh.logs.logs[s.log]
}

// put stores s in the slot where the order has it, and says which. There is an empty
// one, and the id is not there. Its total is the caller's to set.
func (sh *shard) put(h uint64, s slot, p *placement) int {
	i := sh.home(h)
	for n := 0; sh.slots[i].limit != 0 && n <= sh.far(i, p); n++ {
		i = sh.next(i)
	}
	end := i
	for sh.slots[end].limit != 0 {
		end = sh.next(end)
	}
	makeGap(sh.slots, i, end)
	if ch := sh.changes; ch != nil {
		makeGap(ch.spent, i, end)
	}
	sh.slots[i] = s
	sh.n++
	return i
}

// remove empties slot i and closes the gap, so that probes need no tombstones.
func (sh *shard) remove(i int, p *placement) {
	ch := sh.changes
	ch.forget(sh.totalOf(i))
	sh.release(sh.limitOf(&sh.slots[i]), &sh.slots[i])
	sh.numbers.judge(sh.slots[i].judge(), -1)
	last := i // that is not where its probes start, or i
	for j := sh.next(i); sh.slots[j].limit != 0 && sh.far(j, p) > 0; j = sh.next(j) {
		last = j
	}
	closeGap(sh.slots, i, last)
	sh.slots[last] = slot{}
	if ch != nil {
		closeGap(ch.spent, i, last)
		ch.spent[last] = 0
	}
	sh.n--
}

// makeGap moves what is at i and after it by one, up to end, whose own is lost. Tables
// go on at their beginning.
func makeGap[T any](t []T, i, end int) {
	if end < i {
		copy(t[1:end+1], t[:end])
		end = len(t) - 1
		t[0] = t[end]
	}
	copy(t[i+1:end+1], t[i:end])
}

// closeGap moves what is after i, up to last, back by one, where i's own is lost.
func closeGap[T any](t []T, i, last int) {
	if last < i {
		copy(t[i:], t[i+1:])
		t[len(t)-1] = t[0]
		i = 0
	}
	copy(t[i:last], t[i+1:last+1])
}

// reclaim removes the counts that have recovered and can go, and says how many.
func (sh *shard) reclaim(now int64, p *placement) int {
	if sh.n == 0 {
		return 0
	}
	// Backwards from an empty slot, what removals move has been looked at, and
	// there is less and less of it.
	end := 0
	for sh.slots[end].limit != 0 {
		end++
	}
	before := sh.n
	for k := 1; k < len(sh.slots); k++ {
		i := end - k
		if i < 0 {
			i += len(sh.slots)
		}
		if s := &sh.slots[i]; s.limit != 0 && sh.spare(s, now) {
			sh.remove(i, p)
		}
	}
	return int(before - sh.n)
}

// grow makes room for at least one more count: it reclaims what has recovered,
// and says how many, and takes a larger table if a quarter did not come free. Smaller
// steps save memory, and have each count moved more often while a node fills up: by a
// fifth, 1.15 million counts take 75 bytes each, and with this step 68.
func (sh *shard) grow(now int64, p *placement) int {
	reclaimed := sh.reclaim(now, p)
	if slots := len(sh.slots); sh.n >= room(slots)*3/4 {
		sh.resize(max(minSlots, slots*16/15+2), p)
	}
	return reclaimed
}

// shrink takes a smaller table if that saves a third, and the like for logs.
func (sh *shard) shrink(p *placement) {
	if sh.n == 0 {
		sh.slots, sh.numbers, sh.logs, sh.hand = nil, numbers{}, slab{edits: sh.logs.edits}, 0
		if sh.changes != nil {
			sh.changes.spent = nil
		}
		return
	}
	if want := max(minSlots, int(sh.n)*3/2+1); want*3/2 <= len(sh.slots) {
		sh.resize(want, p)
		sh.numbers.prune(sh.slots)
	}
	if len(sh.logs.unused) > len(sh.logs.logs)/2 {
		sh.logs.pack(sh.slots, &sh.numbers)
	}
}

// resize moves the counts to a table of this many slots, or of the few more
// that the allocator gives for the same memory.
func (sh *shard) resize(slots int, p *placement) {
	old := sh.slots
	sh.slots = append([]slot(nil), make([]slot, slots)...)
	sh.slots = sh.slots[:cap(sh.slots)]
	clear(sh.slots[slots:])
	sh.n, sh.hand = 0, 0
	var spent []uint32
	if sh.changes != nil {
		spent, sh.changes.spent = sh.changes.spent, make([]uint32, len(sh.slots))
	}
	// Tables have counts in the order of their homes, from after an empty slot on, round. So
	// nearly each goes to the first empty slot from its home on, with no look at the others:
	// all but those whose homes were one and are several now, and those at the end.
	first, last, free := 0, 0, 0
	for first < len(old) && old[first].limit != 0 {
		first++
	}
	for i := range old {
		if i += first; i >= len(old) {
			i -= len(old)
		}
		if old[i].limit == 0 {
			continue
		}
		place := p.of(old[i].id)
		home := sh.home(place)
		at := max(home, free)
		for at < len(sh.slots) && sh.slots[at].limit != 0 {
			at++
		}
		if home < last || at == len(sh.slots) {
			at = sh.put(place, old[i], p)
		} else {
			sh.slots[at] = old[i]
			sh.n++
			last, free = home, at+1
		}
		if spent != nil {
			sh.changes.spent[at] = spent[i]
		}
	}
}

// intern is the index of the limit's numbers, of a count whose total is by's.
func (sh *shard) intern(l *Limit, by originSeries) uint32 {
	if i := sh.numbers.find(l, by); i > 0 {
		return i
	}
	if sh.numbers.full() {
		sh.numbers.prune(sh.slots)
	}
	return sh.numbers.add(l, by)
}

// reconcile makes l and the limit that last judged the count agree, and returns
// the one that judges now. The count's total stays as it is, also of one that has
// recovered: its origin has spent that.
func (sh *shard) reconcile(s *slot, l *Limit, now int64) *Limit {
	entry := &sh.numbers.at[s.judge()]
	stored := &entry.Limit
	logged, logs := stored.Algorithm == SlidingLog, l.Algorithm == SlidingLog
	net := sh.uncollected(stored, s)
	switch {
	case sh.recovers(s) <= now:
		// It equals no count, so there is nothing to agree about.
		judged := s.limit
		sh.release(stored, s)
		*s = sh.fresh(s.id, l)
		s.limit = judged
		sh.setUncollected(l, s, net)
	case l.Version < stored.Version,
		l.Version == stored.Version && l.Algorithm != stored.Algorithm:
		return stored
	case l.Version == stored.Version && !l.Algorithm.isBucket() && l.calendar() == stored.calendar():
		// Judged by its own numbers over the same times and units. To convert
		// them whenever another Per asks would make all of it usage of this
		// instant, again and again.
	default:
		if logs && !logged {
			sh.release(stored, s)
			s.log = sh.logs.alloc()
		}
		var g *log
		if logs || logged {
			g = &sh.logs.logs[s.log]
			g.edits++ // under another Per other entries have expired
		}
		l.convert(stored, &s.cell, g, now)
		if logged && !logs {
			sh.release(stored, s)
		}
		sh.setUncollected(l, s, net)
		if sh.changes != nil {
			sh.note(s, l, 0)
		}
	}
	judging := l.later(stored)
	judge := sh.intern(&judging, entry.by)
	sh.judgeBy(s, judge, s.flags()&^parted)
	return sh.limitOf(s)
}

// judgeBy has another limit, or origin, be the one that a count refers to.
func (sh *shard) judgeBy(s *slot, judge, flags uint32) {
	sh.numbers.judge(s.judge(), -1)
	sh.numbers.judge(judge, 1)
	s.limit = flags | judge
}
