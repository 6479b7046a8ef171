package bucket

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// In these tests, the store belongs to the member me, and its totals are in the series begun.
const (
	me, another = uint64(7), uint64(8)
	begun       = int64(1000)
)

// trackedStore returns a store with one shard, tracked by the member me.
func trackedStore(maxKeys int) *Store {
	s := newStore(maxKeys, 1)
	s.Track(me, begun, nil)
	return s
}

func totalOf(t require.TestingT, s *Store, id ID) Total {
	w, held := s.TotalOf(id)
	require.True(t, held)
	return w
}

func TestUnitsBeforeTrackBelongToTracker(t *testing.T) {
	l := &Limit{Rate: 10, Per: time.Hour}
	s, id := newStore(10, 1), ID{1, 2}
	s.Take(id, l, epoch, 1)
	s.SetTotal(id, Total{me, begun, 1})
	require.Equal(t, Total{}, totalOf(t, s, id))
	require.Nil(t, s.shards[0].changes, "there are no totals before Track")
	s.Track(me, begun, nil)
	s.Track(another, begun, nil)
	checkStore(t, s)
	require.Equal(t, Total{me, begun, 1}, totalOf(t, s, id))
	s.Take(id, l, epoch, 1)
	s.Take(ID{3, 4}, l, epoch, 2)
	require.Equal(t, []Change{{id, 1, true}, {ID{3, 4}, 2, true}}, s.collectAll(false, nil))
	require.Equal(t, Total{me, begun, 4}, totalOf(t, s, ID{3, 4}), "the total begins above the claimed totals")
	require.Equal(t, Total{me, begun, 2}, totalOf(t, s, id))
}

// Each case sets or imports the total t. If t belongs to an older copy of a count of this store,
// the count gets a total above all earlier totals of this store.
func TestOwnTotalNeverFalls(t *testing.T) {
	l := &Limit{Rate: 100, Per: time.Hour}
	for name, c := range map[string]struct{ t, held, forgotten Total }{
		"current total":           {Total{me, begun, 5}, Total{me, begun, 5}, Total{me, begun, 5}.successor()},
		"higher total":            {Total{me, begun, 9}, Total{me, begun, 9}, Total{me, begun, 9}},
		"lower total":             {Total{me, begun, 4}, Total{me, begun, 6}, Total{me, begun, 6}},
		"earlier series":          {Total{me, begun - 1, 9}, Total{me, begun, 6}, Total{me, begun, 6}},
		"unknown series":          {Total{me, math.MaxInt64, 9}, Total{me, begun, 6}, Total{me, begun, 6}},
		"total of another member": {Total{another, 1, 1}, Total{another, 1, 1}, Total{another, 1, 1}},
	} {
		for _, imports := range []bool{false, true} {
			for _, held := range []bool{true, false} {
				s, id := trackedStore(10), ID{1, 2}
				s.Take(id, l, epoch, 5)
				s.collectAll(false, nil)
				var count Count
				s.Export(id, epoch, Mark{}, &count)
				if count.Total = c.t; !held {
					s.Reset(id, 0)
				}
				want := c.held
				if !held {
					want = c.forgotten
				}
				switch {
				case imports:
					s.Import(id, &count, epoch, 0)
					require.Equal(t, want, totalOf(t, s, id), name)
				default:
					s.SetTotal(id, c.t)
					if got, ok := s.TotalOf(id); held {
						require.Equal(t, want, got, name)
					} else {
						require.False(t, ok, "%s: no count is created", name)
					}
				}
				checkStore(t, s)
			}
		}
	}
}

func (t Total) successor() Total { return Total{t.Origin, t.Series, t.Spent + 1} }

// There can be more pairs of limit and origin than a search examines.
func TestManyOriginsUseNoMemoryPerCount(t *testing.T) {
	s := trackedStore(100_000)
	const pairs = 5 * 2 * nearest
	for i, id := range ids(10_000) {
		l := Limit{Rate: 100 + int64(i%5), Per: time.Hour}
		s.Take(id, &l, epoch, 1)
		s.SetTotal(id, Total{another + uint64(i%(2*nearest)), 1, uint32(i)})
	}
	s.collectAll(false, nil)
	checkStore(t, s)
	sh := &s.shards[0]
	sh.numbers.prune(sh.slots)
	require.Less(t, cap(sh.numbers.at), 3*pairs+len(sh.slots)/64, "%d slots", len(sh.slots))
	seen := map[entry]bool{}
	for i, e := range sh.numbers.at {
		require.False(t, i > 0 && seen[e], "an entry is repeated")
		seen[e] = true
	}
	for i, id := range ids(10_000) {
		require.Equal(t, Total{another + uint64(i%(2*nearest)), 1, uint32(i)}, totalOf(t, s, id))
	}
}

// said is a total that was reported for an ID. units describes the units that a total includes:
// the number of units that were folded into the total in one life of the count.
type (
	said struct {
		id ID
		Total
	}
	units struct {
		life   int
		folded int64
	}
)

// For any sequence of operations, an own total of an ID always includes the same units. It
// rises by exactly the folded units, and never falls within a series.
func TestTotalAlwaysIncludesTheSameUnits(t *testing.T) {
	limits, all := longLimits(), crowdedIDs()[:8]
	rapid.Check(t, func(t *rapid.T) {
		type copied struct {
			Count
			units
		}
		var (
			s = newStore(rapid.SampledFrom([]int{2, 5, 100}).Draw(t, "keys"), 1<<rapid.IntRange(0, 2).Draw(t, "shards"))

			lives  int
			now    = int64(1_000_000)
			stands = map[said]units{}
			most   = map[said]uint32{} // highest total of an ID in a series
			is     = map[ID]Total{}    // totals of the counts in the store
			has    = map[ID]units{}    // units of the counts whose Total has the Origin me
			copies = map[ID]copied{}
		)
		s.Track(me, begun, nil)
		// look checks the totals of all counts. If imported is set, the count of the ID target
		// was imported, so its total may be the total of the copy.
		look := func(imported bool, target ID) {
			for _, id := range all {
				w, held := s.TotalOf(id)
				before, was := is[id]
				if delete(is, id); held {
					is[id] = w
				}
				switch c := copies[id]; {
				case !held || w.Origin != me:
					delete(has, id)
					continue
				case imported && id == target && w == c.Total:
					has[id] = c.units
				case !was || before.Origin != me || imported && id == target:
					lives++
					has[id] = units{lives, 0}
				}
				series := said{id, Total{Origin: me, Series: w.Series}}
				require.GreaterOrEqual(t, w.Spent, most[series], "the total of %v in series %d fell", id, w.Series)
				most[series] = w.Spent
				if w.Spent > 0 {
					before, known := stands[said{id, w}]
					require.True(t, !known || before == has[id], "%v of %v included %v, and now includes %v", w, id, before, has[id])
					stands[said{id, w}] = has[id]
				}
			}
		}
		collect := func(list ...Change) {
			for _, c := range list {
				w, u := is[c.ID], has[c.ID]
				fits := w.Origin == me && c.Units >= 0 && int64(w.Spent)+c.Units <= math.MaxUint32
				require.Equal(t, c.Units == 0 || fits, c.Folded, "%+v of %+v", c, w)
				if !c.Folded {
					s.SetTotal(c.ID, Total{}) // as a caller that records the origins of units does
					delete(is, c.ID)
				} else if c.Units > 0 {
					w.Spent += uint32(c.Units)
					is[c.ID], has[c.ID] = w, units{u.life, u.folded + c.Units}
					require.Equal(t, w, totalOf(t, s, c.ID))
				}
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 1, int64(time.Second), int64(5 * time.Hour)}).Draw(t, "elapsed")
			id := rapid.SampledFrom(all).Draw(t, "id")
			l := rapid.SampledFrom(limits).Draw(t, "limit")
			n := rapid.OneOf(rapid.Int64Range(1, 12), rapid.SampledFrom([]int64{1<<31 - 1, 1 << 31, 1 << 32})).Draw(t, "units")
			imported := false
			switch op := rapid.SampledFrom([]string{"take", "take", "take", "debit", "refund", "elsewhere", "peek", "reset", "compact", "collect", "collect", "one", "send", "import", "import another's", "set"}).Draw(t, "op"); op {
			case "take":
				s.Take(id, &l, now, n)
			case "debit":
				s.Debit(id, &l, now, n)
			case "refund":
				s.Refund(id, &l, now, n, 0, false)
			case "elsewhere":
				s.SpendElsewhere(id, &l, now, n)
				s.SetTotal(id, Total{})
			case "peek":
				s.Peek(id, &l, now, n)
			case "reset":
				s.Reset(id, 0)
			case "compact":
				s.Compact(now)
			case "collect":
				collect(s.collectAll(rapid.Bool().Draw(t, "hurried"), nil)...)
			case "one":
				if c, changed := s.CollectOne(id); changed {
					collect(c)
				}
			case "send":
				var c Count
				if s.Export(id, now, Mark{}, &c); !c.Changed() {
					copies[id] = copied{c, has[id]}
				}
			case "import":
				c := copies[id]
				s.Import(id, &c.Count, now, 0)
				imported = true
			case "import another's":
				s.Import(id, &Count{Limit: l, Total: Total{another, 1, uint32(n)}, x: uint64(n % 1000)}, now, 0)
			case "set":
				s.SetTotal(id, rapid.SampledFrom([]Total{{}, {another, 1, 1}, {me, begun, 3}, {me, begun + 1, 1 << 31}}).Draw(t, "total"))
			}
			look(imported, id)
			checkStore(t, s)
		}
	})
}

func TestRenewNeedsALaterTotal(t *testing.T) {
	l := &Limit{Rate: 10, Per: time.Hour}
	id := ID{1, 2}
	for name, c := range map[string]struct {
		stored, arrives Total
		changed, renews bool
	}{
		"no origin":               {Total{}, Total{another, 5, 3}, false, true},
		"earlier total":           {Total{another, 5, 2}, Total{another, 5, 3}, false, true},
		"earlier series":          {Total{another, 4, 9}, Total{another, 5, 3}, false, true},
		"same total":              {Total{another, 5, 3}, Total{another, 5, 3}, false, false},
		"later total":             {Total{another, 5, 4}, Total{another, 5, 3}, false, false},
		"later series":            {Total{another, 6, 1}, Total{another, 5, 3}, false, false},
		"total of another member": {Total{9, 4, 1}, Total{another, 5, 3}, false, false},
		"changed count":           {Total{another, 5, 2}, Total{another, 5, 3}, true, false},
	} {
		s := trackedStore(10)
		s.Import(id, &Count{Limit: *l, Total: c.stored, x: 1}, epoch, 0)
		if c.changed {
			s.Take(id, l, epoch, 1)
		}
		before, _, _ := s.Used(id, epoch)
		from := newStore(10, 1)
		from.Take(id, l, epoch, 6)
		var arrives Count
		from.Export(id, epoch, Mark{}, &arrives)
		arrives.Total = c.arrives
		require.Equal(t, c.renews, s.Renew(id, &arrives, epoch), name)
		used, _, _ := s.Used(id, epoch)
		if c.renews {
			before = 6
			require.Equal(t, c.arrives, totalOf(t, s, id), name)
		}
		require.Equal(t, before, used, name)
		checkStore(t, s)
	}
	s := trackedStore(10)
	require.True(t, s.Renew(id, &Count{Limit: *l, Total: Total{another, 5, 3}, x: 1, y: 1}, epoch), "there is no count")
	require.Equal(t, Total{another, 5, 3}, totalOf(t, s, id))
}

func TestNewTotalIsAboveForgottenTotals(t *testing.T) {
	l := &Limit{Rate: 10, Per: time.Hour}
	s, id := trackedStore(10), ID{1, 2}
	require.Equal(t, Total{me, begun, 0}, s.NewTotal(id))
	s.Forget(id, Total{another, begun, 5})
	s.Forget(id, Total{me, begun + 1, 5})
	require.Equal(t, Total{me, begun, 0}, s.NewTotal(id), "these totals belong to another member or an unknown series")
	s.Forget(id, Total{me, begun, 5})
	s.Forget(id, Total{me, begun, 3})
	require.Equal(t, Total{me, begun, 6}, s.NewTotal(id))
	s.Take(id, l, epoch, 1)
	s.collectAll(false, nil)
	require.Equal(t, Total{me, begun, 7}, totalOf(t, s, id))
	s.Forget(id, Total{me, begun, math.MaxUint32})
	require.Equal(t, Total{me, begun + 1, 0}, s.NewTotal(id), "a new series is above all earlier totals")
	require.Equal(t, Total{me, begun, 7}, totalOf(t, s, id))
	require.Zero(t, newStore(10, 1).NewTotal(id), "no origin before Track")
}

func TestConversionKeepsOrigins(t *testing.T) {
	for _, a := range algorithms {
		for _, b := range algorithms {
			s, id := trackedStore(10), ID{1, 2}
			first := Limit{Algorithm: a, Rate: 100, Per: time.Hour}
			s.Take(id, &first, epoch, 5)
			s.collectAll(false, nil)
			part := first.Scale(50)
			unnamed := part // the same numbers, but without the numbers of the whole
			unnamed.wholeRate, unnamed.wholePer = 0, 0
			s.Peek(id, &unnamed, epoch, 1)
			s.SetPart(id, &part)
			require.Equal(t, Total{me, begun, 5}, totalOf(t, s, id))
			s.Take(id, &Limit{Algorithm: b, Rate: 40, Per: time.Minute, Version: 1}, epoch, 2)
			s.collectAll(false, nil)
			require.Equal(t, Total{me, begun, 7}, totalOf(t, s, id))
			s.SetTotal(id, Total{another, 3, 9})
			s.Take(id, &Limit{Algorithm: a, Rate: 50, Per: time.Minute, Version: 2}, epoch, 1)
			require.Equal(t, Total{another, 3, 9}, totalOf(t, s, id))
			checkStore(t, s)
		}
	}
}
