package bucket

import (
	"sync/atomic"
	"unsafe"
)

// ID names one count: the keyed 128-bit hash of a limit's name and a key.
type ID struct{ Hi, Lo uint64 }

// Store holds counts by id, at most as many as it was made for. A count that
// has fully recovered equals no count: it costs nothing to forget, and its place
// is used again.
//
// Its methods are safe for concurrent use. now is in nanoseconds since any
// fixed instant, the same for all calls. A call takes the lock of one shard of
// the keys, once, and allocates nothing if the id is held, save for what a
// SlidingLog records.
//
// Only TakeAllParts holds several of these locks, which it takes in ascending order; every
// other method releases one before it takes the next, also where it evicts. Two callers
// would otherwise wait for each other.
type Store struct {
	shards    []shard
	placement placement
	max       int64
	tracker   atomic.Pointer[tracker] // nil before Track
	spent     func(ID, int64)         // nil without Observe
	wasReset  func(ID, uint64)        // likewise

	_       [64]byte // what follows is written to, what stands above is read by every call
	total   atomic.Int64
	evicted atomic.Uint64
	usedUp  atomic.Uint64 // of those evicted
	step    atomic.Uint64 // of Compact
}

const (
	maxShards    = 1024
	keysPerShard = 32 // at least, on average in a full store, so that a sample finds candidates
)

// NewStore makes a store for at most maxKeys counts; fewer than one are one.
// It takes memory as counts come, 59 bytes each at most, once they are many, and
// 64 with Track.
//
// Where a count lies follows from its id and the salt, and from nothing else: give each
// store a random one that nobody learns, or a client that chooses ids makes them lie together.
func NewStore(maxKeys int, salt Salt) *Store {
	shards := 1
	for shards < maxShards && 2*shards*keysPerShard <= maxKeys {
		shards *= 2
	}
	return newStoreOf(maxKeys, shards, salt)
}

// newStoreOf takes the number of shards too, a power of two.
func newStoreOf(maxKeys, shards int, salt Salt) *Store {
	return &Store{
		shards:    make([]shard, shards),
		placement: newPlacement(shards, salt),
		max:       int64(max(1, maxKeys)),
	}
}

// Take spends units if there is room for all of them.
//
// Where l differs from the limit that the count was last judged by, the higher
// Version judges. At equal Versions l does, over the same used units, unless
// its Algorithm is another.
func (s *Store) Take(id ID, l *Limit, now, units int64) (r Result) {
	s.TakeInto(id, l, now, units, &r)
	return r
}

// TakeInto is Take, and writes the answer to r. It is the way of the hot path: a
// Result is returned through memory, and each copy on its way up waits for the
// stores before it, which took a sixth of an owned check.
func (s *Store) TakeInto(id ID, l *Limit, now, units int64, r *Result) {
	sh, h := s.locate(id)
	sh.mu.Lock()
	c, l := sh.held(id, h, &s.placement, l, now)
	if c == nil {
		*r = s.takeFirst(sh, id, l, now, units)
		sh.mu.Unlock()
		s.trim(id, now)
		return
	}
	l.takeInto(&c.cell, sh.logOf(l, c), now, units, r)
	if r.Allowed && units > 0 {
		s.note(sh, c, l, units)
	}
	sh.mu.Unlock()
}

// Debit spends units without asking, and may leave a debt.
func (s *Store) Debit(id ID, l *Limit, now, units int64) Result {
	return s.debit(id, l, now, units, true)
}

// debit is Debit, of units that were spent here or elsewhere.
func (s *Store) debit(id ID, l *Limit, now, units int64, here bool) Result {
	sh, h := s.lock(id)
	var first slot
	c, l, inserts := sh.heldOrFresh(id, h, &s.placement, l, now, &first)
	r, counted := l.debit(&c.cell, sh.logOf(l, c), now, units)
	if counted > 0 {
		if !here {
			counted = 0
		}
		s.note(sh, c, l, counted)
	}
	if inserts {
		var whose Total
		if here {
			whose = sh.changes.own()
		}
		s.insert(sh, first, l, whose, now)
	}
	sh.mu.Unlock()
	if inserts {
		s.trim(id, now)
	}
	return r
}

// Peek answers what Take would, and spends nothing. An id that is not held is
// not inserted.
func (s *Store) Peek(id ID, l *Limit, now, units int64) Result {
	sh, h := s.lock(id)
	r := s.peek(sh, h, id, l, now, units)
	sh.mu.Unlock()
	return r
}

// Refund returns units that a take with this receipt spent, never more than
// are used; without a receipt (0), of the newest usage. With onlyIfLast it does
// so only if nothing was spent since. It reports whether it
// changed the count.
func (s *Store) Refund(id ID, l *Limit, now, units int64, r Receipt, onlyIfLast bool) bool {
	return s.refund(id, l, now, units, r, onlyIfLast, Lease{}, true)
}

// RefundBeside is Refund, of a count of which so much is lent: what may be spent yet
// is not refunded.
func (s *Store) RefundBeside(id ID, l *Limit, now, units int64, r Receipt, onlyIfLast bool, lent Lease) bool {
	return s.refund(id, l, now, units, r, onlyIfLast, lent, true)
}

// refund is RefundBeside, of units that were spent here or elsewhere.
func (s *Store) refund(id ID, l *Limit, now, units int64, r Receipt, onlyIfLast bool, lent Lease, here bool) (changed bool) {
	sh, h := s.lock(id)
	if c, l := sh.held(id, h, &s.placement, l, now); c != nil {
		var refunded int64
		refunded, changed = l.refund(&c.cell, sh.logOf(l, c), now, units, r, onlyIfLast, lent)
		if changed {
			if !here {
				refunded = 0
			}
			s.note(sh, c, l, -refunded)
		}
	}
	sh.mu.Unlock()
	return changed
}

// Return is Refund of units that the take with this receipt lent, and that nobody has spent.
// They count: where a Refund took the entry of a log for usage, which had newer units to
// take, the rest is refunded of those, but for what else is lent.
func (s *Store) Return(id ID, l *Limit, now, units int64, r Receipt, lent Lease) {
	sh, h := s.lock(id)
	if c, l := sh.held(id, h, &s.placement, l, now); c != nil {
		g := sh.logOf(l, c)
		refunded, changed := l.refund(&c.cell, g, now, units, r, false, Lease{})
		if refunded < units && l.Algorithm == SlidingLog && after(int64(r), l.per()) > now {
			rest, more := l.refund(&c.cell, g, now, units-refunded, 0, false, lent)
			refunded, changed = refunded+rest, changed || more
		}
		if changed {
			s.note(sh, c, l, -refunded)
		}
	}
	sh.mu.Unlock()
}

// Reset forgets the id's count, and what of it was not collected. With Track that
// is a change also if none was held: other nodes may hold one. An observer of the store
// gets the number.
func (s *Store) Reset(id ID, number uint64) {
	sh, i := s.lockSlot(id)
	if i >= 0 {
		sh.remove(i, &s.placement)
		s.total.Add(-1)
	}
	sh.touch(id)
	if s.wasReset != nil {
		s.wasReset(id, number)
	}
	sh.mu.Unlock()
}

// Len is the number of counts held, those included that have recovered and
// whose place nothing has used since. It is never above what the store is for
// (which holds one more for each call that is just making room).
func (s *Store) Len() int { return int(min(s.total.Load(), s.max)) }

// Bytes is the memory that the tables of counts take, used or not, without the entries of
// SlidingLogs. It takes each shard's lock for a moment.
func (s *Store) Bytes() (bytes int) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		bytes += int(unsafe.Sizeof(*sh)) + len(sh.slots)*int(unsafe.Sizeof(slot{}))
		if sh.changes != nil {
			bytes += cap(sh.changes.spent) * int(unsafe.Sizeof(sh.changes.spent[0]))
		}
		sh.mu.Unlock()
	}
	return bytes
}

// Evicted is the number of counts that were forgotten before they had
// recovered, because the store was full. Of each shard's counts those that have
// recovered go first; to find all that have in time, call Compact regularly.
func (s *Store) Evicted() uint64 { return s.evicted.Load() }

// EvictedUsedUp is how many of these had nothing left when they were forgotten: the
// key was denied, and has begun again. A SlidingLog's units are those that it held
// when it was last taken from.
func (s *Store) EvictedUsedUp() uint64 { return s.usedUp.Load() }

const (
	compactShards = 64   // that one Compact looks at, at most
	compactSlots  = 4096 // after which it looks at no further shard
)

// Compact takes one bounded step through the store: it forgets counts that have
// recovered and gives back memory that few counts are left in. Nothing else
// needs it: without it a place is used again once a new id comes upon it.
// A ticker that calls it keeps Len and the memory near what is in use. It returns the number
// of counts that it forgot, and whether it has come to the last shard.
func (s *Store) Compact(now int64) (freed int, last bool) {
	slots := 0
	for range min(compactShards, len(s.shards)) {
		at := s.step.Add(1) % uint64(len(s.shards))
		sh := &s.shards[at]
		sh.mu.Lock()
		if len(sh.slots)+len(sh.logs.logs) > 0 {
			slots += len(sh.slots)
			forgot := sh.reclaim(now, &s.placement)
			s.total.Add(-int64(forgot))
			freed += forgot
			sh.shrink(&s.placement)
		}
		sh.mu.Unlock()
		last = last || at == uint64(len(s.shards)-1)
		if slots >= compactSlots {
			break
		}
	}
	return freed, last
}

// locate returns the shard that id belongs in, and its place there (placement).
func (s *Store) locate(id ID) (sh *shard, h uint64) {
	h = s.placement.of(id)
	return &s.shards[s.placement.shard(h)], h
}

// lock locks the shard of id. It returns the shard, and the place of id there.
func (s *Store) lock(id ID) (sh *shard, h uint64) {
	sh, h = s.locate(id)
	sh.mu.Lock()
	return sh, h
}

// lockSlot locks the shard of id. It returns the shard, and the index of the slot of id, which is below
// 0 if the shard has none.
func (s *Store) lockSlot(id ID) (sh *shard, i int) {
	sh, h := s.lock(id)
	return sh, sh.find(id, h, &s.placement)
}

// takeFirst is Take of an id that sh, which is locked, does not hold.
func (s *Store) takeFirst(sh *shard, id ID, l *Limit, now, units int64) Result {
	c := sh.fresh(id, l)
	r := l.take(&c.cell, sh.logOf(l, &c), now, units)
	if r.Allowed {
		if units > 0 {
			s.note(sh, &c, l, units)
		}
		s.insert(sh, c, l, sh.changes.own(), now)
	} else {
		sh.release(l, &c)
	}
	return r
}

// peek is Peek in sh, which is locked.
func (s *Store) peek(sh *shard, h uint64, id ID, l *Limit, now, units int64) Result {
	if c, l := sh.held(id, h, &s.placement, l, now); c != nil {
		return l.peek(&c.cell, sh.logOf(l, c), now, units)
	}
	c := sh.fresh(id, l)
	r := l.peek(&c.cell, sh.logOf(l, &c), now, units)
	sh.release(l, &c)
	return r
}

// insert puts c, which the limit l judged, in sh, which is locked, with a total. Its
// id is not there yet. The caller calls trim once no shard is locked.
func (s *Store) insert(sh *shard, c slot, l *Limit, whose Total, now int64) {
	h := s.placement.of(c.id)
	if i := sh.recovered(h, &s.placement, now); i >= 0 {
		sh.remove(i, &s.placement)
	} else {
		s.makeRoom(sh, c.id, now)
	}
	c.limit |= sh.intern(l, whose.by())
	i := sh.put(h, c, &s.placement)
	sh.numbers.judge(c.judge(), 1)
	if sh.changes != nil {
		sh.changes.spent[i] = whose.Spent
	}
}

// makeRoom sees to it that sh, which is locked, has a slot for id, which it does not
// hold.
func (s *Store) makeRoom(sh *shard, id ID, now int64) {
	if s.total.Add(1) > s.max && sh.n > 0 {
		s.evict(sh, now, id, sh.hand&vain != 0)
	}
	if sh.n >= room(len(sh.slots)) {
		s.total.Add(-int64(sh.grow(now, &s.placement)))
	}
}
