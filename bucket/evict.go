package bucket

// When a count is inserted into a full store, another count is forgotten. The store examines
// a sample, and forgets the count with the lowest weight. The weight is
//
//	(used part of its capacity, at most 1)⁸ · (time until it has recovered)
//
// The part matters more than the time. Otherwise keys of a monthly limit, each asked for
// once, would replace keys that a limit of a minute denies. Because of the eighth power, a
// half-used count that recovers in 256 minutes weighs as much as a used-up count that recovers
// in one minute. In a version that forgot the count that recovers first, a flood evicted all of
// 100 denied keys.
//
// The lightest count of a sample can have a large weight if few counts have a small weight.
// So while more than half of the lightest count is used, the sample grows. After that, trim
// searches neighbouring shards for a count with fewer used units, and returns to this shard
// if there is no such count. Each step is bounded, and an eviction never waits for a shard
// while it holds another shard.
//
// A recovered count is forgotten first, together with its uncollected units, since these have
// recovered on all nodes. Units that were refunded since the count was collected weigh as if
// they were used: other nodes count them until they have received the refund.
//
// With this weight alone, a client could use a monthly limit of a single unit to create many
// keys, and these would replace the keys that another limit denies. So if at least a quarter
// of the counts of a shard belong to one limit, the counts of other limits are sheltered
// while more than half of their capacity is used: their weight is multiplied by shelter.
// Counts of the limit with the most counts are then forgotten first, until another limit has
// more counts.

const (
	sample     = 8       // number of counts in a sample, if one of them is light or has recovered
	thorough   = 16      // number of counts that are searched for a lighter count, with at most half of its capacity used
	neighbours = 2       // number of neighbouring shards that are searched for such a count
	bulk       = 4       // counts of other limits are sheltered if at least 1/bulk of the counts of a shard belong to one limit
	shelter    = 1 << 16 // factor for the weight of a sheltered count: a used-up sheltered count that recovers in a minute then outweighs every count that recovers within a month
	sought     = 32      // number of counts that are searched for a count that is not sheltered; at least a quarter of all counts are not, so the search fails with a probability of (3/4)^32, or 10^-4

	// vain is a flag in the hand of a shard. The flag is set after the neighbours of the
	// shard were searched in vain, and cleared when a sample of the shard has a lighter count
	// again. While vain is set, the neighbours are not searched, which would double the cost
	// of an insertion when all counts are used up.
	vain = 1 << 31
)

// usedNow returns the used units of a count at the time now. A log is not scanned, so the result
// includes the entries that have expired since the log was last changed.
func (l *Limit) usedNow(c *cell, now int64) uint64 {
	if l.Algorithm == SlidingLog {
		return c.x
	}
	_, used := l.advance(*c, nil, now)
	return used
}

// isHalfFree reports whether at most half of the capacity is used in the cell as it was last
// updated. The count may have recovered since then, but reading the cell is nearly free.
func (l *Limit) isHalfFree(c *cell) bool {
	used := c.x
	if l.Algorithm == SlidingWindow {
		used = add(c.x, c.y)
	}
	return used <= l.full()/2
}

// full returns the number of units with which a count is used up: the capacity. For an empty
// share, full returns the capacity of the whole limit: such a share denies whether a count is
// forgotten or not.
func (l *Limit) full() uint64 {
	if capacity := l.capacity(); capacity > 0 {
		return capacity
	}
	return max(1, l.maxUsage()/2)
}

// weight returns the weight of a count that recovers at t, and the used part of its capacity,
// at most 1. The argument net is the number of its uncollected units, which is negative after
// refunds.
func (l *Limit) weight(c *cell, now, t, net int64) (weight, part float64) {
	left := float64(timeSince(now, t))
	used := 0.0
	switch {
	case !l.Algorithm.isBucket():
		used = float64(l.usedNow(c, now))
	case l.rate() > 0:
		used = left / float64(l.per()) * float64(l.rate()) // the level falls evenly
	default:
		used, left = float64(c.x), float64(l.per()) // the count never recovers, which does not increase its weight
	}
	if net < 0 {
		used -= float64(net)
		left = max(left, float64(l.per()))
	}
	part = min(1, used/float64(l.full()))
	weight = part * part
	weight *= weight
	return weight * weight * left, part
}

// eviction is the result of an eviction: the removal of recovered counts, or of a single
// count that has not recovered.
type eviction struct {
	recovered int
	forgot    bool
	usedUp    bool // the forgotten count had no units left
}

// lightest is the count of a sample that an eviction can forget.
type lightest struct {
	at        int // index of its slot, or -1 if there is no count
	weight    float64
	part      float64 // used part of its capacity
	sheltered bool
	seen      int // number of counts in the sample so far
}

// isLargeEnough reports whether the sample is large enough. While more than half of the
// lightest count is used, the sample grows up to `looked` counts, or up to `sought` counts if
// the lightest count is sheltered.
func (c *lightest) isLargeEnough(looked int) bool {
	return c.seen >= sample && (c.part <= 0.5 || c.seen >= looked && (c.seen >= sought || !c.sheltered))
}

// evict removes the recovered counts of a sample, which never includes the count of the ID keep.
// If the sample has no recovered counts, evict removes its lightest count. But if more than
// half of the lightest count is used, and the argument must is false, evict removes no count, and the
// caller searches the neighbouring shards. The table must not be empty.
func (sh *shard) evict(now int64, p *placement, keep ID, must bool) (e eviction) {
	c := lightest{at: -1, part: 1}
	if e.recovered = sh.weighSample(&c, now, p, keep, must); e.recovered > 0 || c.at < 0 || !must && c.part > 0.5 {
		return e
	}
	if sh.hand &^= vain; c.part > 0.5 {
		sh.hand |= vain
	}
	s := &sh.slots[c.at]
	l := sh.limitOf(s)
	e.forgot, e.usedUp = true, l.usedNow(&s.cell, now) >= l.full()
	sh.remove(c.at, p)
	return e
}

// weighSample finds the lightest count of a sample, and removes the recovered counts. Each
// call starts where the previous call has ended in the table. The order of IDs in the table
// is unrelated to their weights.
func (sh *shard) weighSample(c *lightest, now int64, p *placement, keep ID, must bool) (recovered int) {
	looked := thorough
	if must {
		looked = sample
	}
	most := sh.numbers.maxJudged()
	if bulk*most < sh.n {
		most = 0 // no count is sheltered
	}
	i, steps := int(sh.hand&^vain)%len(sh.slots), 0
	for steps < len(sh.slots) && (c.seen < sample || recovered == 0 && !c.isLargeEnough(looked)) {
		if s := &sh.slots[i]; s.limit != 0 && s.id != keep {
			l, other := sh.limitOf(s), sh.numbers.judgedBy(s.entryIndex()) < most
			if c.seen++; c.seen <= sample || l.isHalfFree(&s.cell) || c.sheltered && !other {
				t, net := l.recoveryTime(&s.cell), int64(0)
				if s.limit&changed != 0 {
					net = sh.uncollected(l, s)
				}
				if t <= now && net >= 0 {
					sh.remove(i, p) // this can move another count to the slot i
					recovered++
					continue
				}
				w, part := l.weight(&s.cell, now, t, net)
				if other = other && part > 0.5; other {
					w *= shelter
				}
				if c.at < 0 || w < c.weight {
					c.at, c.weight, c.part, c.sheltered = i, w, part, other
				}
			}
		}
		i = sh.nextSlot(i)
		steps++
	}
	if steps == len(sh.slots) {
		i += sample // otherwise the next call would examine the same counts first
	}
	sh.hand = sh.hand&vain | uint32(i)
	return recovered
}

// hasLightCount reports whether a count with at most half of its capacity used, when it was last updated,
// is among the next counts that evict would examine. If not, the next eviction starts at another slot. If
// all counts of the shard and of its neighbours are used up, hasLightCount saves most of the work of
// searching the neighbours.
func (sh *shard) hasLightCount() bool {
	i := int(sh.hand&^vain) % len(sh.slots)
	for seen, steps := 0, 0; seen < thorough && steps < len(sh.slots); steps++ {
		if s := &sh.slots[i]; s.limit != 0 {
			seen++
			if sh.limitOf(s).isHalfFree(&s.cell) {
				return true
			}
		}
		i = sh.nextSlot(i)
	}
	sh.hand = sh.hand&vain | uint32(i)
	return false
}

// evict makes room in sh, which must be locked and must have counts. The arguments keep and must
// are those of shard.evict. The result reports whether a count was removed.
func (s *Store) evict(sh *shard, now int64, keep ID, must bool) bool {
	e := sh.evict(now, &s.placement, keep, must)
	removed := e.recovered
	if e.forgot {
		removed++
		s.evicted.Add(1)
	}
	if e.usedUp {
		s.usedUp.Add(1)
	}
	s.total.Add(-int64(removed))
	return removed > 0
}

// trim evicts counts above the maximum of the store after id was inserted. This is necessary
// if the shard of id had no other count, or its sample no count with at most half of its capacity used.
// trim never holds two shards, because two callers that wait for a shard while holding
// another could wait for each other. First it evicts counts with at most half of their
// capacity used from the neighbours. Then it evicts any counts, starting with the shard of id.
func (s *Store) trim(id ID, now int64) {
	own := s.placement.shardNumber(s.placement.place(id))
	for i := uint64(1); s.total.Load() > s.max && i <= neighbours; i++ {
		s.trimShard(own+i, now, id, false)
	}
	for i := uint64(0); s.total.Load() > s.max && i < uint64(len(s.shards)); i++ {
		s.trimShard(own+i, now, id, true)
	}
}

// trimShard is like trim, but evicts only from one shard. The number wraps around.
func (s *Store) trimShard(number uint64, now int64, keep ID, must bool) {
	sh := &s.shards[number%uint64(len(s.shards))]
	sh.mu.Lock()
	for sh.n > 0 && s.total.Load() > s.max && (must || sh.hasLightCount()) && s.evict(sh, now, keep, must) {
	}
	sh.mu.Unlock()
}
