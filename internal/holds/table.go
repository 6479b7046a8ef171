package holds

import (
	"math/bits"
	"sync"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// shards is how many parts a table has, each with a lock of its own. The members of a
// cluster agree on it, since digests are of shards.
const shards = 256

// shardOf is the shard of an id. It is none of the bits that place the id on the ring.
func shardOf(id bucket.ID) int { return int(id.Lo % shards) }

// ref names a hold: what it is of, the node that has it, and its number there.
type ref struct {
	id             bucket.ID
	holder, number uint64
}

// hash is what a hold adds to the digest of its shard.
func (r *ref) hash(units int64) uint64 {
	h := r.id.Hi
	for _, x := range [...]uint64{r.id.Lo, r.holder, r.number, uint64(units)} {
		h = bits.RotateLeft64((h^x)*0x9e3779b97f4a7c15, 32)
	}
	return h
}

// table is the holds that this node knows of the counts that it answers for, or answered
// for lately. The units of a count are the sum of its entries: what a holder says twice,
// late or by another path is one entry, so that nothing counts twice.
//
// An entry stays for its term after it was renewed. It is renewed by itself, or with all
// that its holder has in the shard, where the digest of these is the holder's too.
type table struct {
	most   int // entries of a shard
	shards [shards]shard
}

// shard is the holds of the ids of one shard. What is done under its lock does not grow with
// their number.
type shard struct {
	mu      sync.Mutex
	entries []entry
	at      map[ref]int32 // in entries
	counts  map[bucket.ID]count
	holders map[uint64]digest
	lines   lines
	swept   int                       // where the next sweep goes on
	asked   [2]map[bucket.ID]struct{} // ids of which all members were asked lately, for a stand-in
	asking  int64                     // when asked[0] began
}

// entry is one hold.
type entry struct {
	ref
	units   int64
	term    int64
	renewed int64 // by the steady clock
}

// count is what is held of one id.
type count struct {
	units   int64
	entries int
	version uint64 // the highest of the limits that were asked by, and its Rate
	rate    int64
}

// digest stands for all that one holder has in a shard.
type digest struct {
	sum     uint64
	entries int
	renewed int64
}

func newTable(most int) *table {
	t := &table{most: max(1, most/shards)}
	for i := range t.shards {
		s := &t.shards[i]
		s.at = make(map[ref]int32)
		s.counts = make(map[bucket.ID]count)
		s.holders = make(map[uint64]digest)
	}
	return t
}

// hold carries out an ask for units of a limit, of which this node may grant most; all of
// it if that is below 0.
func (t *table) hold(a *wire.Ask, most int64, waits bool, now int64, r *wire.Result) {
	s := t.lock(a.ID)
	defer s.mu.Unlock()
	c, counted := s.counts[a.ID]
	if counted && a.Limit.Version < c.version {
		if most < 0 {
			most = c.rate
		}
	} else {
		if most < 0 {
			most = a.Limit.Rate
		}
		c.version, c.rate = a.Limit.Version, a.Limit.Rate
	}
	of := refOf(a)
	i, known := s.at[of]
	switch {
	case known:
		s.entries[i].renewed = now
		r.Allowed = true
	case !s.lines.first(of, now) || c.units+a.Units > most || len(s.entries) >= t.most:
		if waits {
			s.lines.wait(of, now)
		}
		r.RetryAfter = denyFor
	default:
		s.lines.leave(of)
		s.add(&c, entry{of, a.Units, int64(termOf(a.Limit)), now})
		r.Allowed = true
	}
	s.keep(a.ID, &c)
	r.Limit, r.Remaining = most, max(0, most-c.units)
}

// peek says what hold would. With lately, it does so by the Rate that the count was last
// asked by.
func (t *table) peek(a *wire.Ask, most int64, lately bool, now int64, r *wire.Result) {
	s := t.lock(a.ID)
	defer s.mu.Unlock()
	c, counted := s.counts[a.ID]
	switch {
	case most >= 0:
	case c.version > a.Limit.Version, lately && counted:
		most = c.rate
	default:
		most = a.Limit.Rate
	}
	r.Limit, r.Remaining = most, max(0, most-c.units)
	if r.Allowed = c.units+a.Units <= most && s.lines.first(ref{id: a.ID}, now); !r.Allowed {
		r.RetryAfter = denyFor
	}
}

// put takes in that a hold is held, as its holder or another member says. It is never
// refused but where there is no room for it: what is held is held.
func (t *table) put(e entry) {
	s := t.lock(e.id)
	defer s.mu.Unlock()
	if i, known := s.at[e.ref]; known {
		s.entries[i].renewed = max(s.entries[i].renewed, e.renewed)
		return
	}
	if c := s.counts[e.id]; len(s.entries) < t.most && c.units+e.units <= mostHeld {
		s.add(&c, e)
		s.keep(e.id, &c)
	}
}

// end takes a hold out, and reports whether it was there.
func (t *table) end(of ref) bool {
	s := t.lock(of.id)
	defer s.mu.Unlock()
	s.lines.leave(of)
	i, known := s.at[of]
	if known {
		s.remove(int(i))
	}
	return known
}

// adopt gives a hold to another holder, and returns its units and term. It reports false if
// the hold is not there or over.
func (t *table) adopt(of ref, holder uint64, now int64) (units int64, term time.Duration, held bool) {
	s := t.lock(of.id)
	defer s.mu.Unlock()
	i, known := s.at[of]
	if !known || s.over(&s.entries[i], now) {
		return 0, 0, false
	}
	e := s.entries[i]
	s.remove(int(i))
	e.holder, e.renewed = holder, now
	c := s.counts[of.id]
	s.add(&c, e)
	s.keep(of.id, &c)
	return e.units, time.Duration(e.term), true
}

// renew renews all that a holder has in a shard, and reports whether that is what the
// holder says it is.
func (t *table) renew(holder uint64, shard int, sum uint64, now int64) bool {
	s := &t.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.holders[holder]
	if !known || d.sum != sum {
		return false
	}
	d.renewed = now
	s.holders[holder] = d
	return true
}

// sweep takes out what is over, a part of one shard at a time, and reports when the shard is
// done. It appends to stale what was not renewed since then.
func (t *table) sweep(shard int, now, since int64, stale []ref) (_ []ref, done bool) {
	s := &t.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.swept + sweepAtOnce
	for s.swept < end && s.swept < len(s.entries) {
		if s.over(&s.entries[s.swept], now) {
			s.remove(s.swept) // the last one is in its place
			end--
			continue
		}
		if e := &s.entries[s.swept]; s.renewed(e) < since {
			stale = append(stale, e.ref)
		}
		s.swept++
	}
	if s.swept < len(s.entries) {
		return stale, false
	}
	s.swept = 0
	for _, id := range s.lines.sweep(now) {
		if c, counted := s.counts[id]; counted {
			s.keep(id, &c)
		}
	}
	return stale, true
}

// endStale takes out a hold that was not renewed since then.
func (t *table) endStale(of ref, since int64) {
	s := t.lock(of.id)
	defer s.mu.Unlock()
	if i, known := s.at[of]; known && s.renewed(&s.entries[i]) < since {
		s.remove(int(i))
	}
}

// mostHeld bounds the units of one count, so that their sum does not overflow whatever is
// reported.
const mostHeld = 1 << 60

// sweepAtOnce bounds the entries that are looked at under one lock.
const sweepAtOnce = 256

// each calls f with what is held in ranges, a part of a shard at a time: of the entries
// from the one at from on, sweepAtOnce at most. It returns where to go on, 0 if the shard is
// done. An entry that moves meanwhile may be missed: it is one that has just come, or that
// was the last when another ended.
func (t *table) each(shard, from int, ranges countsync.Ranges, now int64, f func(*entry)) (next int) {
	s := &t.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := from; i < len(s.entries) && i < from+sweepAtOnce; i++ {
		if e := &s.entries[i]; ranges.Contains(e.id.Hi) && !s.over(e, now) {
			seen := *e
			seen.renewed = s.renewed(e)
			f(&seen)
		}
	}
	if from+sweepAtOnce < len(s.entries) {
		return from + sweepAtOnce
	}
	return 0
}

// len returns the entries.
func (t *table) len() (entries int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		entries += len(s.entries)
		s.mu.Unlock()
	}
	return entries
}

func (t *table) lock(id bucket.ID) *shard {
	s := &t.shards[shardOf(id)]
	s.mu.Lock()
	return s
}

// keep puts a count in place, unless nothing is held of it and nothing waits. s.mu is held.
func (s *shard) keep(id bucket.ID, c *count) {
	if c.entries > 0 || s.lines.any(id) {
		s.counts[id] = *c
	} else {
		delete(s.counts, id)
	}
}

// add puts an entry in. s.mu is held.
func (s *shard) add(c *count, e entry) {
	s.at[e.ref] = int32(len(s.entries))
	s.entries = append(s.entries, e)
	c.units += e.units
	c.entries++
	d, known := s.holders[e.holder]
	if !known {
		d.renewed = e.renewed
	}
	d.sum ^= e.hash(e.units)
	d.entries++
	s.holders[e.holder] = d
}

// remove takes out entry i, and puts the last in its place. s.mu is held.
func (s *shard) remove(i int) {
	e, last := s.entries[i], len(s.entries)-1
	delete(s.at, e.ref)
	if i != last {
		s.entries[i] = s.entries[last]
		s.at[s.entries[i].ref] = int32(i)
	}
	s.entries[last] = entry{}
	s.entries = s.entries[:last]
	c := s.counts[e.id]
	c.units -= e.units
	c.entries--
	s.keep(e.id, &c)
	d := s.holders[e.holder]
	d.sum ^= e.hash(e.units)
	if d.entries--; d.entries == 0 {
		delete(s.holders, e.holder)
	} else {
		s.holders[e.holder] = d
	}
}

// over reports whether nobody has renewed an entry for its term. s.mu is held.
func (s *shard) over(e *entry, now int64) bool { return now-s.renewed(e) > e.term }

// renewed returns when an entry was last renewed. s.mu is held.
func (s *shard) renewed(e *entry) int64 { return max(e.renewed, s.holders[e.holder].renewed) }

// know notes that all members were asked what they hold of an id.
func (t *table) know(id bucket.ID, now int64) {
	s := t.lock(id)
	defer s.mu.Unlock()
	if now-s.asking > int64(knownFor) {
		if now-s.asking > 2*int64(knownFor) {
			s.asked[0] = nil
		}
		s.asked[1], s.asked[0], s.asking = s.asked[0], nil, now
	}
	if s.asked[0] == nil {
		s.asked[0] = make(map[bucket.ID]struct{})
	}
	s.asked[0][id] = struct{}{}
}

// knows reports whether they were, not long ago.
func (t *table) knows(id bucket.ID, now int64) bool {
	s := t.lock(id)
	defer s.mu.Unlock()
	if now-s.asking > 2*int64(knownFor) {
		return false
	}
	_, first := s.asked[0][id]
	_, second := s.asked[1][id]
	return first || second && now-s.asking < int64(knownFor)
}
