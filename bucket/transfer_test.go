package bucket

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/testenv"
)

// spendAtRandom creates a count of id with random operations.
func spendAtRandom(t *rapid.T, s *Store, id ID) (l Limit, now int64) {
	l, now = drawLimit(t), origin
	for range rapid.IntRange(1, 20).Draw(t, "steps") {
		now += max(0, drawStep(t, &l))
		switch units := drawUnits(t, &l); rapid.IntRange(0, 9).Draw(t, "op") {
		case 0, 1:
			s.Debit(id, &l, now, units)
		case 2:
			s.Refund(id, &l, now, units, 0, false)
		case 3:
			version := l.Version
			l = drawLimit(t)
			l.Version = version + 1
		default:
			s.Take(id, &l, now, units)
		}
	}
	return l, now
}

// sendCount returns c as another node receives it.
func sendCount(t require.TestingT, c *Count) *Count {
	arrived := &Count{Limit: c.Limit}
	rest, err := arrived.Parse(append(c.Append(nil), 1, 2, 3))
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2, 3}, rest)
	return arrived
}

// transfer moves the whole count of id, in pieces.
func transfer(t require.TestingT, from, to *Store, id ID, now, later int64, most int) (held bool) {
	c, mark, more := &Count{}, Mark{}, true
	for pieces := 0; more; pieces++ {
		mark, more, held = from.export(id, now, mark, c, most)
		require.Equal(t, pieces > 0, c.Partial())
		to.Import(id, sendCount(t, c), later, 0)
	}
	return held
}

func TestTransferredCountIsEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		here, there := newStore(10, 1), newStore(10, 1)
		id := ID{1, 2}
		l, now := spendAtRandom(t, here, id)
		if rapid.Bool().Draw(t, "stored there") {
			spendAtRandom(t, there, id)
			there.Reset(id, 0) // without the Reset, the limit of the count there may have a higher Version than l
		}
		held := transfer(t, here, there, id, now, now, rapid.IntRange(1, 60).Draw(t, "bytes in a piece"))
		used, _, ok := here.Used(id, now)
		require.Equal(t, ok, held)
		require.Equal(t, used > 0, held)
		if !held {
			require.Zero(t, there.Len())
		}
		checkStore(t, there)
		for range 5 {
			units := drawUnits(t, &l)
			require.Equal(t, here.Peek(id, &l, now, units), there.Peek(id, &l, now, units))
			require.Equal(t, here.Take(id, &l, now, units), there.Take(id, &l, now, units))
			now += max(0, drawStep(t, &l))
		}
	})
}

func TestTransferTimeRecoversNoUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		here, there := newStore(10, 1), newStore(10, 1)
		id := ID{1, 2}
		l, now := spendAtRandom(t, here, id)
		delay := max(0, drawStep(t, &l))
		transfer(t, here, there, id, now, now+delay, maxExport)
		used, judge, _ := here.Used(id, now)
		arrived, by, _ := there.Used(id, now+delay)
		require.Equal(t, used, arrived, "the transfer does not change the used units")
		require.Equal(t, judge, by)
		for range 5 {
			now += max(0, drawStep(t, &l))
			mine, _, _ := here.Used(id, now+delay)
			theirs, _, _ := there.Used(id, now+delay)
			require.GreaterOrEqual(t, theirs, mine)
			require.Equal(t, usedOf(here, id, now), theirs, "all units are later by the delay")
		}
	})
}

// If the pieces of a log are exported one after the other, each after the previous Mark, the
// imported log equals the exported log.
func TestImportedPiecesEqualTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		here, there := newStore(10, 1), newStore(10, 1)
		l := &Limit{Algorithm: SlidingLog, Rate: rapid.Int64Range(1, 300).Draw(t, "rate"), Per: time.Duration(rapid.Int64Range(10, int64(maxPer)).Draw(t, "per"))}
		step := max(1, int64(l.Per)/rapid.Int64Range(1, 100).Draw(t, "asks in a Per"))
		id, now, c, mark := ID{1, 2}, origin, &Count{}, Mark{}
		whole, fresh := true, 0 // whether the next Export must be whole, and the number of takes since the last Export
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, step)).Draw(t, "step")
			units := rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, l.Rate)).Draw(t, "units")
			used, _, held := here.Used(id, now)
			whole = whole || !held
			switch op := rapid.IntRange(0, 12).Draw(t, "op"); {
			case op == 0:
				whole = here.Refund(id, l, now, units, 0, false) || whole
			case op == 1:
				whole = here.Refund(id, l, now, units, Receipt(now-step), false) || whole
			case op < 5:
				most := rapid.SampledFrom([]int{1, 10, 100, maxExport}).Draw(t, "bytes")
				partial, n := !whole, 0
				for more := true; more; whole = false {
					var held bool
					mark, more, held = here.export(id, now, mark, c, most)
					require.LessOrEqual(t, len(c.entries), max(most, maxEntry))
					if !held {
						require.True(t, c.empty())
						require.Equal(t, Mark{}, mark)
						there.Import(id, sendCount(t, c), now, 0)
						whole = true
						break
					}
					require.Equal(t, !whole, c.Partial())
					for off := 0; off < len(c.entries); n++ {
						_, _, off = (&log{buf: c.entries}).readNext(off)
					}
					there.Import(id, sendCount(t, c), now, 0)
				}
				if partial && !whole {
					require.LessOrEqual(t, n, fresh, "entries were sent twice")
				}
				fresh = 0
				require.Equal(t, logEntries(t, here, id, now), logEntries(t, there, id, now))
				checkStore(t, there)
			case op == 5:
				here.Debit(id, l, now, units)
				whole = whole || used+units > 2*l.Rate // the log has dropped its oldest entries
				fresh++
			default:
				if here.Take(id, l, now, units).Allowed {
					fresh++
				}
			}
		}
	})
}

// logEntries returns the entries of id that count at the time now.
func logEntries(t require.TestingT, s *Store, id ID, now int64) []admission {
	sh, at := s.locate(id)
	i := sh.find(id, at, &s.placement)
	if i < 0 {
		return nil
	}
	l := sh.limitOf(&sh.slots[i])
	h := open(sh.logOf(l, &sh.slots[i]))
	v, used := l.advance(sh.slots[i].cell, &h, now)
	if used == 0 {
		return nil
	}
	return entries(t, &v, &h)
}

func TestLargeLogIsSentInPieces(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	here, there := NewStore(10, Salt{}), NewStore(10, Salt{})
	l := &Limit{Algorithm: SlidingLog, Rate: maxLogged, Per: time.Hour}
	id, now := ID{1, 2}, origin
	for range maxLogged {
		now += int64(20 * time.Millisecond)
		require.True(t, here.Take(id, l, now, 1).Allowed)
	}
	c, mark, more, pieces := &Count{}, Mark{}, true, 0
	for more {
		mark, more, _ = here.Export(id, now, mark, c)
		require.LessOrEqual(t, len(c.Append(nil)), maxExport+20)
		there.Import(id, c, now, 0)
		pieces++
	}
	require.Equal(t, (maxLogged*4+maxExport-1)/maxExport, pieces)
	require.Equal(t, logEntries(t, here, id, now), logEntries(t, there, id, now))
	require.Zero(t, testing.AllocsPerRun(10, func() { here.Export(id, now, Mark{}, c) }), "into the same Count")
}

func TestImportKeepsUncollectedUnits(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			l := &Limit{Algorithm: a, Rate: 100, Per: time.Hour}
			id, now := ID{1, 2}, epoch
			exported := func(used int64) *Count {
				s, c := newStore(10, 1), &Count{}
				s.Debit(id, l, now, used)
				s.Export(id, now, Mark{}, c)
				return c
			}
			for _, test := range []struct {
				name                string
				collected, net      int64 // units spent on this node
				arrives, extra, now int64 // units used on the other node, extra units, and units used here afterwards
			}{
				{"no stored count", 0, 0, 40, 0, 40},
				{"units on top", 0, 0, 40, 3, 43},
				{"units on top of an empty count", 0, 0, 0, 3, 3},
				{"refunded units", 0, 0, 40, -3, 37},
				{"more refunded units than used", 0, 0, 40, -50, 0},
				{"empty count", 0, 0, 0, 0, 0},
				{"collected units are replaced", 5, 0, 40, 0, 40},
				{"collected units are replaced by an empty count", 5, 0, 0, 0, 0},
				{"uncollected units are spent on top", 5, 7, 40, 0, 47},
				{"uncollected units and units on top", 5, 7, 40, 2, 49},
				{"uncollected units on top of an empty count", 0, 7, 0, 0, 7},
				{"uncollected refund", 9, -4, 40, 0, 36},
				{"uncollected units refunded on another node", 0, 7, 0, -7, 0},
				{"debt of at most one capacity", 0, 0, 90, 500, 200},
				{"no overflow", 0, 90, 90, math.MaxInt64, 200},
			} {
				s := newStore(10, 1)
				s.Track(1, 1, nil)
				s.Debit(id, l, now, test.collected)
				s.collectAll(false, nil)
				if test.net > 0 {
					s.Debit(id, l, now, test.net)
				} else {
					s.Refund(id, l, now, -test.net, 0, false)
				}
				s.Import(id, exported(test.arrives), now, test.extra)
				used, _, _ := s.Used(id, now)
				require.Equal(t, test.now, used, test.name)
				checkStore(t, s)
				c, noted := s.CollectOne(id)
				require.Equal(t, test.net, c.Units, "%s: the units remain uncollected", test.name)
				require.Equal(t, test.net != 0, noted, "%s: an import is no change", test.name)
				if used == 0 && test.net == 0 {
					require.Zero(t, s.Len(), test.name)
				}
			}
		})
	}
}

func TestSpendElsewhereCollectsNoUnits(t *testing.T) {
	for _, a := range algorithms {
		l := &Limit{Algorithm: a, Rate: 10, Per: time.Hour}
		s := newStore(10, 1)
		s.Track(1, 1, nil)
		id := ID{1, 2}
		s.SpendElsewhere(id, l, epoch, -1)
		s.SpendElsewhere(id, l, epoch, 0)
		require.Empty(t, s.collectAll(false, nil))
		s.SpendElsewhere(id, l, epoch, 6)
		s.Take(id, l, epoch, 1)
		require.Equal(t, []Change{{id, 1, false}}, s.collectAll(false, nil))
		s.SpendElsewhere(id, l, epoch, -4)
		require.Equal(t, []Change{{id, 0, true}}, s.collectAll(false, nil))
		used, judge, ok := s.Used(id, epoch)
		require.True(t, ok)
		require.Equal(t, *l, judge)
		require.EqualValues(t, 3, used)
		s.SpendElsewhere(id, l, epoch, math.MinInt64)
		_, _, ok = s.Used(id, epoch)
		require.False(t, ok)
		s.SpendElsewhere(id, l, epoch, math.MaxInt64)
		require.EqualValues(t, 20, usedOf(s, id, epoch))
	}
}

func TestCountFromTheFutureRefillsNothing(t *testing.T) {
	for _, a := range algorithms {
		l := &Limit{Algorithm: a, Rate: 10, Per: time.Second}
		here, there := newStore(10, 1), newStore(10, 1)
		id := ID{1, 2}
		here.Take(id, l, epoch, 4)
		here.Take(id, l, epoch+5, 6)
		back := epoch - int64(time.Hour) // the clock has stepped back
		transfer(t, here, there, id, back, epoch, 1)
		r := there.Peek(id, l, epoch, 10)
		require.Zero(t, r.Remaining, a)
		require.Greater(t, r.ResetAfter, time.Second-10, a)
	}
}

func TestPartialLogIsAppendedToAnyCount(t *testing.T) {
	id, now := ID{1, 2}, epoch
	l := Limit{Algorithm: SlidingLog, Rate: 50, Per: time.Minute, Version: 1}
	for _, a := range algorithms {
		for version := range uint64(3) {
			there, here, c := newStore(10, 1), newStore(10, 1), &Count{}
			there.Take(id, &l, now, 20)
			mark, _, _ := there.Export(id, now, Mark{}, c)
			there.Take(id, &l, now, 3)
			there.Take(id, &l, now+1, 4)
			there.Export(id, now+1, mark, c)
			require.True(t, c.Partial())
			here.Track(1, 1, nil)
			here.Take(id, &Limit{Algorithm: a, Rate: 30, Per: time.Hour, Version: version}, now, 9)
			here.Import(id, c, now+1, 2)
			require.EqualValues(t, 9+3+4+2, usedOf(here, id, now+1), "%v at %d", a, version)
			one, _ := here.CollectOne(id)
			require.EqualValues(t, 9, one.Units)
			checkStore(t, here)

			empty := newStore(10, 1)
			empty.Import(id, c, now+1, 2)
			require.EqualValues(t, 3+4+2, usedOf(empty, id, now+1))
		}
	}
}
