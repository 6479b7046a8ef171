package bucket

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
)

// Change is a count that has changed since it was collected.
type Change struct {
	ID     ID
	Units  int64 // spent here less refunded here; may be 0 or negative
	Folded bool  // Units are in the count's Total now, or are none; else the caller is to keep whose they are
}

// Track has the store note from now on which counts change, and how many units
// each has spent here, until Collect asks. Before Track nothing is noted and
// nothing costs. It is called once; further calls change nothing.
//
// Noted are takes, debits and refunds (here, or with SpendElsewhere no units),
// resets, conversions to other numbers, and what Touch names. A count that has
// recovered keeps its place until its change is collected, unless the store is full; one
// that is evicted takes it along.
//
// hurry (which may be nil) is signalled when what one count has spent here since
// it was collected has reached a sixteenth of its capacity, at least 1 unit. The
// signal is sent if the channel takes it at once, and else left out: give it a
// buffer of one.
//
// self is the member that spends here, and series says since when: what is spent from now on is added to
// the Total of its count as it is collected, if self has spent all of that count. self
// is the hash of this member's name, and series is higher than in any earlier Track by
// that name: the time, in nanoseconds. What is used by then is self's as well.
//
// A store that is tracked has to be collected: what nobody collects takes up to 40 bytes for each
// count held.
func (s *Store) Track(self uint64, series int64, hurry chan<- struct{}) {
	words := (len(s.shards) + 63) / 64
	t := &tracker{
		self:    self,
		hurry:   hurry,
		changed: make([]atomic.Uint64, words),
		hurried: make([]atomic.Uint64, words),
	}
	// First, or what a shard takes in as its first own units would be noted by nobody.
	if !s.tracker.CompareAndSwap(nil, t) {
		return
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.changes = &changes{
			tracker: t, shard: i, placement: &s.placement,
			totals: totals{spent: make([]uint32, len(sh.slots)), series: series},
		}
		if self != 0 {
			sh.claim(series)
		}
		sh.mu.Unlock()
	}
}

// Observe sets functions that are called under the lock of a count: spent with the units
// that it has spent here, below zero if they were refunded, and reset with the number of each
// Reset. They must be short, and call nothing of the store. Observe is called before anything
// else.
func (s *Store) Observe(spent func(id ID, units int64), reset func(id ID, number uint64)) {
	s.spent, s.wasReset = spent, reset
}

// Collect appends to list each count of a part of the store that has changed since it was
// collected, once, and starts anew for it; with hurried, only those for which Track's hurry
// was signalled. The order follows from the order of the changes. Changes that come meanwhile
// are in this list or in a later one.
//
// The part begins at cursor, 0 for the beginning, and has at least `least` changes if there
// are so many from there on, and at most one shard's more. next is where to go on, 0 after the
// last part. What is collected in parts is still in the processor's cache when it is exported.
func (s *Store) Collect(cursor, least int, hurried bool, list []Change) (next int, _ []Change) {
	t := s.tracker.Load()
	if t == nil {
		return 0, list
	}
	shards := t.changed
	if hurried {
		shards = t.hurried
	}
	had := len(list)
	for word := cursor / 64; word < len(shards); word++ {
		todo := shards[word].Load()
		if word == cursor/64 {
			todo &= math.MaxUint64 << (cursor % 64)
		}
		for ; todo != 0; todo &= todo - 1 {
			i := bits.TrailingZeros64(todo)
			if len(list)-had >= least {
				return word*64 + i, list
			}
			// Cleared first: a call that notes a change in a shard that was already looked at
			// sets its bit again.
			shards[word].And(^(uint64(1) << i))
			sh := &s.shards[word*64+i]
			sh.mu.Lock()
			list = sh.collect(hurried, list)
			sh.mu.Unlock()
		}
	}
	return 0, list
}

// CollectOne is Collect for one id, and reports whether it had changed.
func (s *Store) CollectOne(id ID) (c Change, changed bool) {
	c = Change{ID: id, Folded: true}
	if s.tracker.Load() == nil {
		return c, false
	}
	sh, _ := s.lock(id)
	defer sh.mu.Unlock()
	if sh.changes == nil {
		return c, false
	}
	c, changed = sh.collectOne(id)
	if i := slices.Index(sh.changes.touched, id); i >= 0 {
		sh.changes.touched = slices.Delete(sh.changes.touched, i, i+1)
		changed = true
	}
	return c, changed
}

// Uncollected is what an id's count has spent here less what was refunded here,
// since it was collected.
func (s *Store) Uncollected(id ID) int64 {
	if s.tracker.Load() == nil {
		return 0
	}
	sh, i := s.lockSlot(id)
	defer sh.mu.Unlock()
	if i < 0 {
		return 0
	}
	return sh.uncollected(sh.limitOf(&sh.slots[i]), &sh.slots[i])
}

// Collected is the whole units of id that are used now, but for those spent here, or
// refunded, since it was collected: at one instant, whatever is spent meanwhile.
func (s *Store) Collected(id ID, now int64) int64 {
	sh, i := s.lockSlot(id)
	defer sh.mu.Unlock()
	if i < 0 {
		return 0
	}
	l := sh.limitOf(&sh.slots[i])
	g := open(sh.logOf(l, &sh.slots[i]))
	_, used := l.advance(sh.slots[i].cell, &g, now)
	if sh.changes == nil {
		return int64(used)
	}
	return int64(used) - sh.uncollected(l, &sh.slots[i])
}

// Touch notes the id as changed, by no units, and even if there is no count of
// it: Collect then returns it all the same.
func (s *Store) Touch(id ID) {
	if s.tracker.Load() == nil {
		return
	}
	sh, _ := s.lock(id)
	sh.touch(id)
	sh.mu.Unlock()
}

// Rest reports whether no change waits for Collect. If so, the next change is signalled on wake,
// once, unless the channel is full. So a caller need not collect before: a change that Rest does
// not find is signalled. A store that does not track has no changes.
func (s *Store) Rest(wake chan<- struct{}) bool {
	t := s.tracker.Load()
	if t == nil {
		return true
	}
	t.wake.Store(&wake) // before the loop, because raise loads wake after it has set a bit
	for i := range t.changed {
		if t.changed[i].Load() != 0 {
			t.wake.Store(nil)
			return false
		}
	}
	return true
}

// note is called for every change of a count, c of sh, which l judges. Before Track it
// reads nothing that a check has no other need of.
func (s *Store) note(sh *shard, c *slot, l *Limit, units int64) {
	if s.spent != nil && units != 0 {
		s.spent(c.id, units)
	}
	if s.tracker.Load() != nil && sh.changes != nil {
		sh.note(c, l, units)
	}
}

// tracker is what Track adds to a store: for each shard a bit that is set while
// one of its lists has something.
type tracker struct {
	self             uint64 // whose units are that are spent here
	hurry            chan<- struct{}
	changed, hurried []atomic.Uint64
	wake             atomic.Pointer[chan<- struct{}] // is signalled by the next change; nil if none is to be
}

// changes is what Track adds to a shard, under its lock: lists of ids, in which
// those without the flag in their slot are stale, and are passed over.
//
// A count with the flag changed is in ids, and the shard's bit of the tracker is set. That
// no unit is lost between nodes relies on it: a flag that is set without list, or a bit that
// is cleared after the lists were read, leaves a change that nobody collects.
type changes struct {
	tracker   *tracker
	shard     int
	placement *placement
	ids       []ID // that changed: all with the flag changed, and stale ones
	hurried   []ID // that hurry, and stale ones
	touched   []ID // that are noted whether they are held or not, each once

	// beyond has the uncollected units that a slot has no room for.
	beyond map[ID]int64

	totals
}

const (
	maxHurried = 256  // more of a shard wait for the next Collect of all
	maxTouched = 1024 // more of a shard, without a Collect, are forgotten
	hurryPart  = 16   // of the capacity, once spent, hurries
)

// note adds units to what the count has spent since it was collected.
func (sh *shard) note(c *slot, l *Limit, units int64) {
	net := sh.uncollected(l, c)
	if units != 0 {
		net = addNet(net, units)
		sh.setUncollected(l, c, net)
	}
	if c.limit&changed == 0 {
		sh.changes.list(sh, c)
	}
	if c.limit&hurries == 0 && net >= int64(l.hurryAt()) {
		sh.changes.hurry(c)
	}
}

// list puts c on the list of changes. What is stale there is dropped once it is
// the larger part, so that the list is bounded also if nobody collects.
func (ch *changes) list(sh *shard, c *slot) {
	if len(ch.ids) >= 2*int(sh.n)+64 {
		kept := ch.ids[:0]
		for _, id := range ch.ids {
			if i := sh.find(id, ch.placement.of(id), ch.placement); i >= 0 && sh.slots[i].limit&changed != 0 {
				sh.slots[i].limit &^= changed // only once
				kept = append(kept, id)
			}
		}
		for _, id := range kept {
			sh.slots[sh.find(id, ch.placement.of(id), ch.placement)].limit |= changed
		}
		ch.ids = kept
	}
	c.limit |= changed
	ch.ids = append(ch.ids, c.id)
	ch.raise(ch.tracker.changed)
}

func (ch *changes) hurry(c *slot) {
	c.limit |= hurries
	if len(ch.hurried) < maxHurried {
		ch.hurried = append(ch.hurried, c.id)
		ch.raise(ch.tracker.hurried)
	}
	select {
	case ch.tracker.hurry <- struct{}{}:
	default:
	}
}

// raise sets the shard's bit. The first change after Rest signals.
func (ch *changes) raise(shards []atomic.Uint64) {
	word, bit := &shards[ch.shard/64], uint64(1)<<(ch.shard%64)
	if word.Load()&bit != 0 {
		return
	}
	word.Or(bit)
	if wake := ch.tracker.wake.Load(); wake != nil && ch.tracker.wake.CompareAndSwap(wake, nil) {
		select {
		case *wake <- struct{}{}:
		default:
		}
	}
}

// touch notes an id whether it is held or not.
func (sh *shard) touch(id ID) {
	ch := sh.changes
	if ch == nil || len(ch.touched) >= maxTouched || slices.Contains(ch.touched, id) {
		return
	}
	ch.touched = append(ch.touched, id)
	ch.raise(ch.tracker.changed)
}

func (sh *shard) collect(hurried bool, list []Change) []Change {
	ch := sh.changes
	if hurried {
		for _, id := range ch.hurried {
			if c, ok := sh.collectOne(id); ok {
				list = append(list, c)
			}
		}
		ch.hurried = ch.hurried[:0]
		return list
	}
	for _, id := range ch.touched {
		if i := sh.find(id, ch.placement.of(id), ch.placement); i < 0 || sh.slots[i].limit&changed == 0 {
			list = append(list, Change{ID: id, Folded: true}) // or it follows with its units
		}
	}
	for _, id := range ch.ids {
		if c, ok := sh.collectOne(id); ok {
			list = append(list, c)
		}
	}
	ch.ids, ch.touched = emptied(ch.ids), emptied(ch.touched)
	ch.hurried = ch.hurried[:0] // all of them are collected
	return list
}

// emptied keeps the memory of a list for the next one, unless few of it was used.
func emptied(ids []ID) []ID {
	if cap(ids) > 64 && cap(ids) > 8*len(ids) {
		return nil
	}
	return ids[:0]
}

func (sh *shard) collectOne(id ID) (collected Change, ok bool) {
	collected = Change{ID: id, Folded: true}
	i := sh.find(id, sh.changes.placement.of(id), sh.changes.placement)
	if i < 0 || sh.slots[i].limit&changed == 0 {
		return collected, false
	}
	c := &sh.slots[i]
	l := sh.limitOf(c)
	if units := sh.uncollected(l, c); units != 0 {
		sh.setUncollected(l, c, 0)
		collected.Units, collected.Folded = units, sh.fold(i, units)
	}
	c.limit &^= changed | hurries
	return collected, true
}

// uncollected is what the count, which l judges, has spent since it was collected.
func (sh *shard) uncollected(l *Limit, c *slot) int64 {
	if l.Algorithm == SlidingLog {
		return sh.logs.logs[c.log].net
	}
	if c.saturated() {
		return sh.changes.beyond[c.id]
	}
	return int64(int32(c.log))
}

func (sh *shard) setUncollected(l *Limit, c *slot, net int64) {
	if l.Algorithm == SlidingLog {
		sh.logs.logs[c.log].net = net
		return
	}
	if c.saturated() {
		delete(sh.changes.beyond, c.id)
	}
	if net > math.MinInt32 && net <= math.MaxInt32 {
		c.log = uint32(int32(net))
		return
	}
	if sh.changes.beyond == nil {
		sh.changes.beyond = make(map[ID]int64)
	}
	sh.changes.beyond[c.id] = net
	c.log = saturatedNet
}

// saturatedNet, the least int32, stands for units that are in changes.beyond.
const saturatedNet = 1 << 31

// saturated is of a count that is no SlidingLog's.
func (s *slot) saturated() bool { return s.log == saturatedNet }

// addNet is a + b, or the end of the range that it passes.
func addNet(a, b int64) int64 {
	sum := a + b
	if a > 0 && b > 0 && sum < 0 {
		return math.MaxInt64
	}
	if a < 0 && b < 0 && sum >= 0 {
		return math.MinInt64
	}
	return sum
}
