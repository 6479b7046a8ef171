package bucket

import (
	"math/bits"
	"sync"
)

// slot is the count of an ID in the table of a shard. A slot has no pointers, so the garbage
// collector does not scan the tables. With ten million counts, a single pointer in slot would
// make each garbage collection scan all of them.
type slot struct {
	id    ID
	cell  cell
	limit uint32 // flags, and the index of the limit that last judged the count; 0 if the slot is empty
	log   uint32 // index of the log of a SlidingLog; else the uncollected units as an int32, or saturatedNet
}

// These are the flags of slot.limit.
const (
	changed   = 1 << 31 // the count has changed since it was collected: its ID is on the list of changes of the shard
	hurries   = 1 << 30 // the count has spent so many units since it was collected that its change is hurried
	parted    = 1 << 29 // SetPart has set the limit of the count
	flagsMask = changed | hurries | parted
)

// entryIndex returns the index of the limit that last judged the count.
func (s *slot) entryIndex() uint32 { return s.limit &^ flagsMask }

func (s *slot) flags() uint32 { return s.limit & flagsMask }

// shard contains a part of the IDs under one lock. The counts are in a table with open
// addressing and linear probing. Probes for an ID start at its place (placement.place),
// scaled to the length of the table. Therefore the length need not be a power of two, which
// keeps the number of unused slots small.
//
// IDs are ordered by the slot at which their probes start (Amble and Knuth, "Ordered hash
// tables", 1974). Therefore a probe for an absent ID ends as early as a probe for a present
// ID. Every search relies on this order. put and remove maintain the order by moving the
// following slots, and resize rebuilds it. Code that writes the ID of a slot in any other way
// breaks it. With the order, seven of eight slots may be in use, which saves 11 bytes for each key.
type shard struct {
	mu      sync.Mutex
	n       int32  // number of counts in the table
	hand    uint32 // start of the next sample for an eviction, and the flag vain
	slots   []slot
	numbers numbers
	// The second cache line begins here. The first contains all fields that a hit reads,
	// unless the count has a log or the store is tracked.
	logs    slab
	changes *changes // nil before Track
}

// minSlots is the minimum number of slots of a table.
const minSlots = 4

// room returns how many counts a table with the given number of slots may contain. At least
// one slot stays empty, so that probes end. At a load of 28/32, a probe reads 5 slots on
// average, whether it finds its ID or not. A table that has just grown by a fifteenth uses 59
// bytes for each count, and 64 bytes with the totals that Track adds.
func room(slots int) int32 { return int32(uint64(slots) * 28 / 32) }

// home returns the slot at which the probes for h start: h/2^64 of the way through the table.
func (sh *shard) home(h uint64) int {
	hi, _ := bits.Mul64(h, uint64(len(sh.slots)))
	return int(hi)
}

func (sh *shard) nextSlot(i int) int {
	if i++; i < len(sh.slots) {
		return i
	}
	return 0
}

// displacement returns the number of slots from the home slot of the ID in slot i to slot i.
func (sh *shard) displacement(i int, p *placement) int {
	n := i - sh.home(p.place(sh.slots[i].id))
	if n < 0 {
		n += len(sh.slots)
	}
	return n
}

// find returns the index of the slot of id, or -1 if the shard does not have id.
func (sh *shard) find(id ID, h uint64, p *placement) int {
	if len(sh.slots) == 0 {
		return -1
	}
	for i, n := sh.home(h), 0; ; i, n = sh.nextSlot(i), n+1 {
		s := &sh.slots[i]
		if s.limit == 0 {
			return -1
		}
		if s.id == id {
			return i
		}
		if n > sh.displacement(i, p) {
			return -1
		}
	}
}

// lookup returns the count of id and the limit that judges it: l or the stored limit, with the Keep
// of l and, for calendars, the later window. The count is nil if the shard has no count of id.
func (sh *shard) lookup(id ID, h uint64, p *placement, l *Limit, now int64) (*slot, *Limit) {
	i := sh.find(id, h, p)
	if i < 0 {
		return nil, l
	}
	s := &sh.slots[i]
	if !sh.limitOf(s).equals(l) {
		judge := sh.reconcile(s, l, now)
		if l.Keep > 0 {
			judge = new(judge.Keeping(l))
		}
		l = judge
	}
	return s, l
}

// lookupOrNew returns the count of id, and the limit that judges it. If the shard has no count
// of id, lookupOrNew sets *first to an empty count and returns first, and isNew is true.
func (sh *shard) lookupOrNew(id ID, h uint64, p *placement, l *Limit, now int64, first *slot) (c *slot, judge *Limit, isNew bool) {
	if c, l = sh.lookup(id, h, p, l, now); c != nil {
		return c, l, false
	}
	*first = sh.newSlot(id, l)
	return first, l, true
}

// newSlot returns an empty count that is not in the table. The caller must pass it to insert
// or to release.
func (sh *shard) newSlot(id ID, l *Limit) slot {
	s := slot{id: id}
	if l.Algorithm == SlidingLog {
		s.log = sh.logs.alloc()
	}
	return s
}

// release frees the log and the uncollected units of a count that l judges.
func (sh *shard) release(l *Limit, s *slot) {
	if l.Algorithm == SlidingLog {
		sh.logs.free(s.log)
	} else if s.isSaturated() {
		delete(sh.changes.beyond, s.id)
	}
	s.log = 0
}

// findRecovered returns the index of a slot on the probe path of h whose count has recovered
// and can be removed, or -1 if there is no such slot.
func (sh *shard) findRecovered(h uint64, p *placement, now int64) int {
	if len(sh.slots) == 0 {
		return -1
	}
	for i, n := sh.home(h), 0; sh.slots[i].limit != 0 && n <= sh.displacement(i, p); i, n = sh.nextSlot(i), n+1 {
		if sh.isRemovable(&sh.slots[i], now) {
			return i
		}
	}
	return -1
}

// isRemovable reports whether the count in the slot has recovered and can be removed. A changed
// count is kept until it is collected, unless it is evicted, so that its refunds are not lost.
func (sh *shard) isRemovable(s *slot, now int64) bool {
	return s.limit&changed == 0 && sh.recoveryTime(s) <= now
}

// recoveryTime returns an instant from which on the count in the slot is equivalent to no count.
func (sh *shard) recoveryTime(s *slot) int64 {
	return sh.limitOf(s).recoveryTime(&s.cell)
}

// logOf returns the log of a count that l judges, or nil if l is not a SlidingLog.
func (sh *shard) logOf(l *Limit, s *slot) *log {
	if l.Algorithm != SlidingLog {
		return nil
	}
	return &sh.logs.logs[s.log]
}

// put inserts s into the slot that the order of the table requires, and returns the index of
// the slot. The table must have an empty slot, and must not contain the ID. The caller must
// set the total of the count.
func (sh *shard) put(h uint64, s slot, p *placement) int {
	i := sh.home(h)
	for n := 0; sh.slots[i].limit != 0 && n <= sh.displacement(i, p); n++ {
		i = sh.nextSlot(i)
	}
	end := i
	for sh.slots[end].limit != 0 {
		end = sh.nextSlot(end)
	}
	makeGap(sh.slots, i, end)
	if ch := sh.changes; ch != nil {
		makeGap(ch.spent, i, end)
	}
	sh.slots[i] = s
	sh.n++
	return i
}

// remove removes the count in slot i and closes the gap, so that probes need no tombstones.
func (sh *shard) remove(i int, p *placement) {
	ch := sh.changes
	ch.forget(sh.totalOf(i))
	sh.release(sh.limitOf(&sh.slots[i]), &sh.slots[i])
	sh.numbers.addJudged(sh.slots[i].entryIndex(), -1)
	last := i // the last slot with a displaced count, or i
	for j := sh.nextSlot(i); sh.slots[j].limit != 0 && sh.displacement(j, p) > 0; j = sh.nextSlot(j) {
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

// makeGap moves each element of t[i:end] to the next index, and overwrites t[end]. If end < i,
// it moves the elements of t[i:] and t[:end], and the index after the last one is 0.
func makeGap[T any](t []T, i, end int) {
	if end < i {
		copy(t[1:end+1], t[:end])
		end = len(t) - 1
		t[0] = t[end]
	}
	copy(t[i+1:end+1], t[i:end])
}

// closeGap moves each element of t[i+1:last+1] to the previous index, and overwrites t[i]. If
// last < i, it moves the elements of t[i+1:] and t[:last+1], and the index before 0 is the last one.
func closeGap[T any](t []T, i, last int) {
	if last < i {
		copy(t[i:], t[i+1:])
		t[len(t)-1] = t[0]
		i = 0
	}
	copy(t[i:last], t[i+1:last+1])
}

// reclaim removes the recovered counts that can be removed, and returns their number.
func (sh *shard) reclaim(now int64, p *placement) int {
	if sh.n == 0 {
		return 0
	}
	// The loop runs backwards from an empty slot, so a removal only moves slots that were
	// already examined, and each removal leaves fewer of them.
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
		if s := &sh.slots[i]; s.limit != 0 && sh.isRemovable(s, now) {
			sh.remove(i, p)
		}
	}
	return int(before - sh.n)
}

// grow makes room for at least one more count. It removes the recovered counts that can be
// removed, and returns their number. If at most a quarter of the room is free after that, the
// table is resized to 16/15 of its slots. Smaller steps save memory, but each count is moved more
// often while a store fills up. With steps of a fifth, 1.15 million counts use 7 bytes more each.
func (sh *shard) grow(now int64, p *placement) int {
	reclaimed := sh.reclaim(now, p)
	if slots := len(sh.slots); sh.n >= room(slots)*3/4 {
		sh.resize(max(minSlots, slots*16/15+2), p)
	}
	return reclaimed
}

// shrink resizes the table if this saves at least a third of it, and frees an empty table. If
// more than half of the logs are unused, shrink packs them.
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

// resize moves the counts to a table with the given number of slots, plus the few slots that
// fit in the same allocation.
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
	// The counts of a table are in the order of their home slots, starting after an empty
	// slot and wrapping around. So nearly every count is moved to the first empty slot from
	// its home slot on, without a comparison with other counts. This does not apply to counts
	// whose home slots were the same and now differ, or to counts at the end.
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
		place := p.place(old[i].id)
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

// intern returns the index of the entry with the limit l, without its Keep, and the given origin.
// It adds this entry if find does not find it.
func (sh *shard) intern(l *Limit, origin originSeries) uint32 {
	if l.Keep != 0 {
		stored := *l
		stored.Keep = 0
		l = &stored
	}
	if i := sh.numbers.find(l, origin); i > 0 {
		return i
	}
	if sh.numbers.isFull() {
		sh.numbers.prune(sh.slots)
	}
	return sh.numbers.add(l, origin)
}

// reconcile resolves the difference between l and the limit that last judged the count, and
// returns the limit that judges the count from now on. The total of the count does not change, even if the
// count has recovered, because its origin has spent these units.
func (sh *shard) reconcile(s *slot, l *Limit, now int64) *Limit {
	entry := &sh.numbers.at[s.entryIndex()]
	stored := &entry.Limit
	logged, logs := stored.Algorithm == SlidingLog, l.Algorithm == SlidingLog
	net := sh.uncollected(stored, s)
	switch {
	case sh.recoveryTime(s) <= now:
		// The count is equivalent to no count, so there is no difference to resolve.
		judged := s.limit
		sh.release(stored, s)
		*s = sh.newSlot(s.id, l)
		s.limit = judged
		sh.setUncollected(l, s, net)
	case l.Version < stored.Version,
		l.Version == stored.Version && l.Algorithm != stored.Algorithm:
		return stored
	case l.Version == stored.Version && !l.Algorithm.isBucket() && l.isCalendar() == stored.isCalendar():
		// The limit l judges the same times and units. If each ask with another Per converted
		// the count, all units would become usage of this instant, again and again.
	default:
		if logs && !logged {
			sh.release(stored, s)
			s.log = sh.logs.alloc()
		}
		var g *log
		if logs || logged {
			g = &sh.logs.logs[s.log]
			g.edits++ // with another Per, other entries have expired
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
	judging := l.mergeWindow(stored)
	judge := sh.intern(&judging, entry.series)
	sh.judgeBy(s, judge, s.flags()&^parted)
	return sh.limitOf(s)
}

// judgeBy makes the count in s refer to the entry judge, and sets its flags.
func (sh *shard) judgeBy(s *slot, judge, flags uint32) {
	sh.numbers.addJudged(s.entryIndex(), -1)
	sh.numbers.addJudged(judge, 1)
	s.limit = flags | judge
}
