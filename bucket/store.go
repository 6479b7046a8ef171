package bucket

import (
	"sync/atomic"
	"unsafe"
)

// ID identifies a count: the keyed 128-bit hash of the name of a limit and a key.
type ID struct{ Hi, Lo uint64 }

// Store contains counts by ID, up to a maximum number. A count that has fully recovered is
// equivalent to no count: it can be forgotten without any effect, and its place is reused.
//
// Its methods are safe for concurrent use. The argument now is in nanoseconds since a fixed instant, which
// must be the same for all calls. A check locks the shard of the ID once, except for evictions. If the
// store has a count of the ID, the check allocates only for the records of a SlidingLog, for the changes
// that Track records, for a limit that is new to the shard, and for an ask with Keep whose limit differs
// from the stored limit.
//
// Only TakeAllParts holds the locks of several shards, and it locks them in ascending order.
// All other methods unlock a shard before they lock the next, even if they evict. Otherwise
// two callers could wait for each other.
type Store struct {
	shards    []shard
	placement placement
	max       int64
	tracker   atomic.Pointer[tracker] // nil before Track
	spent     func(ID, int64)         // nil without Observe
	wasReset  func(ID, uint64)        // nil without Observe

	_       [64]byte // calls write the fields below; every call reads the fields above
	total   atomic.Int64
	evicted atomic.Uint64
	usedUp  atomic.Uint64 // number of evicted counts without remaining units
	step    atomic.Uint64 // counts the shards that Compact has visited
}

const (
	maxShards    = 1024
	keysPerShard = 32 // a full store with several shards has at least this average, so that a sample finds candidates
)

// NewStore returns a store for at most maxKeys counts. A maxKeys below 1 is treated as 1. The
// store allocates memory as counts are inserted. While a store with many counts fills up, its
// tables use up to 59 bytes for each count, or 64 with Track.
//
// The place of a count depends on its ID and the salt only. The salt of each store must be
// random and must be kept secret. Otherwise a client that chooses IDs could place many counts
// next to each other.
func NewStore(maxKeys int, salt Salt) *Store {
	shards := 1
	for shards < maxShards && 2*shards*keysPerShard <= maxKeys {
		shards *= 2
	}
	return newStoreOf(maxKeys, shards, salt)
}

// newStoreOf returns a store with the given number of shards, which must be a power of two.
func newStoreOf(maxKeys, shards int, salt Salt) *Store {
	return &Store{
		shards:    make([]shard, shards),
		placement: newPlacement(shards, salt),
		max:       int64(max(1, maxKeys)),
	}
}

// Take spends units if there is room for all of them.
//
// If l differs from the limit that last judged the count, the limit with the higher Version
// judges. If the Versions are equal, l judges the same used units, unless the Algorithms
// differ: then the stored limit judges. A recovered count is always judged by l.
func (s *Store) Take(id ID, l *Limit, now, units int64) (r Result) {
	s.TakeInto(id, l, now, units, &r)
	return r
}

// TakeInto is like Take, but writes the result to r. The hot path uses TakeInto, because a
// returned Result is passed through memory, and each copy waits for the previous stores.
// These copies took a sixth of the time of an owned check.
func (s *Store) TakeInto(id ID, l *Limit, now, units int64, r *Result) {
	sh, h := s.locate(id)
	sh.mu.Lock()
	c, l := sh.lookup(id, h, &s.placement, l, now)
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

// Debit spends units even if there is no room for them, and can leave a debt. It drops the
// units above twice the capacity, or for a share, twice Whole if that is more. With MaxOfCopies,
// Debit raises the level of a bucket to the given units, unless the level is higher.
func (s *Store) Debit(id ID, l *Limit, now, units int64) Result {
	return s.debit(id, l, now, units, true)
}

// debit is like Debit. The argument here reports whether the units were spent on this node.
func (s *Store) debit(id ID, l *Limit, now, units int64, here bool) Result {
	sh, h := s.lock(id)
	var first slot
	c, l, inserts := sh.lookupOrNew(id, h, &s.placement, l, now, &first)
	if here && l.MaxOfCopies && l.IsBucket() { // a timer: spend only the units that its level lacks
		v, _ := l.advance(c.cell, nil, now)
		units -= int64(v.x)
	}
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
			whose = sh.changes.ownTotal()
		}
		s.insert(sh, first, l, whose, now)
	}
	sh.mu.Unlock()
	if inserts {
		s.trim(id, now)
	}
	return r
}

// Peek reports whether Take would be allowed, and its RetryAfter, and spends no units.
// Remaining and ResetAfter describe the count as it is, and there is no Receipt. If there is
// no count of id, Peek does not insert a count.
func (s *Store) Peek(id ID, l *Limit, now, units int64) Result {
	sh, h := s.lock(id)
	r := s.peek(sh, h, id, l, now, units)
	sh.mu.Unlock()
	return r
}

// Refund returns units that the take with this receipt has spent, but no more than are used.
// Without a receipt (0), it returns the newest units. If onlyIfLast is set, Refund returns
// units only with a receipt, and only if no units were spent since that take, as far as the
// count can tell. Refund reports whether the count has changed.
func (s *Store) Refund(id ID, l *Limit, now, units int64, r Receipt, onlyIfLast bool) bool {
	return s.refund(id, l, now, units, r, onlyIfLast, Lease{}, true)
}

// RefundBeside is like Refund for a count with lent units, which may still be spent.
// RefundBeside does not refund these units.
func (s *Store) RefundBeside(id ID, l *Limit, now, units int64, r Receipt, onlyIfLast bool, lent Lease) bool {
	return s.refund(id, l, now, units, r, onlyIfLast, lent, true)
}

// refund is like RefundBeside. The argument here reports whether the units were refunded on this node.
func (s *Store) refund(id ID, l *Limit, now, units int64, r Receipt, onlyIfLast bool, lent Lease, here bool) (changed bool) {
	sh, h := s.lock(id)
	if c, l := sh.lookup(id, h, &s.placement, l, now); c != nil {
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

// Return refunds units that were lent with this receipt and were not spent. In a SlidingLog,
// another refund may have removed units from the entry of the receipt. Return then refunds the
// missing units from the newest entries, except for other lent units, as long as the entry of
// the receipt would still count.
func (s *Store) Return(id ID, l *Limit, now, units int64, r Receipt, lent Lease) {
	sh, h := s.lock(id)
	if c, l := sh.lookup(id, h, &s.placement, l, now); c != nil {
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

// Reset removes the count of id and its uncollected units. With Track, the reset is recorded
// like a Touch, even if there is no count, because other nodes may have a count. The function
// that Observe has set receives the number.
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

// Len returns the number of counts, including recovered counts whose place has not been
// reused. The result never exceeds the maximum of the store, although the store can contain
// one more count for each call that is making room.
func (s *Store) Len() int { return int(min(s.total.Load(), s.max)) }

// Bytes returns the memory of the tables of counts in bytes, used or unused, without the
// entries of SlidingLogs. Each shard is locked for a moment.
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

// Evicted returns the number of counts that were forgotten before they had recovered, or before their
// refunds were collected, because the store was full. An eviction removes recovered counts first, but
// examines only a sample of a shard. To find all recovered counts in time, call Compact regularly.
func (s *Store) Evicted() uint64 { return s.evicted.Load() }

// EvictedUsedUp returns how many of the evicted counts had no units left: their keys were
// denied, and begin again with an empty count. For a SlidingLog, the number of units in the
// log when it was last changed decides.
func (s *Store) EvictedUsedUp() uint64 { return s.usedUp.Load() }

const (
	compactShards = 64   // maximum number of shards in one call of Compact
	compactSlots  = 4096 // after this number of slots, Compact visits no further shard
)

// Compact removes recovered counts from a part of the store, and releases memory that contains
// few counts. The work of each call is bounded. No other method relies on Compact: without it, a
// place is reused when a new ID reaches the place. If Compact is called periodically, Len and the
// memory stay near the actual usage. Compact returns the number of counts that were forgotten,
// and whether the last shard was reached.
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

// locate returns the shard of id, and the place of id (see placement).
func (s *Store) locate(id ID) (sh *shard, h uint64) {
	h = s.placement.place(id)
	return &s.shards[s.placement.shardNumber(h)], h
}

// lock locks the shard of id, and returns the shard and the place of id.
func (s *Store) lock(id ID) (sh *shard, h uint64) {
	sh, h = s.locate(id)
	sh.mu.Lock()
	return sh, h
}

// lockSlot locks the shard of id, and returns the shard and the index of the slot of id. The
// index is negative if the shard has no count of id.
func (s *Store) lockSlot(id ID) (sh *shard, i int) {
	sh, h := s.lock(id)
	return sh, sh.find(id, h, &s.placement)
}

// takeFirst is like Take, for an ID that sh does not have. sh must be locked.
func (s *Store) takeFirst(sh *shard, id ID, l *Limit, now, units int64) Result {
	c := sh.newSlot(id, l)
	r := l.takeUnits(&c.cell, sh.logOf(l, &c), now, units)
	if r.Allowed {
		if units > 0 {
			s.note(sh, &c, l, units)
		}
		s.insert(sh, c, l, sh.changes.ownTotal(), now)
	} else {
		sh.release(l, &c)
	}
	return r
}

// peek is Peek in the shard sh, which must be locked.
func (s *Store) peek(sh *shard, h uint64, id ID, l *Limit, now, units int64) Result {
	if c, l := sh.lookup(id, h, &s.placement, l, now); c != nil {
		return l.peek(&c.cell, sh.logOf(l, c), now, units)
	}
	c := sh.newSlot(id, l)
	r := l.peek(&c.cell, sh.logOf(l, &c), now, units)
	sh.release(l, &c)
	return r
}

// insert inserts the count c, which the limit l has judged, into sh with a total. sh must be
// locked, and must not have a count of this ID. The caller must call trim after all shards
// are unlocked.
func (s *Store) insert(sh *shard, c slot, l *Limit, whose Total, now int64) {
	h := s.placement.place(c.id)
	if i := sh.findRecovered(h, &s.placement, now); i >= 0 {
		sh.remove(i, &s.placement)
	} else {
		s.makeRoom(sh, c.id, now)
	}
	c.limit |= sh.intern(l, whose.seriesKey())
	i := sh.put(h, c, &s.placement)
	sh.numbers.addJudged(c.entryIndex(), 1)
	if sh.changes != nil {
		sh.changes.spent[i] = whose.Spent
	}
}

// makeRoom ensures that sh has a free slot for id. sh must be locked, and must not have a
// count of id.
func (s *Store) makeRoom(sh *shard, id ID, now int64) {
	if s.total.Add(1) > s.max && sh.n > 0 {
		s.evict(sh, now, id, sh.hand&vain != 0)
	}
	if sh.n >= room(len(sh.slots)) {
		s.total.Add(-int64(sh.grow(now, &s.placement)))
	}
}
