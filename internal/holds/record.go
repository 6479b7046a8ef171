package holds

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

// record is the hold of a client, which does not depend on any node. The hold ends at its expiry,
// or when it is released. The name of a record is the name in the client's text, and never changes.
// Members have replicas of a record, which merge joins.
//
// A record that has ended stays, while there is room (boundEnded), until no replica of any member can still be
// live, so that no replica revives the hold.
type record struct {
	ref      // the holder is the origin: the node that asked for the hold
	units    int64
	renewal  renewal
	expires  int64  // monotonic time at which the hold ends unless it is renewed or released before
	forget   int64  // monotonic time of the latest possible expiry of any renewal; an ended record is deleted then (see keepApart)
	copied   uint64 // copyState of the last acknowledged state, 0 if no member has acknowledged the record
	place    int32  // index in the heap live or dead of the shard
	released bool
	live     bool // the record is in the live heap, and its units count
	queued   bool // the record is in the list of changed records
}

// renewal is the number of a renewal of a record. Like a hybrid logical clock, the number is
// greater than that of each renewal that the member knows of, and not less than the age of the
// cluster in ms. So of two renewals on two sides of a partition, the later renewal has the greater
// number. The lower bits are random, so two members seldom give two renewals the same number. If
// they do, merge keeps the earlier expiry of the two.
type renewal uint64

const tagBits = 16

func (r renewal) count() uint64 { return uint64(r >> tagBits) }

// nextRenewal returns the number of a renewal after r, given the age of the cluster.
func (r renewal) nextRenewal(age time.Duration) renewal {
	count := max(r.count()+1, uint64(max(0, age.Milliseconds())))
	return renewal(count<<tagBits | rand.Uint64N(1<<tagBits))
}

// isLive reports whether the hold has not ended.
func (r *record) isLive(now int64) bool { return !r.released && now < r.expires }

// merge joins another replica of the same record into r. The join is commutative, associative and
// idempotent: a release wins, then the later renewal, and of two renewals with the same count the
// renewal that expires later. The expiry of two replicas of one renewal differs only because of the time for which
// they were in transit, so the earlier expiry is right. The fewer units are right, because the units
// never rise.
func (r *record) merge(other *record) {
	switch mine, its := r.renewal.count(), other.renewal.count(); {
	case r.renewal == other.renewal:
		r.expires = min(r.expires, other.expires)
	case its > mine,
		its == mine && other.expires > r.expires,
		its == mine && other.expires == r.expires && other.renewal > r.renewal:
		r.renewal, r.expires = other.renewal, other.expires
	}
	r.units = min(r.units, other.units)
	r.forget = max(r.forget, other.forget)
	r.released = r.released || other.released
}

// sameState reports whether two replicas have seen the same renewals and the same release, and have the same
// units. The units of a released hold do not matter.
func (r *record) sameState(other *record) bool {
	return r.renewal == other.renewal && r.released == other.released && (r.released || r.units == other.units)
}

// copyState returns a hash of the state of a record and the members that should have it.
func (r *record) copyState(members []uint64) uint64 {
	x := uint64(r.renewal)
	if r.released {
		x = ^x
	} else {
		x ^= mix(uint64(r.units))
	}
	state := mix(x) | 1 // 0 means that no member has acknowledged the record
	for _, m := range members {
		state += mix(m) << 1
	}
	return state
}

func mix(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}

// isClients reports whether an ask is for a client's hold, which has a term.
func isClients(a *wire.Ask) bool { return a.Hold.TTL > 0 }

// grant adds the record of a new hold for an ask. The caller must hold s.mu.
func (s *shard) grant(a *wire.Ask, age time.Duration, now int64) *record {
	r := record{ref: refOf(a), units: a.Units, renewal: renewal(0).nextRenewal(age), expires: now + int64(a.Hold.TTL)}
	r.forget = r.expires
	return s.insert(r, now)
}

// shrink lowers the units of a live record to at most the given number. It does not change a record that
// has ended. The caller must hold s.mu.
func (s *shard) shrink(r *record, units int64) {
	if left := min(r.units, units); r.live {
		s.counts[r.id].units -= r.units - left
		r.units = left
	}
}

// renew sets the expiry of a record to ttl from now. The caller must hold s.mu.
func (s *shard) renew(r *record, ttl int64, age time.Duration, now int64) {
	r.renewal, r.expires = r.renewal.nextRenewal(age), now+ttl
	r.forget = max(r.forget, r.expires)
	s.queueCopy(r)
	s.live.fix(s.records, r.place)
}

// extend renews a client's hold, lowers its units to those of the ask if Shrinks is set, or only reads the hold if
// Reads is set. The ResetAfter of r is the time until the hold ends. If certain is set, this node knows all holds
// of the count, so that a hold that it does not know has ended.
func (t *table) extend(a *wire.Ask, certain bool, now int64, r *wire.Result) {
	s := t.lockAt(a.ID, now)
	defer s.mu.Unlock()
	known := s.record(refOf(a))
	if known == nil || !known.live {
		r.Firm, r.RetryAfter = certain || known != nil, denyFor
		return
	}
	if a.Hold.Shrinks {
		s.shrink(known, a.Units)
	}
	if !a.Hold.Reads {
		s.renew(known, int64(a.Hold.TTL), t.age(), now)
	}
	r.ResetAfter = time.Duration(known.expires - now)
	r.Allowed, r.Held, r.Renewal = true, known.units, uint64(known.renewal)
}

// bury releases a client's hold. The record of the released hold stays at least for ttl.
func (t *table) bury(name ref, ttl tombstoneTTL, now int64) {
	s := t.lockAt(name.id, now)
	defer s.mu.Unlock()
	s.contenders.Leave(name.id, name.ticket())
	if r := s.record(name); r != nil {
		if !r.released {
			r.released, r.expires = true, min(r.expires, now)
			r.forget = max(r.forget, now+ttl.known)
			s.queueCopy(r)
			s.settle(r, now)
		}
	} else if ttl.unknown > 0 {
		s.insert(record{ref: name, released: true, expires: now, forget: now + ttl.unknown}, now)
	}
	if c := s.counts[name.id]; c != nil {
		s.markIdle(c)
	}
}

// tombstoneTTL is the time for which another member may have a live replica of a released hold.
// known is the time if this node knows the hold, but may not know its last renewal. unknown is the
// time if this node does not know the hold; it is 0 if no member has such a replica.
type tombstoneTTL struct{ known, unknown int64 }

// cutFound is the longest time until a node finds that it does not reach a member. The record of a
// released hold stays at least for that time, so that keepApart finds each member that was not
// reached at the release.
const cutFound = int64(2 * time.Second)

// keepApart keeps the record of a released hold for LongestTerm if this node has missed a member
// since the release, because that member may have renewed the hold. It reports whether the record
// stays. The caller must hold s.mu.
func (s *shard) keepApart(r *record) (stays bool) {
	forget := r.expires + int64(LongestTerm)
	if !r.released || r.forget >= forget || s.apart.Load() < r.expires {
		return false
	}
	r.forget = forget
	s.dead.fix(s.records, r.place)
	return true
}

// merge joins a replica from another member into the replica of this node. It returns the joined
// record, and whether the table has the record. It refuses a record only if there is no room, or if the
// record can be forgotten.
func (t *table) merge(in record, now int64) (joined record, kept bool) {
	s := t.lockAt(in.id, now)
	defer s.mu.Unlock()
	r := s.record(in.ref)
	if r == nil {
		if now >= in.forget || s.unitsOf(&in)+in.units > mostHeld {
			return in, false
		}
		r = s.insert(in, now)
	} else {
		before := *r
		s.shrink(r, in.units)
		if r.merge(&in); !r.sameState(&before) {
			r.copied = in.copied
			s.queueCopy(r)
		}
		r = s.settle(r, now)
	}
	if r == nil {
		return in, false
	}
	return *r, true
}

func (s *shard) unitsOf(r *record) int64 {
	if c := s.counts[r.id]; c != nil {
		return c.units
	}
	return 0
}

// record returns the record with a name, nil if there is none. The pointer is valid until the next
// record is inserted or deleted. The caller must hold s.mu.
func (s *shard) record(name ref) *record {
	if i, known := s.recordAt[name]; known {
		return &s.records[i]
	}
	return nil
}

// insert adds a record that has no replica here. It returns nil if there is no room. The caller
// must hold s.mu.
func (s *shard) insert(r record, now int64) *record {
	r.live = false
	i := int32(len(s.records))
	s.records = append(s.records, r)
	s.recordAt[r.ref] = i
	s.dead.push(s.records, i)
	if s.queueCopy(&s.records[i]); s.records[i].isLive(now) {
		return s.settle(&s.records[i], now)
	}
	return s.boundEnded(&s.records[i])
}

// settle moves a record to the heap of its present state, live or dead. It returns nil if there was
// no room, so that the record was deleted. The caller must hold s.mu.
func (s *shard) settle(r *record, now int64) *record {
	i := s.recordAt[r.ref]
	switch live := r.isLive(now); {
	case live == r.live && live:
		s.live.fix(s.records, r.place)
	case live == r.live:
		s.dead.fix(s.records, r.place)
	case live:
		if !s.fits() {
			s.delete(i)
			return nil
		}
		s.dead.remove(s.records, r.place)
		s.live.push(s.records, i)
		s.countRecord(r)
	default:
		s.live.remove(s.records, r.place)
		s.uncountRecord(r)
		s.dead.push(s.records, i)
		return s.boundEnded(r)
	}
	return r
}

// evictAmong is the number of records among which boundEnded chooses.
const evictAmong = 16

// boundEnded makes room for a record r that has ended: it deletes one of the next records to be
// deleted, if possible a record that is not queued for copying, because a queued record may be the
// only replica of a release. It returns nil if there is no room for r. The caller must hold s.mu.
func (s *shard) boundEnded(r *record) *record {
	if s.deadRoom.fits(len(s.dead.indexes) - 1) {
		return r
	}
	name, evicted := r.ref, int32(-1)
	for _, i := range s.dead.indexes[:min(evictAmong, len(s.dead.indexes))] {
		if s.records[i].ref == name {
			continue // r should stay
		}
		if !s.records[i].queued {
			evicted = i
			break
		}
		if evicted < 0 {
			evicted = i
		}
	}
	if evicted < 0 {
		evicted = s.recordAt[name]
	}
	s.delete(evicted)
	return s.record(name)
}

// delete deletes record i, and moves the last record to its place. The caller must hold s.mu.
func (s *shard) delete(i int32) {
	r := &s.records[i]
	if r.live {
		s.live.remove(s.records, r.place)
		s.uncountRecord(r)
	} else {
		s.dead.remove(s.records, r.place)
	}
	delete(s.recordAt, r.ref)
	last := int32(len(s.records) - 1)
	if i != last {
		moved := s.records[last]
		s.records[i] = moved
		s.recordAt[moved.ref] = i
		s.heapOf(&moved).indexes[moved.place] = i
	}
	s.records[last] = record{}
	s.records = s.records[:last]
}

func (s *shard) heapOf(r *record) *recordHeap {
	if r.live {
		return &s.live
	}
	return &s.dead
}

func (s *shard) countRecord(r *record) {
	r.live = true
	c := s.countOf(r.id)
	c.units += r.units
	c.entries++
	s.origins[r.holder]++
}

func (s *shard) uncountRecord(r *record) {
	r.live = false
	c := s.counts[r.id]
	c.units -= r.units
	c.entries--
	s.markIdle(c)
	if s.origins[r.holder]--; s.origins[r.holder] == 0 {
		delete(s.origins, r.holder)
	}
}

// expireAtOnce is the maximum number of records that expire ends or deletes while it holds the lock
// once.
const expireAtOnce = 256

// expire ends the records that have expired, and deletes the records that no replica can revive, at
// most expireAtOnce of both. It returns false if there may be more such records. The caller must
// hold s.mu.
func (s *shard) expire(now int64) (done bool) {
	for range expireAtOnce {
		switch {
		case len(s.live.indexes) > 0 && s.records[s.live.indexes[0]].expires <= now:
			s.settle(&s.records[s.live.indexes[0]], now)
		case len(s.dead.indexes) > 0 && s.records[s.dead.indexes[0]].forget <= now:
			if first := s.dead.indexes[0]; !s.keepApart(&s.records[first]) {
				s.delete(first)
			}
		default:
			return true
		}
	}
	return false
}

// lockAt locks the shard of an id once no record in the shard is overdue, so that the units of its
// counts are exact at the time now.
func (t *table) lockAt(id bucket.ID, now int64) *shard {
	s := t.lock(id)
	for !s.expire(now) {
		s.mu.Unlock() // other callers should not wait until all records have ended
		s.mu.Lock()
	}
	return s
}
