package bucket

import "math"

// Total is what one origin has spent of an id in all: the whole of a count's
// units, if it is that of a count. Of two copies of a count with totals of one origin,
// the one of the higher Series, and in one Series the one that has more Spent, has
// all that the other has. That rests on the origin: it alone raises its total, and no
// two counts that it has had of one id have the same one.
type Total struct {
	Origin uint64 // the hash of a member's name; 0: several, or unknown, and then the other fields are zero
	Series int64  // of the origin: rises when it begins again from zero
	Spent  uint32 // cumulative, since the series began; what was refunded is not taken off
}

func (t Total) by() originSeries { return originSeries{t.Origin, t.Series} }

// totals are what Track adds to a shard to know whose its counts are, under its lock.
// Whose a count is stands beside the limit that judges it, and Spent here, at the
// index of its slot; 0 for an empty slot.
//
// A shard forgets the totals of the counts that it forgets. So that none of them is
// used again, each count that begins here begins above all that this store has had in
// the shard's series and has forgotten (forget, before a slot is emptied). This floor is one number for all ids of the
// shard: that some totals rise by more than was spent does no harm, as they are only
// ever compared.
type totals struct {
	spent  []uint32
	series int64
	floor  uint32
}

// maxFloor is where a shard begins a new series, long before a total has no room for
// what is spent.
const maxFloor = 1 << 31

// Whose returns the total of id's count, as of when it was last collected, and
// whether a count is held: one that has recovered is held until its place is used.
func (s *Store) Whose(id ID) (t Total, held bool) {
	sh, i := s.lockSlot(id)
	defer sh.mu.Unlock()
	if i < 0 {
		return Total{}, false
	}
	return sh.totalOf(i), true
}

// SetWhose makes t the total of id's count. That is no change of it. Without a count
// of id, or before Track, it does nothing.
//
// Where t is this store's own, and below what it has had of the count or has
// forgotten in this shard, the count begins again above that, as if it was inserted:
// Whose returns what became of it.
func (s *Store) SetWhose(id ID, t Total) {
	sh, i := s.lockSlot(id)
	if i >= 0 {
		sh.setTotal(i, t)
	}
	sh.mu.Unlock()
}

// NewTotal is the total that a count of id begins with whose units are spent here: above all
// that this store has had and forgotten of any id like it. Nobody's before Track.
func (s *Store) NewTotal(id ID) Total {
	sh, _ := s.lock(id)
	defer sh.mu.Unlock()
	return sh.changes.own()
}

// Forget makes each count of id that begins from now on begin above t, if t is this store's.
// A caller that keeps the totals of counts with several origins calls it as it forgets one.
func (s *Store) Forget(id ID, t Total) {
	sh, _ := s.lock(id)
	sh.changes.forget(t)
	sh.mu.Unlock()
}

// limitOf is the limit that last judged the count in s.
func (sh *shard) limitOf(s *slot) *Limit { return &sh.numbers.at[s.judge()].Limit }

// totalOf is the total of the count in slot i.
func (sh *shard) totalOf(i int) Total {
	if sh.changes == nil {
		return Total{}
	}
	by := sh.numbers.at[sh.slots[i].judge()].by
	return Total{by.origin, by.series, sh.changes.spent[i]}
}

// setTotal makes t the total of the count in slot i, as far as succeed lets it.
func (sh *shard) setTotal(i int, t Total) {
	if sh.changes == nil {
		return
	}
	s := &sh.slots[i]
	t = sh.changes.succeed(sh.totalOf(i), t)
	judge := sh.intern(sh.limitOf(s), t.by())
	sh.judgeBy(s, judge, s.flags())
	sh.changes.spent[i] = t.Spent
}

// claim makes all that is used at a time this store's own: nobody else has spent before
// there was anybody else.
func (sh *shard) claim(now int64) {
	ch := sh.changes
	for i := 1; i < len(sh.numbers.at); i++ {
		sh.numbers.at[i].by = ch.own().by()
	}
	for i := range sh.slots {
		if s := &sh.slots[i]; s.limit != 0 {
			used := sh.limitOf(s).usedNow(&s.cell, now)
			ch.spent[i] = uint32(min(used, maxFloor))
			ch.floor = max(ch.floor, ch.spent[i]+1)
		}
	}
}

// own is the total that a count begins with whose units are spent here: nobody's
// before Track.
func (ch *changes) own() Total {
	if ch == nil || ch.tracker.self == 0 {
		return Total{}
	}
	return Total{ch.tracker.self, ch.series, ch.floor}
}

// succeed is what a count's total becomes that was old, and is to be t. A total of
// this store never falls: where t is less than the count had, or than the shard has
// forgotten, it is of an older copy, and the count begins again.
func (ch *changes) succeed(old, t Total) Total {
	switch {
	case ch == nil || t.Origin == 0:
		t = Total{}
	case t.by() == old.by() && t.Spent >= old.Spent:
		return t
	}
	ch.forget(old)
	if own := ch.own(); t.Origin != 0 && t.Origin == own.Origin && (t.Series != own.Series || t.Spent < own.Spent) {
		return own
	}
	return t
}

// forget has no count begin at t or below from now on, if t is this store's.
func (ch *changes) forget(t Total) {
	if ch == nil || t.Spent == 0 || t.Origin != ch.tracker.self || t.Series != ch.series || t.Spent < ch.floor {
		return
	}
	if t.Spent >= maxFloor {
		ch.series, ch.floor = ch.series+1, 0
		return
	}
	ch.floor = t.Spent + 1
}

// fold makes units part of the total of the count in slot i, and reports whether they
// are: if all of the count is this store's, and nothing was refunded.
func (sh *shard) fold(i int, units int64) bool {
	ch := sh.changes
	by := sh.numbers.at[sh.slots[i].judge()].by
	if by.origin == 0 || by.origin != ch.tracker.self || units < 0 || units > math.MaxUint32-int64(ch.spent[i]) {
		return false
	}
	ch.spent[i] += uint32(units)
	return true
}
