package bucket

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The members of these tests, and when the store's own series began.
const (
	me, another = uint64(7), uint64(8)
	begun       = int64(1000)
)

// trackedStore is a store of one shard whose units are mine.
func trackedStore(maxKeys int) *Store {
	s := newStore(maxKeys, 1)
	s.Track(me, begun, nil)
	return s
}

func whose(t require.TestingT, s *Store, id ID) Total {
	w, held := s.Whose(id)
	require.True(t, held)
	return w
}

// collectOne collects of id alone, which has changed.
func collectOne(t require.TestingT, s *Store, id ID) (units int64, folded bool) {
	c, changed := s.CollectOne(id)
	require.True(t, changed)
	require.Equal(t, id, c.ID)
	return c.Units, c.Folded
}

func TestWhatIsSpentHereIsInTheTotalOnceItIsCollected(t *testing.T) {
	for _, a := range algorithms {
		l := &Limit{Algorithm: a, Rate: 100, Per: time.Hour}
		s, id := trackedStore(10), ID{1, 2}
		_, held := s.Whose(id)
		require.False(t, held)
		s.Take(id, l, epoch, 3)
		require.Equal(t, Total{me, begun, 0}, whose(t, s, id), "nothing is collected yet")
		require.Equal(t, []Change{{id, 3, true}}, s.collectAll(false, nil))
		s.Debit(id, l, epoch, 4)
		s.Refund(id, l, epoch, 1, 0, false)
		units, folded := collectOne(t, s, id)
		require.EqualValues(t, 3, units)
		require.True(t, folded, "more was spent than given back")
		require.Equal(t, Total{me, begun, 6}, whose(t, s, id))
		s.Touch(id)
		require.Equal(t, []Change{{id, 0, true}}, s.collectAll(false, nil))
		require.Equal(t, Total{me, begun, 6}, whose(t, s, id))
		checkStore(t, s)
	}
}

func TestUnitsOfOtherOriginsAreLeftToTheCollector(t *testing.T) {
	l := &Limit{Rate: maxUnits, Per: time.Hour}
	for name, c := range map[string]struct {
		whose Total
		units int64
	}{
		"another has spent of it":             {Total{another, 5, 50}, 4},
		"several have":                        {Total{}, 4},
		"something was given back":            {Total{me, begun, 10}, -2},
		"the total has no room for them":      {Total{me, begun, math.MaxUint32 - 3}, 4},
		"more than any total has room for":    {Total{me, begun, 10}, 1 << 33},
		"another has, and some is given back": {Total{another, 5, 50}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			s, id := trackedStore(10), ID{1, 2}
			s.Take(id, l, epoch, 10)
			s.collectAll(false, nil)
			s.SetWhose(id, c.whose)
			require.Empty(t, s.collectAll(false, nil), "whose it is is no change")
			if c.units > 0 {
				s.Take(id, l, epoch, c.units)
			} else {
				s.Refund(id, l, epoch, -c.units, 0, false)
			}
			require.Equal(t, []Change{{id, c.units, false}}, s.collectAll(false, nil))
			require.Equal(t, c.whose, whose(t, s, id))
			checkStore(t, s)
		})
	}
}

func TestATotalTakesAllThatItHasRoomFor(t *testing.T) {
	l := &Limit{Rate: maxUnits, Per: time.Hour}
	s, id := trackedStore(10), ID{1, 2}
	s.Take(id, l, epoch, math.MaxUint32)
	require.Equal(t, []Change{{id, math.MaxUint32, true}}, s.collectAll(false, nil))
	s.Take(id, l, epoch, 1)
	require.Equal(t, []Change{{id, 1, false}}, s.collectAll(false, nil))
	require.Equal(t, Total{me, begun, math.MaxUint32}, whose(t, s, id))
}

func TestACountThatBeganElsewhereIsOfSeveral(t *testing.T) {
	l := &Limit{Rate: 10, Per: time.Hour}
	s, id := trackedStore(10), ID{1, 2}
	s.SpendElsewhere(id, l, epoch, 2)
	require.Equal(t, Total{}, whose(t, s, id))
	s.Take(id, l, epoch, 1)
	s.SpendElsewhere(ID{3, 4}, l, epoch, 1)
	require.Equal(t, []Change{{id, 1, false}, {ID{3, 4}, 0, true}}, s.collectAll(false, nil))
}

func TestWhatWasSpentBeforeTrackIsTheTrackersOwn(t *testing.T) {
	l := &Limit{Rate: 10, Per: time.Hour}
	s, id := newStore(10, 1), ID{1, 2}
	s.Take(id, l, epoch, 1)
	s.SetWhose(id, Total{me, begun, 1})
	require.Equal(t, Total{}, whose(t, s, id))
	require.Nil(t, s.shards[0].changes, "nothing is kept before Track")
	s.Track(me, begun, nil)
	s.Track(another, begun, nil)
	checkStore(t, s)
	require.Equal(t, Total{me, begun, 1}, whose(t, s, id))
	s.Take(id, l, epoch, 1)
	s.Take(ID{3, 4}, l, epoch, 2)
	require.Equal(t, []Change{{id, 1, true}, {ID{3, 4}, 2, true}}, s.collectAll(false, nil))
	require.Equal(t, Total{me, begun, 4}, whose(t, s, ID{3, 4}), "it begins above what was claimed")
	require.Equal(t, Total{me, begun, 2}, whose(t, s, id))
}

func TestACountThatWasForgottenBeginsAboveItsTotal(t *testing.T) {
	l := &Limit{Algorithm: FixedWindow, Rate: 100, Per: time.Minute}
	other := ID{1, 1 << 63}
	for name, forget := range map[string]func(*Store, ID) (now int64){
		"reset":   func(s *Store, id ID) int64 { s.Reset(id, 0); return epoch },
		"evicted": func(s *Store, id ID) int64 { s.Take(other, l, epoch, 90); return epoch },
		"its place is used again": func(s *Store, id ID) int64 {
			s.Take(ID{id.Hi + 1, id.Lo}, l, epoch+int64(time.Minute), 1)
			s.Reset(ID{id.Hi + 1, id.Lo}, 0)
			return epoch
		},
		"compacted":           func(s *Store, id ID) int64 { s.Compact(epoch + int64(time.Hour)); return epoch },
		"an empty one came":   func(s *Store, id ID) int64 { s.Import(id, &Count{}, epoch, 0); return epoch },
		"another's came":      func(s *Store, id ID) int64 { s.SetWhose(id, Total{another, 1, 1}); s.Reset(id, 0); return epoch },
		"it became several's": func(s *Store, id ID) int64 { s.SetWhose(id, Total{}); s.Reset(id, 0); return epoch },
	} {
		t.Run(name, func(t *testing.T) {
			s, id := trackedStore(1), ID{1, 2}
			s.Take(id, l, epoch, 5)
			s.collectAll(false, nil)
			now := forget(s, id)
			_, held := s.Whose(id)
			require.False(t, held)
			s.Reset(other, 0)
			s.collectAll(false, nil)
			s.Take(id, l, now, 2)
			require.Equal(t, Total{me, begun, 6}, whose(t, s, id), "5 stood for other units")
			require.Equal(t, []Change{{id, 2, true}}, s.collectAll(false, nil))
			require.Equal(t, Total{me, begun, 8}, whose(t, s, id))
			s.Take(id, l, now+int64(time.Hour), 1)
			s.collectAll(false, nil)
			require.Equal(t, Total{me, begun, 9}, whose(t, s, id), "one that has recovered goes on")
			checkStore(t, s)
		})
	}
}

func TestAShardWhoseTotalsGrowLargeBeginsAnotherSeries(t *testing.T) {
	l := &Limit{Rate: maxUnits, Per: time.Hour}
	s, old := trackedStore(10), ID{9, 9}
	s.Take(old, l, epoch, 3)
	spend := func(id ID, units int64) Total {
		s.Take(id, l, epoch, units)
		s.collectAll(false, nil)
		w := whose(t, s, id)
		s.Reset(id, 0)
		return w
	}
	require.Equal(t, Total{me, begun, maxFloor - 1}, spend(ID{1, 1}, maxFloor-1))
	require.Equal(t, Total{me, begun, maxFloor + 5}, spend(ID{2, 2}, 5))
	require.Equal(t, Total{me, begun + 1, 5}, spend(ID{2, 2}, 5))
	require.Equal(t, Total{me, begun + 1, 13}, spend(ID{1, 1}, 7))
	require.Equal(t, Total{me, begun, 3}, whose(t, s, old), "a count stays in its series")
	require.Equal(t, Total{me, begun, 5}, spend(old, 2))
	require.Equal(t, Total{me, begun + 1, 16}, spend(old, 2), "which raises no floor of the next one")
	checkStore(t, s)
}

func TestWhoseACountIsTravelsWithItButNotInItsEncoding(t *testing.T) {
	for _, a := range algorithms {
		l := &Limit{Algorithm: a, Rate: 10, Per: time.Hour}
		here, there, id := trackedStore(10), newStore(10, 1), ID{1, 2}
		there.Track(another, begun, nil)
		here.Take(id, l, epoch, 3)
		here.collectAll(false, nil)
		var c Count
		mark, _, _ := here.Export(id, epoch, Mark{}, &c)
		require.Equal(t, Total{me, begun, 3}, c.Whose)
		require.Zero(t, sent(t, &c).Whose)
		arrived := &Count{Limit: c.Limit, Whose: c.Whose}
		_, err := arrived.Parse(c.Append(nil))
		require.NoError(t, err)
		there.Import(id, arrived, epoch, 0)
		require.Equal(t, c.Whose, whose(t, there, id), "inserted")

		here.Take(id, l, epoch+1, 2)
		here.collectAll(false, nil)
		here.Export(id, epoch+1, mark, &c)
		require.Equal(t, a == SlidingLog, c.Partial())
		there.Import(id, &c, epoch+1, 0)
		require.Equal(t, Total{me, begun, 5}, whose(t, there, id), "replaced, or appended")
		there.Take(id, l, epoch+1, 1)
		require.Equal(t, []Change{{id, 1, false}}, there.collectAll(false, nil))
		c.Whose = Total{0, 5, 5}
		there.Import(id, &c, epoch+1, 0)
		require.Equal(t, Total{}, whose(t, there, id))
		checkStore(t, there)
	}
}

// What comes back is an older copy of this store's own count, or its own total.
func TestAnOwnTotalNeverFalls(t *testing.T) {
	l := &Limit{Rate: 100, Per: time.Hour}
	for name, c := range map[string]struct{ t, held, forgotten Total }{
		"as it is":                {Total{me, begun, 5}, Total{me, begun, 5}, Total{me, begun, 5}.next()},
		"above":                   {Total{me, begun, 9}, Total{me, begun, 9}, Total{me, begun, 9}},
		"below":                   {Total{me, begun, 4}, Total{me, begun, 6}, Total{me, begun, 6}},
		"of an earlier series":    {Total{me, begun - 1, 9}, Total{me, begun, 6}, Total{me, begun, 6}},
		"of one that never began": {Total{me, math.MaxInt64, 9}, Total{me, begun, 6}, Total{me, begun, 6}},
		"another's":               {Total{another, 1, 1}, Total{another, 1, 1}, Total{another, 1, 1}},
	} {
		for _, imports := range []bool{false, true} {
			for _, held := range []bool{true, false} {
				s, id := trackedStore(10), ID{1, 2}
				s.Take(id, l, epoch, 5)
				s.collectAll(false, nil)
				var count Count
				s.Export(id, epoch, Mark{}, &count)
				if count.Whose = c.t; !held {
					s.Reset(id, 0)
				}
				want := c.held
				if !held {
					want = c.forgotten
				}
				switch {
				case imports:
					s.Import(id, &count, epoch, 0)
					require.Equal(t, want, whose(t, s, id), name)
				default:
					s.SetWhose(id, c.t)
					if got, ok := s.Whose(id); held {
						require.Equal(t, want, got, name)
					} else {
						require.False(t, ok, "%s: it makes no count", name)
					}
				}
				checkStore(t, s)
			}
		}
	}
}

func (t Total) next() Total { return Total{t.Origin, t.Series, t.Spent + 1} }

func TestOtherNumbersAreTheSameOrigins(t *testing.T) {
	for _, a := range algorithms {
		for _, b := range algorithms {
			s, id := trackedStore(10), ID{1, 2}
			first := Limit{Algorithm: a, Rate: 100, Per: time.Hour}
			s.Take(id, &first, epoch, 5)
			s.collectAll(false, nil)
			part := first.Part(50)
			unnamed := part // judges the same, and is no Part
			unnamed.wholeRate, unnamed.wholePer = 0, 0
			s.Peek(id, &unnamed, epoch, 1)
			s.SetPart(id, &part)
			require.Equal(t, Total{me, begun, 5}, whose(t, s, id))
			s.Take(id, &Limit{Algorithm: b, Rate: 40, Per: time.Minute, Version: 1}, epoch, 2)
			s.collectAll(false, nil)
			require.Equal(t, Total{me, begun, 7}, whose(t, s, id))
			s.SetWhose(id, Total{another, 3, 9})
			s.Take(id, &Limit{Algorithm: a, Rate: 50, Per: time.Minute, Version: 2}, epoch, 1)
			require.Equal(t, Total{another, 3, 9}, whose(t, s, id))
			checkStore(t, s)
		}
	}
}

func TestTotalsStayWithTheirCountsWhileATableGrowsAndShrinks(t *testing.T) {
	l := &Limit{Algorithm: FixedWindow, Rate: maxUnits, Per: time.Hour}
	short := &Limit{Algorithm: FixedWindow, Rate: maxUnits, Per: time.Minute}
	s, all := newStore(100_000, 4), ids(5_000)
	s.Track(me, begun, nil)
	check := func(every int) {
		checkStore(t, s)
		for i := 0; i < len(all); i += every {
			want := Total{me, begun, uint32(i + 1)}
			if i%3 == 0 {
				want = Total{another + uint64(i%7), int64(i % 5), uint32(i)}
			}
			require.Equal(t, want, whose(t, s, all[i]))
		}
	}
	for i, id := range all {
		of := short
		if i%50 == 0 {
			of = l
		}
		s.Take(id, of, epoch, int64(i+1))
		if i%3 == 0 {
			s.SetWhose(id, Total{another + uint64(i%7), int64(i % 5), uint32(i)})
		}
	}
	s.collectAll(false, nil)
	check(1)
	for range s.shards {
		s.Compact(epoch + int64(2*time.Minute))
	}
	require.Equal(t, len(all)/50, s.Len())
	check(50)
	for range s.shards {
		s.Compact(epoch + int64(3*time.Hour))
	}
	require.Zero(t, s.Len())
	for i := range s.shards {
		require.Nil(t, s.shards[i].changes.spent, "the memory was kept")
	}
	s.Take(all[0], l, epoch, 1)
	checkStore(t, s)
}

// Of limits and origins together there can be more than a search looks at.
func TestManyOriginsTakeNoMemoryForEachCount(t *testing.T) {
	s := trackedStore(100_000)
	const pairs = 5 * 2 * nearest
	for i, id := range ids(10_000) {
		l := Limit{Rate: 100 + int64(i%5), Per: time.Hour}
		s.Take(id, &l, epoch, 1)
		s.SetWhose(id, Total{another + uint64(i%(2*nearest)), 1, uint32(i)})
	}
	s.collectAll(false, nil)
	checkStore(t, s)
	sh := &s.shards[0]
	sh.numbers.prune(sh.slots)
	require.Less(t, cap(sh.numbers.at), 3*pairs+len(sh.slots)/64, "%d slots", len(sh.slots))
	seen := map[entry]bool{}
	for i, e := range sh.numbers.at {
		require.False(t, i > 0 && seen[e], "twice")
		seen[e] = true
	}
	for i, id := range ids(10_000) {
		require.Equal(t, Total{another + uint64(i%(2*nearest)), 1, uint32(i)}, whose(t, s, id))
	}
}

// said is a total that was said of an id, and units what it stood for: so many, that were
// folded in one life of the count.
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

// Whatever a store goes through, a total of its own stands for the same units of an id
// whenever it is said, rises by just what is folded, and never falls within a series.
func TestATotalStandsForTheSameUnitsForEver(t *testing.T) {
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
			most   = map[said]uint32{} // of an id in a series
			is     = map[ID]Total{}    // of those held
			has    = map[ID]units{}    // of those held whose total is mine
			copies = map[ID]copied{}
		)
		s.Track(me, begun, nil)
		// look sees whose counts are by now: of id, which was imported, it may be the copy's.
		look := func(imported bool, of ID) {
			for _, id := range all {
				w, held := s.Whose(id)
				before, was := is[id]
				if delete(is, id); held {
					is[id] = w
				}
				switch c := copies[id]; {
				case !held || w.Origin != me:
					delete(has, id)
					continue
				case imported && id == of && w == c.Whose:
					has[id] = c.units
				case !was || before.Origin != me || imported && id == of:
					lives++
					has[id] = units{lives, 0}
				}
				series := said{id, Total{Origin: me, Series: w.Series}}
				require.GreaterOrEqual(t, w.Spent, most[series], "the total of %v in series %d fell", id, w.Series)
				most[series] = w.Spent
				if w.Spent > 0 {
					before, known := stands[said{id, w}]
					require.True(t, !known || before == has[id], "%v of %v stood for %v, and stands for %v", w, id, before, has[id])
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
					s.SetWhose(c.ID, Total{}) // as whoever keeps whose they are does
					delete(is, c.ID)
				} else if c.Units > 0 {
					w.Spent += uint32(c.Units)
					is[c.ID], has[c.ID] = w, units{u.life, u.folded + c.Units}
					require.Equal(t, w, whose(t, s, c.ID))
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
				s.SetWhose(id, Total{})
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
				s.Import(id, &Count{Limit: l, Whose: Total{another, 1, uint32(n)}, x: uint64(n % 1000)}, now, 0)
			case "set":
				s.SetWhose(id, rapid.SampledFrom([]Total{{}, {another, 1, 1}, {me, begun, 3}, {me, begun + 1, 1 << 31}}).Draw(t, "whose"))
			}
			look(imported, id)
			checkStore(t, s)
		}
	})
}

func TestALaterTotalOfTheSameOriginRenewsACountThatHasNotChanged(t *testing.T) {
	l := &Limit{Rate: 10, Per: time.Hour}
	id := ID{1, 2}
	for name, c := range map[string]struct {
		stored, arrives Total
		changed, renews bool
	}{
		"nobody's":           {Total{}, Total{another, 5, 3}, false, true},
		"an earlier one":     {Total{another, 5, 2}, Total{another, 5, 3}, false, true},
		"an earlier series":  {Total{another, 4, 9}, Total{another, 5, 3}, false, true},
		"the same":           {Total{another, 5, 3}, Total{another, 5, 3}, false, false},
		"a later one":        {Total{another, 5, 4}, Total{another, 5, 3}, false, false},
		"a later series":     {Total{another, 6, 1}, Total{another, 5, 3}, false, false},
		"another's":          {Total{9, 4, 1}, Total{another, 5, 3}, false, false},
		"one that has grown": {Total{another, 5, 2}, Total{another, 5, 3}, true, false},
	} {
		s := trackedStore(10)
		s.Import(id, &Count{Limit: *l, Whose: c.stored, x: 1}, epoch, 0)
		if c.changed {
			s.Take(id, l, epoch, 1)
		}
		before, _, _ := s.Used(id, epoch)
		from := newStore(10, 1)
		from.Take(id, l, epoch, 6)
		var arrives Count
		from.Export(id, epoch, Mark{}, &arrives)
		arrives.Whose = c.arrives
		require.Equal(t, c.renews, s.Renew(id, &arrives, epoch), name)
		used, _, _ := s.Used(id, epoch)
		if c.renews {
			before = 6
			require.Equal(t, c.arrives, whose(t, s, id), name)
		}
		require.Equal(t, before, used, name)
		checkStore(t, s)
	}
	s := trackedStore(10)
	require.True(t, s.Renew(id, &Count{Limit: *l, Whose: Total{another, 5, 3}, x: 1, y: 1}, epoch), "there is no count")
	require.Equal(t, Total{another, 5, 3}, whose(t, s, id))
}

func TestWhatIsForgottenElsewhereIsOutgrownHere(t *testing.T) {
	l := &Limit{Rate: 10, Per: time.Hour}
	s, id := trackedStore(10), ID{1, 2}
	require.Equal(t, Total{me, begun, 0}, s.NewTotal(id))
	s.Forget(id, Total{another, begun, 5})
	s.Forget(id, Total{me, begun + 1, 5})
	require.Equal(t, Total{me, begun, 0}, s.NewTotal(id), "that is another's, or of no series that there was")
	s.Forget(id, Total{me, begun, 5})
	s.Forget(id, Total{me, begun, 3})
	require.Equal(t, Total{me, begun, 6}, s.NewTotal(id))
	s.Take(id, l, epoch, 1)
	s.collectAll(false, nil)
	require.Equal(t, Total{me, begun, 7}, whose(t, s, id))
	s.Forget(id, Total{me, begun, math.MaxUint32})
	require.Equal(t, Total{me, begun + 1, 0}, s.NewTotal(id), "another series outgrows all of it")
	require.Equal(t, Total{me, begun, 7}, whose(t, s, id))
	require.Zero(t, newStore(10, 1).NewTotal(id), "nobody's before Track")
}

func TestALimitIsKnownWhereNothingIsUsedAnyMore(t *testing.T) {
	l := &Limit{Rate: 10, Per: time.Hour}
	s, id := trackedStore(10), ID{1, 2}
	_, held := s.Judge(id)
	require.False(t, held)
	s.Take(id, l, epoch, 3)
	s.Refund(id, l, epoch, 3, 0, false)
	_, _, used := s.Used(id, epoch)
	require.False(t, used)
	judge, held := s.Judge(id)
	require.True(t, held)
	require.Equal(t, *l, judge)
}
