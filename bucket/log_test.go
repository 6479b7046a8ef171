package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/testenv"
)

// entries reads a log from the front and from the back, and requires the same entries.
func entries(t require.TestingT, c *cell, g *log) (list []admission) {
	at, off := int64(c.y), g.head
	for off < len(g.buf) && c.x > 0 {
		delta, units, next := g.readNext(off)
		if off > g.head {
			at += int64(delta)
		}
		list = append(list, admission{at, int64(units)})
		off = next
	}
	at, end := c.at, len(g.buf)
	for i := len(list) - 1; i >= 0; i-- {
		start, delta, units := g.readLast(end)
		require.Equal(t, list[i], admission{at, int64(units)})
		at -= int64(delta)
		end = start
	}
	if len(list) > 0 {
		require.Equal(t, g.head, end)
		require.Equal(t, int64(c.x), sum(list))
	}
	return list
}

// logKeepsItsEntries plays schedules that are long enough to drop, move and splice entries.
func logKeepsItsEntries(t *rapid.T) {
	l := Limit{Algorithm: SlidingLog, Rate: rapid.Int64Range(1, 500).Draw(t, "rate"), Per: time.Duration(rapid.Int64Range(1, int64(maxPer)).Draw(t, "per"))}
	k, o := newCount(l), &logOracle{l: &l}
	now := origin
	step := max(1, int64(l.Per)/rapid.Int64Range(1, 200).Draw(t, "asks in a Per"))
	for range rapid.IntRange(1, 300).Draw(t, "steps") {
		now += rapid.Int64Range(-step/8, step).Draw(t, "step")
		units := rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, l.Rate)).Draw(t, "units")
		if op := rapid.IntRange(0, 9).Draw(t, "op"); op == 2 && len(o.all) > 0 {
			r := Receipt(rapid.SampledFrom(o.all).Draw(t, "entry").t + rapid.Int64Range(0, step/4).Draw(t, "after it"))
			if units = min(units, 2*l.Rate-ceil(o.used(now))); units > 0 {
				o.debitAt(now, units, r)
				k.debitAt(now, units, r)
			}
		} else if op == 0 && len(o.all) > 0 {
			r := Receipt(rapid.SampledFrom(o.all).Draw(t, "entry").t)
			require.Equal(t, o.refund(now, units, r, false), k.refund(now, units, r, false))
		} else if op == 1 {
			require.Equal(t, o.refund(now, units, 0, false), k.refund(now, units, 0, false))
		} else if k.takeUnits(now, units).Allowed {
			require.LessOrEqual(t, ceil(o.used(now))+units, l.Rate)
			o.spend(now, units)
		}
		var want []admission // entries with the same time are joined
		for _, a := range o.live(now) {
			if i := len(want) - 1; i >= 0 && want[i].t == a.t {
				want[i].units += a.units
				continue
			}
			want = append(want, a)
		}
		h := open(k.g)
		v, _ := h.advance(k.c, uint64(l.Per), now)
		require.Equal(t, want, entries(t, &v, &h))
	}
}

func TestLogKeepsEveryCountingEntry(t *testing.T) { rapid.Check(t, logKeepsItsEntries) }

// After debits above the bound of a debt, a log denies asks until it has recovered: it
// decides like a log that drops no entries.
func TestLogInDebtDeniesUntilRecovered(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	steps := testenv.PickFull(t, 80, 200)
	rapid.Check(t, func(t *rapid.T) {
		l := Limit{Algorithm: SlidingLog, Rate: rapid.Int64Range(1, 50).Draw(t, "rate"), Per: time.Minute}
		s, all, id := newStore(10, 1), &logOracle{l: &l}, ID{1, 2}
		now := origin
		for range rapid.IntRange(1, steps).Draw(t, "steps") {
			now += rapid.Int64Range(0, int64(l.Per)/10).Draw(t, "step")
			units := rapid.Int64Range(1, l.Rate).Draw(t, "units")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				s.Debit(id, &l, now, units)
			case 1:
				s.SpendElsewhere(id, &l, now, units)
			case 2: // as when a count is replaced by a replica
				var c Count
				if _, _, held := s.Export(id, now, Mark{}, &c); !held {
					continue
				}
				s.CollectOne(id)
				s.Import(id, sendCount(t, &c), now, units)
			default:
				fits := ceil(all.used(now))+units <= l.Rate
				require.Equal(t, fits, s.Take(id, &l, now, units).Allowed)
				if !fits {
					continue
				}
			}
			all.spend(now, units)
			require.Equal(t, min(ceil(all.used(now)), 2*l.Rate), usedOf(s, id, now))
			checkStore(t, s)
		}
	})
}

func FuzzLog(f *testing.F) { f.Fuzz(rapid.MakeFuzz(logKeepsItsEntries)) }

func TestLogIsCompact(t *testing.T) {
	for _, test := range []struct {
		rate  int64
		per   time.Duration
		bytes float64 // maximum per entry
	}{
		{100, time.Second, 4},
		{100, time.Minute, 5},
		{1000, time.Hour, 5},
		{100_000, time.Second, 3},
	} {
		k := newCount(Limit{Algorithm: SlidingLog, Rate: test.rate, Per: test.per})
		now := origin
		for range 3 * test.rate {
			k.takeUnits(now, 1)
			now += int64(test.per) / test.rate
		}
		live := float64(len(k.g.buf)-k.g.head) / float64(k.c.x)
		require.LessOrEqual(t, live, test.bytes, "%d per %v", test.rate, test.per)
		require.LessOrEqual(t, float64(cap(k.g.buf)), 4*live*float64(test.rate), "%d per %v: expired bytes are reused", test.rate, test.per)
	}
}

func TestLogReleasesMemoryAfterBurst(t *testing.T) {
	k := newCount(Limit{Algorithm: SlidingLog, Rate: maxLogged, Per: time.Second})
	now := origin
	for range maxLogged / 2 {
		now += 10
		require.True(t, k.takeUnits(now, 1).Allowed)
	}
	full := cap(k.g.buf)
	for range full {
		now += int64(10 * time.Millisecond)
		require.True(t, k.takeUnits(now, 1).Allowed)
	}
	require.Less(t, cap(k.g.buf), full/50)
}
