package holds

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/queue"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// shards is the number of shards of a table. Each shard has its own lock. All members of a
// cluster use the same number, because a digest is of one shard.
const shards = 256

// shardOf returns the shard of an id, which depends on no bit that places the id on the ring.
func shardOf(id bucket.ID) int { return int(id.Lo % shards) }

// ref is the name of a hold: the id of its count, the hash of the name of the node that first asked
// for it, and its number on that node.
type ref struct {
	id             bucket.ID
	holder, number uint64
}

// hash returns the contribution of a hold to the digest of its shard.
func (r *ref) hash(units int64) uint64 {
	h := r.id.Hi
	for _, x := range [...]uint64{r.id.Lo, r.holder, r.number, uint64(units)} {
		h = bits.RotateLeft64((h^x)*0x9e3779b97f4a7c15, 32)
	}
	return h
}

// table contains the holds of this node's process, the holds of other processes on counts for which
// this node answers, or answered lately, and the records of clients' holds. The units of a count
// are the sum of its entries and live records. A hold that a member reports twice, late or by
// another path has a single entry or record, so no hold counts twice.
//
// An entry of another node stays for Term after its renewal. An entry is renewed by itself, or
// together with all entries of its holder in the shard, if their digest equals the digest that the
// holder has sent. An entry of this node stays as long as its Hold, and no other member ends it.
type table struct {
	room    *room         // the room for the entries and for the records that are live
	dead    *room         // room for records that have ended
	changed chan struct{} // signals that records may have to be copied
	begins  chan struct{} // signals that used is set
	age     func() time.Duration
	apart   atomic.Int64 // monotonic time at which this node last missed a member; math.MaxInt64 while a member is missing
	used    atomic.Bool  // set by the first operation on an id; until then all shards are empty, and Run does not lock them
	shards  [shards]shard
}

// shard contains the holds of a part of the ids. The work under one lock does not grow with the
// number of holds.
type shard struct {
	mu      sync.Mutex
	entries []entry
	room    quota
	links   []link        // parallel to entries
	owned   int           // number of entries of this node
	entryAt map[ref]int32 // indexes in entries
	counts  map[bucket.ID]*count
	idle    []*count           // counts that were empty after their last use, and are deleted if they still are
	holders map[uint64]*digest // digests of the entries of each holder in this shard
	members map[uint64]*digest // digests of the holds of this node that each member renews
	asks    asks

	contenders queue.Contenders // waiting holds; each node asks for one hold of a count at a time
	arrivals   int64            // number of the last contender

	records  []record
	recordAt map[ref]int32   // indexes in records
	live     recordHeap      // records that count, by expiry
	dead     recordHeap      // records that have ended, by the time at which they are deleted
	deadRoom quota           // room for the records in dead
	origins  map[uint64]int  // number of live records of each origin
	changes  []ref           // records to be copied
	signal   chan struct{}   // table.changed
	apart    *atomic.Int64   // table.apart
	next     int             // the index in entries of the next entry that look will visit
	requests [2]map[ref]bool // the calls of recordRequest in the current and in the previous period; a period lasts at least knownFor
	asking   int64           // monotonic time at which the period of requests[0] began
}

// entry is a hold of a process.
type entry struct {
	ref
	units   int64
	renewed int64 // monotonic time of the last renewal by itself
}

// link contains the pointers of an entry. They are separate from the entry, so that the garbage
// collector does not scan entries.
type link struct {
	count *count
	hold  *Hold // the Hold of the entry, nil if the entry belongs to another node
	added int64 // the field renewed of the holder's digest when the entry was added
}

// count is the number of held units of an id.
type count struct {
	id      bucket.ID
	idle    bool // the count is in shard.idle
	units   int64
	entries int    // number of entries and live records
	version uint64 // the highest Version of the limits in asks for holds; rate is the last Rate of that Version
	rate    int64
}

// digest represents all holds of a shard that one node has, or that one member renews.
type digest struct {
	node    uint64 // hash of the name of that node or member
	sum     uint64
	entries int
	renewed int64 // monotonic time at which holder and member last agreed on the digest
}

func digestOf(all map[uint64]*digest, node uint64) *digest {
	d := all[node]
	if d == nil {
		d = &digest{node: node}
		all[node] = d
	}
	return d
}

func (d *digest) add(name *ref, units int64) {
	d.sum ^= name.hash(units)
	d.entries++
}

func (d *digest) drop(name *ref, units int64) {
	d.sum ^= name.hash(units)
	d.entries--
}

func newTable(most int, age func() time.Duration) *table {
	t := &table{room: newRoom(most), dead: newRoom(most), changed: make(chan struct{}, 1), begins: make(chan struct{}, 1), age: age}
	for i := range t.shards {
		s := &t.shards[i]
		s.room.room, s.deadRoom.room, s.signal, s.apart = t.room, t.dead, t.changed, &t.apart
		s.live.timeOf, s.dead.timeOf = dueExpiry, dueForget
		s.recordAt = make(map[ref]int32)
		s.origins = make(map[uint64]int)
		s.entryAt = make(map[ref]int32)
		s.counts = make(map[bucket.ID]*count)
		s.holders = make(map[uint64]*digest)
		s.members = make(map[uint64]*digest)
	}
	return t
}

// hold grants units of a limit, or denies. The argument most is the maximum number of units that
// this node may grant; if most is below 0, it may grant the whole limit. If waits is set, a hold
// that is denied waits in the queue.
func (t *table) hold(a *wire.Ask, most int64, waits bool, now int64, r *wire.Result) {
	s := t.lockAt(a.ID, now)
	defer s.mu.Unlock()
	c := s.countOf(a.ID)
	if a.Limit.Version < c.version {
		if most < 0 {
			most = c.rate
		}
	} else {
		if most < 0 {
			most = a.Limit.Rate
		}
		c.version, c.rate = a.Limit.Version, a.Limit.Rate
	}
	name := refOf(a)
	var (
		known    bool
		i        int32
		recorded *record
	)
	if isClients(a) {
		recorded = s.record(name)
	} else {
		i, known = s.entryAt[name]
	}
	switch {
	case known:
		s.entries[i].renewed = now
		r.Allowed = true
	case recorded != nil && recorded.live: // the asking node does not know of the grant, and counts the term from now
		s.renew(recorded, int64(a.Hold.TTL), t.age(), now)
		r.Allowed, r.Renewal = true, uint64(recorded.renewal)
	case recorded != nil: // the hold has ended
		r.RetryAfter = denyFor
	case !s.isFirst(name, now) || c.units+a.Units > most || !s.fits():
		if waits {
			s.wait(name, now)
		}
		r.RetryAfter = denyFor
	default:
		s.contenders.Leave(name.id, name.ticket())
		r.Allowed = true
		if isClients(a) {
			r.Renewal = uint64(s.grant(a, t.age(), now).renewal)
		} else {
			s.add(c, entry{name, a.Units, now})
		}
	}
	s.markIdle(c)
	r.Limit, r.Remaining = most, max(0, most-c.units)
}

// peek sets r to the result that hold would have for a new hold, and does not change the table. If latest is set,
// peek uses the Rate of the highest Version that asked for the count, whatever the Version of a.
func (t *table) peek(a *wire.Ask, most int64, latest bool, now int64, r *wire.Result) {
	s := t.lockAt(a.ID, now)
	defer s.mu.Unlock()
	c := s.counts[a.ID]
	counted := c != nil
	if !counted {
		c = new(count)
	}
	switch {
	case most >= 0:
	case c.version > a.Limit.Version, latest && counted:
		most = c.rate
	default:
		most = a.Limit.Rate
	}
	r.Limit, r.Remaining = most, max(0, most-c.units)
	if r.Allowed = c.units+a.Units <= most && s.isFirst(ref{id: a.ID}, now); !r.Allowed {
		r.RetryAfter = denyFor
	}
}

// put adds a hold that its holder or another member has reported, even if it exceeds the limit, unless there is
// no room. If the table has the hold, put renews it, and may reduce but not raise its units, because a report of
// more units is older.
func (t *table) put(e entry) {
	s := t.lock(e.id)
	defer s.mu.Unlock()
	if i, known := s.entryAt[e.ref]; known {
		s.entries[i].renewed = max(s.entries[i].renewed, e.renewed)
		if e.units < s.entries[i].units && s.links[i].hold == nil {
			s.setUnits(int(i), e.units)
		}
		return
	}
	c := s.countOf(e.id)
	if c.units+e.units <= mostHeld && s.fits() {
		s.add(c, e)
	}
	s.markIdle(c)
}

// end removes a hold of another node, and reports whether the table had it.
func (t *table) end(name ref) bool {
	s := t.lock(name.id)
	defer s.mu.Unlock()
	s.contenders.Leave(name.id, name.ticket())
	i, known := s.entryAt[name]
	switch {
	case known && s.links[i].hold == nil:
		s.remove(int(i))
		return true
	case s.counts[name.id] != nil:
		s.markIdle(s.counts[name.id])
	}
	return false
}

// renew renews all entries of a holder in a shard if their digest is sum, which the holder has
// sent. It reports whether the digests are equal.
func (t *table) renew(holder uint64, shard int, sum uint64, now int64) bool {
	s := t.lockShard(shard)
	defer s.mu.Unlock()
	d := s.holders[holder]
	if d == nil || d.sum != sum {
		return false
	}
	d.renewed = now
	return true
}

// found is the result of look.
type found struct {
	lost  int   // number of holds of this node that no member has renewed for 9/10 of Term
	stale []ref // holds of other nodes that were not renewed lately
}

// look visits a part of a shard, and reports whether the shard is done. It removes expired
// entries, finds entries that were not renewed since the given time, and updates the member that
// renews each hold of this node.
func (t *table) look(shard int, v *view.View, now, since int64, found *found) (done bool) {
	s := t.lockShard(shard)
	defer s.mu.Unlock()
	if !s.expire(now) {
		return false
	}
	for end := s.next + lookAtOnce; s.next < end && s.next < len(s.entries); {
		e, o := &s.entries[s.next], s.links[s.next].hold
		switch {
		case o != nil:
			if s.lookAt(o, v, now, found) {
				end--
				continue
			}
		case s.isExpired(s.next, now):
			s.remove(s.next) // moves the last entry to this place, which is visited next
			end--
			continue
		case s.renewed(s.next) < since:
			found.stale = append(found.stale, e.ref)
		}
		s.next++
	}
	if s.next < len(s.entries) || !s.drain() {
		return false
	}
	s.next = 0
	s.room.trim(s.used())
	s.deadRoom.trim(len(s.dead.indexes))
	for holder, d := range s.holders {
		if d.entries == 0 {
			delete(s.holders, holder)
		}
	}
	for _, id := range s.contenders.Sweep(lookAtOnce, now) {
		if c := s.counts[id]; c != nil {
			s.markIdle(c)
		}
	}
	return true
}

// drain deletes some idle counts, and reports whether all of them are gone. The caller must hold
// s.mu.
func (s *shard) drain() bool {
	some := s.idle[max(0, len(s.idle)-lookAtOnce):]
	for _, c := range some {
		if c.idle = false; c.entries == 0 && !s.contenders.HasContenders(c.id) {
			delete(s.counts, c.id)
		}
	}
	clear(some)
	s.idle = s.idle[:len(s.idle)-len(some)]
	return len(s.idle) == 0
}

// endStale removes a hold that was not renewed since the given time.
func (t *table) endStale(name ref, since int64) {
	s := t.lock(name.id)
	defer s.mu.Unlock()
	if i, known := s.entryAt[name]; known && s.links[i].hold == nil && s.renewed(int(i)) < since {
		s.remove(int(i))
	}
}

// mostHeld is the maximum number of units of a count, so that reports of members cannot overflow
// the sum.
const mostHeld = 1 << 60

// lookAtOnce is the maximum number of entries that are visited under one lock.
const lookAtOnce = 256

// visitEntries calls f with the entries of ids in ranges that have not expired. It begins with the
// entry before the index in the argument from, and goes down to the first, with at most lookAtOnce entries under one
// lock. The result is the argument from of the next call, or 0 at the end. No entry is missed: an
// entry only moves down, into the place of another entry.
func (t *table) visitEntries(shard, from int, ranges countsync.Ranges, now int64, f func(*entry)) (next int) {
	s := t.lockShard(shard)
	defer s.mu.Unlock()
	from = min(from, len(s.entries))
	next = max(0, from-lookAtOnce)
	for i := from - 1; i >= next; i-- {
		e := s.entries[i]
		if s.links[i].hold != nil {
			e.renewed = now
		} else if e.renewed = s.renewed(i); now-e.renewed > int64(Term) {
			continue
		}
		if ranges.Contains(e.id.Hi) {
			f(&e)
		}
	}
	return next
}

// visitRecords is like visitEntries, for records, including records that have ended.
func (t *table) visitRecords(shard, from int, ranges countsync.Ranges, f func(*record)) (next int) {
	s := t.lockShard(shard)
	defer s.mu.Unlock()
	from = min(from, len(s.records))
	next = max(0, from-lookAtOnce)
	for i := from - 1; i >= next; i-- {
		if r := &s.records[i]; ranges.Contains(r.id.Hi) {
			f(r)
		}
	}
	return next
}

// countHolds returns the numbers for Stats: the holds that callers and clients of this node have,
// and the holds that this node knows.
func (t *table) countHolds(self uint64) (held, known int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		held += s.owned
		held += s.origins[self]
		known += len(s.entries) - s.owned + len(s.live.indexes)
		if d := s.members[self]; d != nil {
			known += d.entries
		}
		s.mu.Unlock()
	}
	return held, known
}

func (t *table) lock(id bucket.ID) *shard {
	if !t.used.Load() && t.used.CompareAndSwap(false, true) {
		env.Signal(t.begins)
	}
	return t.lockShard(shardOf(id))
}

func (t *table) lockShard(number int) *shard {
	s := &t.shards[number]
	s.mu.Lock()
	return s
}

// countOf returns the count of an id, and adds a count if necessary. The caller must hold s.mu.
func (s *shard) countOf(id bucket.ID) *count {
	c := s.counts[id]
	if c == nil {
		c = &count{id: id}
		s.counts[id] = c
	}
	return c
}

// markIdle marks an empty count as idle. An idle count is deleted soon, unless it is in use again by
// then: most keys are asked for again within the second until the next look. If many counts are
// idle, the count is deleted at once. The caller must hold s.mu.
func (s *shard) markIdle(c *count) {
	if c.entries > 0 || c.idle || s.contenders.HasContenders(c.id) {
		return
	}
	if len(s.idle) >= mostIdle {
		delete(s.counts, c.id)
		return
	}
	c.idle = true
	s.idle = append(s.idle, c)
}

// mostIdle is the maximum number of idle counts of a shard.
const mostIdle = 1024

// add adds an entry, and returns its index. The caller must hold s.mu.
func (s *shard) add(c *count, e entry) int {
	i := len(s.entries)
	s.entryAt[e.ref] = int32(i)
	d := digestOf(s.holders, e.holder)
	s.entries, s.links = append(s.entries, e), append(s.links, link{count: c, added: d.renewed})
	c.units += e.units
	c.entries++
	d.add(&e.ref, e.units)
	return i
}

// setUnits sets the units of entry i. The caller must hold s.mu.
func (s *shard) setUnits(i int, units int64) {
	e := &s.entries[i]
	d := s.holders[e.holder]
	d.drop(&e.ref, e.units)
	d.add(&e.ref, units)
	s.links[i].count.units += units - e.units
	e.units = units
}

// remove removes entry i, and moves the last entry to its place. The caller must hold s.mu.
func (s *shard) remove(i int) {
	e, last := s.entries[i], len(s.entries)-1
	c := s.links[i].count
	if o := s.links[i].hold; o != nil {
		o.slot = -1
		s.owned--
		o.renewer.drop(&o.ref, o.units.Load())
	}
	delete(s.entryAt, e.ref)
	if i != last {
		s.entries[i], s.links[i] = s.entries[last], s.links[last]
		s.entryAt[s.entries[i].ref] = int32(i)
		if o := s.links[i].hold; o != nil {
			o.slot = int32(i)
		}
	}
	s.links[last] = link{}
	s.entries, s.links = s.entries[:last], s.links[:last]
	c.units -= e.units
	c.entries--
	s.markIdle(c)
	s.holders[e.holder].drop(&e.ref, e.units)
}

// isExpired reports whether no member has renewed entry i for Term. The caller must hold s.mu.
func (s *shard) isExpired(i int, now int64) bool { return now-s.renewed(i) > int64(Term) }

// renewed returns when entry i was last renewed, alone or with all entries of its holder. A digest
// that was agreed on before the entry was added does not renew the entry. The caller must hold s.mu.
func (s *shard) renewed(i int) int64 {
	e := &s.entries[i]
	if d := s.holders[e.holder]; d.renewed > s.links[i].added {
		return max(e.renewed, d.renewed)
	}
	return e.renewed
}

// recordRequest records that this node has requested holds from other members, and whether all of
// these members have answered. If name has only an ID, this node has asked all reachable members for the
// holds of the ID, as a stand-in. Otherwise this node has asked the origin of the hold, as the
// owner.
func (t *table) recordRequest(name ref, answered bool, now int64) {
	s := t.lock(name.id)
	defer s.mu.Unlock()
	if now-s.asking > int64(knownFor) {
		if now-s.asking > 2*int64(knownFor) {
			s.requests[0] = nil
		}
		s.requests[1], s.requests[0], s.asking = s.requests[0], nil, now
	}
	if s.requests[0] == nil {
		s.requests[0] = make(map[ref]bool)
	}
	s.requests[0][name] = answered
}

// findRequest reports whether recordRequest was called with this name lately (known), and returns the
// argument answered of that call. It finds each call of the last knownFor, and no call that is older than
// three times knownFor.
func (t *table) findRequest(name ref, now int64) (known, answered bool) {
	s := t.lock(name.id)
	defer s.mu.Unlock()
	if now-s.asking > 2*int64(knownFor) {
		return false, false
	}
	if answered, known = s.requests[0][name]; !known && now-s.asking < int64(knownFor) {
		answered, known = s.requests[1][name]
	}
	return known, answered
}
