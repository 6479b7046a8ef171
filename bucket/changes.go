package bucket

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
)

// Change describes a count that has changed since the last Collect of this count.
type Change struct {
	ID     ID
	Units  int64 // units spent on this node less units refunded on this node; may be 0 or negative
	Folded bool  // Units is included in the Total of the count, or is 0; otherwise the caller must record the origin of the units
}

// Track makes the store record which counts change, and how many units of each were spent on
// this node, until the changes are collected. Before Track, the store records no changes, and
// tracking has no cost. Further calls of Track have no effect.
//
// The store records takes, debits, refunds, resets, conversions to other numbers, and calls
// of Touch. SpendElsewhere is recorded without units. If the store is not full, a recovered
// count is kept until its change is collected. If a count is evicted, its change is lost.
//
// The channel hurry, which may be nil, is signalled when the uncollected units of a count reach a
// sixteenth of its capacity, and at least 1 unit. The signal is dropped if the channel is not
// ready, so the channel should have a buffer for a single signal.
//
// The argument self is the hash of the name of this member. The argument series identifies the current run
// of this member: it is the present time in nanoseconds, and must be higher than in all earlier calls of
// Track with this name. When a count is collected, the collected units are added to its Total if this
// member has spent all units of the count, the collected units are not negative, and the Total does not
// overflow. The units that are used at the time of Track belong to this member as well.
//
// The changes of a tracked store must be collected. If they are not, they use up to 40 bytes
// for each count in the store.
func (s *Store) Track(self uint64, series int64, hurry chan<- struct{}) {
	words := (len(s.shards) + 63) / 64
	t := &tracker{
		self:    self,
		hurry:   hurry,
		changed: make([]atomic.Uint64, words),
		hurried: make([]atomic.Uint64, words),
	}
	// The tracker is set first. Otherwise the first units that are spent in a shard would not
	// be recorded.
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

// Observe sets functions that are called while the lock of the count is held. The function
// spent receives the units that a count has spent on this node, which are negative for a refund. The
// function reset receives the number of each Reset. The functions must be fast, and must not call methods of
// the store. Observe must be called before all other methods.
func (s *Store) Observe(spent func(id ID, units int64), reset func(id ID, number uint64)) {
	s.spent, s.wasReset = spent, reset
}

// Collect visits a part of the store. It appends a Change to the argument list for each count that
// has changed since the count was collected, and for each ID that Touch or Reset has recorded. Each
// ID is appended once, and its count is treated as unchanged afterwards. If the argument hurried is
// true, Collect appends only counts for which Track has signalled hurry. The order depends on the
// order of the changes. A concurrent change is returned by this call or by a later call.
//
// The part starts at the argument cursor, which is 0 for the start of the store. If there are enough
// changes, the part has at least minChanges changes, and at most the changes of one shard more.
// The result next is the cursor of the next part, or 0 after the last part. If changes are collected in
// parts, they are still in the cache of the processor when they are exported.
func (s *Store) Collect(cursor, minChanges int, hurried bool, list []Change) (next int, _ []Change) {
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
			if len(list)-had >= minChanges {
				return word*64 + i, list
			}
			// The bit is cleared before the lists of the shard are read. A change that is
			// recorded after the read sets the bit again.
			shards[word].And(^(uint64(1) << i))
			sh := &s.shards[word*64+i]
			sh.mu.Lock()
			list = sh.collect(hurried, list)
			sh.mu.Unlock()
		}
	}
	return 0, list
}

// CollectOne is like Collect, but only for one ID, and reports whether the ID had changed.
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

// Uncollected returns the units of id that were spent on this node since the count was
// collected, less the units refunded on this node.
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

// Collected returns the whole units of id that are used at the time now, less the units that were spent
// on this node since the count was collected, plus the units that were refunded on this node
// since then. The result can be negative, because spent units may recover before they are
// collected. The result is consistent, even if units are spent concurrently.
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

// Touch records a change of id without units, even if there is no count of id. Collect
// returns id in both cases, unless maxTouched IDs already wait in the shard. Before Track, Touch
// does nothing.
func (s *Store) Touch(id ID) {
	if s.tracker.Load() == nil {
		return
	}
	sh, _ := s.lock(id)
	sh.touch(id)
	sh.mu.Unlock()
}

// WakeOnChange reports whether there are no changes to collect. If so, the next change sends a single
// signal to the channel wake, unless the channel is full. A change that WakeOnChange does not see is
// signalled, so the caller need not collect before it waits. A store without Track has no changes.
// WakeOnChange can return false although CollectOne has collected the last change.
func (s *Store) WakeOnChange(wake chan<- struct{}) bool {
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

// note records a change of the count c in sh. The limit l judges c. Every change must be recorded.
// Before Track, note reads only memory that a check reads anyway.
func (s *Store) note(sh *shard, c *slot, l *Limit, units int64) {
	if s.spent != nil && units != 0 {
		s.spent(c.id, units)
	}
	if s.tracker.Load() != nil && sh.changes != nil {
		sh.note(c, l, units)
	}
}

// tracker contains the data that Track adds to a store. Each shard has a bit in changed, which
// is set when the shard adds an ID to the list ids or touched, and a bit in hurried, which is
// set for the list hurried. Collect clears a bit just before it reads the lists of that bit.
type tracker struct {
	self             uint64 // the origin of the units that are spent on this node
	hurry            chan<- struct{}
	changed, hurried []atomic.Uint64
	wake             atomic.Pointer[chan<- struct{}] // channel to which the next change sends a signal; nil if no signal is needed
}

// changes contains the data that Track adds to a shard. The lock of the shard protects it. If
// the slot of an ID in ids or hurried does not have the flag changed, the ID is stale and is
// skipped.
//
// If a count has the flag changed, its ID is in ids, and the bit of the shard in the tracker
// is set. If this invariant breaks, nodes lose units: a change is never collected if the flag
// is set without an entry in the list, or if the bit is cleared after the lists were read.
type changes struct {
	tracker   *tracker
	shard     int
	placement *placement
	ids       []ID // the IDs of all counts that have the flag changed, and stale IDs
	hurried   []ID // at most maxHurried: the IDs of counts that have the flag hurries, and stale IDs
	touched   []ID // IDs recorded by touch, with or without a count, each once

	// beyond contains the uncollected units that do not fit in a slot.
	beyond map[ID]int64

	totals
}

const (
	maxHurried = 256  // limit per shard; further IDs wait for the next Collect of all changes
	maxTouched = 1024 // limit per shard; without a Collect, further IDs are dropped
	hurryPart  = 16   // a count with 1/hurryPart of its capacity uncollected is hurried
)

// note adds units to the uncollected units of the count c, and lists the change. The limit l
// judges c.
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

// list adds c to the list of changes. Stale IDs are removed once they are the larger part of
// the list, so that the list is bounded even if the changes are not collected.
func (ch *changes) list(sh *shard, c *slot) {
	if len(ch.ids) >= 2*int(sh.n)+64 {
		kept := ch.ids[:0]
		for _, id := range ch.ids {
			if i := sh.find(id, ch.placement.place(id), ch.placement); i >= 0 && sh.slots[i].limit&changed != 0 {
				sh.slots[i].limit &^= changed // keep each ID once
				kept = append(kept, id)
			}
		}
		for _, id := range kept {
			sh.slots[sh.find(id, ch.placement.place(id), ch.placement)].limit |= changed
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

// raise sets the bit of the shard. The first change after WakeOnChange sends the signal.
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

// touch records an ID with or without a count. It does nothing before Track, and if the shard has
// maxTouched IDs.
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
		if i := sh.find(id, ch.placement.place(id), ch.placement); i < 0 || sh.slots[i].limit&changed == 0 {
			list = append(list, Change{ID: id, Folded: true}) // otherwise it follows below with its units
		}
	}
	for i, id := range ch.ids {
		if i%prefetched == 0 {
			for _, next := range ch.ids[i:min(i+prefetched, len(ch.ids))] {
				prefetchCount(sh, ch.placement.place(next))
			}
		}
		if c, ok := sh.collectOne(id); ok {
			list = append(list, c)
		}
	}
	ch.ids, ch.touched = emptyList(ch.ids), emptyList(ch.touched)
	ch.hurried = ch.hurried[:0] // all hurried changes are collected
	return list
}

// emptyList returns an empty list with the memory of ids, unless most of the memory was unused.
func emptyList(ids []ID) []ID {
	if cap(ids) > 64 && cap(ids) > 8*len(ids) {
		return nil
	}
	return ids[:0]
}

func (sh *shard) collectOne(id ID) (collected Change, ok bool) {
	collected = Change{ID: id, Folded: true}
	i := sh.find(id, sh.changes.placement.place(id), sh.changes.placement)
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

// uncollected returns the units of the count c that were spent on this node since c was
// collected, less the units refunded on this node. The limit l judges c.
func (sh *shard) uncollected(l *Limit, c *slot) int64 {
	if l.Algorithm == SlidingLog {
		return sh.logs.logs[c.log].net
	}
	if c.isSaturated() {
		return sh.changes.beyond[c.id]
	}
	return int64(int32(c.log))
}

func (sh *shard) setUncollected(l *Limit, c *slot, net int64) {
	if l.Algorithm == SlidingLog {
		sh.logs.logs[c.log].net = net
		return
	}
	if c.isSaturated() {
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

// saturatedNet, the smallest int32, represents units that are in changes.beyond.
const saturatedNet = 1 << 31

// isSaturated reports whether the uncollected units are in changes.beyond. The count must not
// belong to a SlidingLog.
func (s *slot) isSaturated() bool { return s.log == saturatedNet }

// addNet returns a + b, limited to the range of int64.
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
