package bucket

import "math"

// Total is the number of units that an origin has spent of an ID. A count has a Total only if all
// of its units belong to that origin. If two copies of a count have totals of the same origin,
// the copy with the higher Series, or with the higher Spent in the same Series, includes all
// units of the other copy. This relies on the origin: only the origin raises its total, and it
// never uses the same total for two counts of an ID.
type Total struct {
	Origin uint64 // hash of the name of a member; 0 if there are several origins or the origin is unknown, and then the other fields are zero
	Series int64  // series of the origin; higher when the origin begins again from zero
	Spent  uint32 // number at which the total began in the series, plus the units that were collected since
}

func (t Total) seriesKey() originSeries { return originSeries{t.Origin, t.Series} }

// totals contains the data about origins that Track adds to a shard. The lock of the shard
// protects it. The entry of a count contains its origin and series. The number of units is in
// spent, at the index of the slot, and is 0 for an empty slot.
//
// When a shard forgets a count, the total is forgotten too. So that no total is used twice, a new
// count starts at the floor: above all totals of this store that the shard has forgotten in its
// present series. forget must be called before a slot is emptied. The floor is a single number for
// all IDs of the shard. As a result, some totals rise by more than the units spent. This has no
// effect, because totals are only compared.
type totals struct {
	spent  []uint32
	series int64
	floor  uint32
}

// maxFloor is the floor at which a shard begins a new series. A count that starts below maxFloor
// has room for at least 2^31 units until its total overflows.
const maxFloor = 1 << 31

// TotalOf returns the total of the count of id at the time when it was last collected, and
// whether the store has a count. A recovered count is in the store until its place is reused.
func (s *Store) TotalOf(id ID) (t Total, exists bool) {
	sh, i := s.lockSlot(id)
	defer sh.mu.Unlock()
	if i < 0 {
		return Total{}, false
	}
	return sh.totalOf(i), true
}

// SetTotal sets the total of the count of id to t. The total is not a change of the count.
// SetTotal does nothing if there is no count of id, or if Track was not called before.
//
// A total t that belongs to this store may be below the present total of the count, or below a
// total that the store has forgotten in the same shard. The count then gets the total that an
// inserted count would get, which is above both. TotalOf returns the resulting total.
func (s *Store) SetTotal(id ID, t Total) {
	sh, i := s.lockSlot(id)
	if i >= 0 {
		sh.setTotal(i, t)
	}
	sh.mu.Unlock()
}

// NewTotal returns the initial total of a count of id that starts on this node. The total is
// above all totals that this store has had and forgotten for IDs in the same shard. Before
// Track it is the zero Total.
func (s *Store) NewTotal(id ID) Total {
	sh, _ := s.lock(id)
	defer sh.mu.Unlock()
	return sh.changes.ownTotal()
}

// Forget records that the total t was used for id. If t belongs to this store, later counts
// of id start above t. The store keeps one total of a count. If the count has several totals,
// from different origins, the caller stores them, and must call Forget for each total that it
// removes.
func (s *Store) Forget(id ID, t Total) {
	sh, _ := s.lock(id)
	sh.changes.forget(t)
	sh.mu.Unlock()
}

// limitOf returns the limit that last judged the count in s.
func (sh *shard) limitOf(s *slot) *Limit { return &sh.numbers.at[s.entryIndex()].Limit }

// totalOf returns the total of the count in slot i.
func (sh *shard) totalOf(i int) Total {
	if sh.changes == nil {
		return Total{}
	}
	by := sh.numbers.at[sh.slots[i].entryIndex()].series
	return Total{by.origin, by.series, sh.changes.spent[i]}
}

// setTotal sets the total of the count in slot i to the total that nextTotal returns for t.
func (sh *shard) setTotal(i int, t Total) {
	if sh.changes == nil {
		return
	}
	s := &sh.slots[i]
	t = sh.changes.nextTotal(sh.totalOf(i), t)
	judge := sh.intern(sh.limitOf(s), t.seriesKey())
	sh.judgeBy(s, judge, s.flags())
	sh.changes.spent[i] = t.Spent
}

// claim makes this store the origin of all units that are used at the time now. Before Track, no other
// member has spent units.
func (sh *shard) claim(now int64) {
	ch := sh.changes
	for i := 1; i < len(sh.numbers.at); i++ {
		sh.numbers.at[i].series = ch.ownTotal().seriesKey()
	}
	for i := range sh.slots {
		if s := &sh.slots[i]; s.limit != 0 {
			used := sh.limitOf(s).usedNow(&s.cell, now)
			ch.spent[i] = uint32(min(used, maxFloor))
			ch.floor = max(ch.floor, ch.spent[i]+1)
		}
	}
}

// ownTotal returns the initial total of a count that starts on this node. Before Track,
// ownTotal returns the zero Total.
func (ch *changes) ownTotal() Total {
	if ch == nil || ch.tracker.self == 0 {
		return Total{}
	}
	return Total{ch.tracker.self, ch.series, ch.floor}
}

// nextTotal returns the new total of a count whose present total is the argument old, if the total t
// is set. A total of this store never falls. If t is below the present total, or below the floor of
// the shard, t belongs to an older copy, and the count starts again.
func (ch *changes) nextTotal(old, t Total) Total {
	switch {
	case ch == nil || t.Origin == 0:
		t = Total{}
	case t.seriesKey() == old.seriesKey() && t.Spent >= old.Spent:
		return t
	}
	ch.forget(old)
	if own := ch.ownTotal(); t.Origin != 0 && t.Origin == own.Origin && (t.Series != own.Series || t.Spent < own.Spent) {
		return own
	}
	return t
}

// forget ensures that no count starts at t or below from now on, if t belongs to this store.
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

// fold adds units to the total of the count in slot i, and reports whether this was possible.
// It is possible if all units of the count belong to this store, the argument units is not negative,
// and the sum does not overflow.
func (sh *shard) fold(i int, units int64) bool {
	ch := sh.changes
	by := sh.numbers.at[sh.slots[i].entryIndex()].series
	if by.origin == 0 || by.origin != ch.tracker.self || units < 0 || units > math.MaxUint32-int64(ch.spent[i]) {
		return false
	}
	ch.spent[i] += uint32(units)
	return true
}
