package bucket

// A full store forgets a count for each that it inserts: of a sample, the one whose
// loss matters least. That is its weight,
//
//	(the part of its capacity that is used, at most 1)⁸ · (how long until it has recovered)
//
// The part decides before the time does, or keys of a monthly limit, each asked for
// once, would push out those that a limit of a minute denies. With the eighth power a
// count that is half used up weighs as much as one that is used up and recovers 256
// times as soon.
//
// The least of a sample can matter much where few of the counts do not. So while more
// than half of it is used up, the sample grows; then trim looks at neighbouring shards for
// a count with less in use, and comes back if there is none. Each step is bounded, and no
// call waits for one shard while it holds another.
//
// A count that has recovered goes first, and what it has spent since it was collected goes
// with it, since that has recovered on all nodes. Units that were refunded since then weigh
// as if they were used: others count them so until they have heard of the refund.
//
// By that weight alone, a client that mints keys of a limit of a month that one ask uses up would
// push out those that another limit denies. So where one limit judges a quarter of a
// shard's counts or more, what others have with more than half in use weighs shelter times
// as much: the largest makes room, until it is not the largest any more.

const (
	sample     = 8       // counts that are weighed
	thorough   = 16      // counts that are looked at for a lighter one, with less than half in use
	neighbours = 2       // shards that are looked at so
	bulk       = 4       // of a shard's counts, those of one limit are many if they are one in so many
	shelter    = 1 << 16 // what lasts for a minute outlasts others' for a month
	sought     = 32      // counts that are looked at for one that is not sheltered: (3/4)^32 is 10^-4

	// vain, in a shard's hand, is set once its neighbours have been looked at in vain, and
	// until a sample of its own has a lighter count again. Meanwhile it does not look
	// further, which would double the cost of an insertion where everything is used up.
	vain = 1 << 31
)

// usedNow is what is used of a count, rounded up. A log is not walked: what has
// expired since it was last taken from counts.
func (l *Limit) usedNow(c *cell, now int64) uint64 {
	if l.Algorithm == SlidingLog {
		return c.x
	}
	_, used := l.advance(*c, nil, now)
	return used
}

// little reports whether no more than half is used, by the cell as it stands: it may
// have recovered since, but reading costs next to nothing.
func (l *Limit) little(c *cell) bool {
	used := c.x
	if l.Algorithm == SlidingWindow {
		used = add(c.x, c.y)
	}
	return used <= l.full()/2
}

// full is what usedNow is a part of. A share of nothing denies whether a count is
// forgotten or not, so there it is the whole.
func (l *Limit) full() uint64 {
	if capacity := l.capacity(); capacity > 0 {
		return capacity
	}
	return max(1, l.most()/2)
}

// weight is how much it matters to forget a count that recovers at t, and the part of
// its capacity that is used. net is what it has spent since it was collected, or nothing.
func (l *Limit) weight(c *cell, now, t, net int64) (weight, part float64) {
	left := float64(since(now, t))
	used := 0.0
	switch {
	case !l.Algorithm.isBucket():
		used = float64(l.usedNow(c, now))
	case l.rate() > 0:
		used = left / float64(l.per()) * float64(l.rate()) // as the level falls evenly
	default:
		used, left = float64(c.x), float64(l.per()) // it never recovers, and is no weightier for that
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

// eviction is what one has removed from a shard: counts that have recovered, or one
// that has not.
type eviction struct {
	recovered int
	forgot    bool
	usedUp    bool // what it forgot
}

// lightest is the count of a sample that an eviction can forget.
type lightest struct {
	at        int // its slot, -1 if there is none
	weight    float64
	part      float64 // of its capacity that is used
	sheltered bool
	seen      int // counts of the sample so far
}

// suffices reports whether the sample need not grow. It grows while more than half of the
// lightest is used: up to `looked` counts, and up to `sought` if the lightest is sheltered.
func (c *lightest) suffices(looked int) bool {
	return c.seen >= sample && (c.part <= 0.5 || c.seen >= looked && (c.seen >= sought || !c.sheltered))
}

// evict removes the counts that it finds recovered; if there are none, it
// removes the lightest that it finds, but for keep. Unless it must, it keeps that too if
// more than half of it is used up, for neighbours to be looked at. The table is not empty.
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

// weighSample finds the lightest count of a sample, and removes the recovered counts that
// it meets. Each call begins where the one before has ended in the table, where ids stand
// in no order that matters.
func (sh *shard) weighSample(c *lightest, now int64, p *placement, keep ID, must bool) (recovered int) {
	looked := thorough
	if must {
		looked = sample
	}
	most := sh.numbers.most()
	if bulk*most < sh.n {
		most = 0 // which shelters none
	}
	i, steps := int(sh.hand&^vain)%len(sh.slots), 0
	for steps < len(sh.slots) && (c.seen < sample || recovered == 0 && !c.suffices(looked)) {
		if s := &sh.slots[i]; s.limit != 0 && s.id != keep {
			l, other := sh.limitOf(s), sh.numbers.counts(s.judge()) < most
			if c.seen++; c.seen <= sample || l.little(&s.cell) || c.sheltered && !other {
				t, net := l.recovers(&s.cell), int64(0)
				if s.limit&changed != 0 {
					net = sh.uncollected(l, s)
				}
				if t <= now && net >= 0 {
					sh.remove(i, p) // which may put another one there
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
		i = sh.next(i)
		steps++
	}
	if steps == len(sh.slots) {
		i += sample // or the next one would look at the same counts first
	}
	sh.hand = sh.hand&vain | uint32(i)
	return recovered
}

// promises reports whether evict would find a count with little in use, and has the next
// one begin elsewhere if not: where all is used up, which is when neighbours are looked
// at, that saves most of the work.
func (sh *shard) promises() bool {
	i := int(sh.hand&^vain) % len(sh.slots)
	for seen, steps := 0, 0; seen < thorough && steps < len(sh.slots); steps++ {
		if s := &sh.slots[i]; s.limit != 0 {
			seen++
			if sh.limitOf(s).little(&s.cell) {
				return true
			}
		}
		i = sh.next(i)
	}
	sh.hand = sh.hand&vain | uint32(i)
	return false
}

// evict makes room in sh, which is locked and has counts, as its evict does. It reports
// whether there is any.
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

// trim evicts what is too many after id was inserted: where its shard had no other
// count, or none with little in use. It takes from one shard after the other, since to
// wait for one while holding another is how two callers would wait for each other: from
// the neighbours what has little in use, and then, from id's own shard on, what is there.
func (s *Store) trim(id ID, now int64) {
	own := s.placement.shard(s.placement.of(id))
	for i := uint64(1); s.total.Load() > s.max && i <= neighbours; i++ {
		s.trimShard(own+i, now, id, false)
	}
	for i := uint64(0); s.total.Load() > s.max && i < uint64(len(s.shards)); i++ {
		s.trimShard(own+i, now, id, true)
	}
}

// trimShard is trim of the shard with this number, which wraps around.
func (s *Store) trimShard(number uint64, now int64, keep ID, must bool) {
	sh := &s.shards[number%uint64(len(s.shards))]
	sh.mu.Lock()
	for sh.n > 0 && s.total.Load() > s.max && (must || sh.promises()) && s.evict(sh, now, keep, must) {
	}
	sh.mu.Unlock()
}
