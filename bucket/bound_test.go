package bucket

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The test plays the schedules of docs/algorithms.md in which an algorithm admits the maximum
// number of units in an arbitrary window.
func TestWindowAdmitsDocumentedMaximum(t *testing.T) {
	const (
		per  = int64(time.Second)
		rate = 1000
	)
	each := func(from, to, every int64) (asks []admission) {
		for at := from; at < to; at += every {
			asks = append(asks, admission{at, 1})
		}
		return asks
	}
	join := func(lists ...[]admission) (asks []admission) {
		for _, list := range lists {
			asks = append(asks, list...)
		}
		return asks
	}
	for _, test := range []struct {
		name  string
		from  int64 // start of the window
		want  int64
		limit Limit
		asks  []admission
	}{
		{"FixedWindow admits 2·Rate − 1 across a boundary", per - 1, 2*rate - 1, Limit{Algorithm: FixedWindow, Rate: rate},
			[]admission{{0, 1}, {per - 1, rate - 1}, {per, rate}}},
		{"SlidingWindow admits 2·Rate − 1 from just before a boundary",
			per - 1, 2*rate - 1, Limit{Algorithm: SlidingWindow, Rate: rate},
			join([]admission{{0, 1}, {per - 1, rate - 1}}, each(per, 2*per-1, per/rate))},
		{"SlidingWindow admits 2·Rate if the aligning unit is refunded and spent again",
			per - 1, 2 * rate, Limit{Algorithm: SlidingWindow, Rate: rate},
			join([]admission{{0, 1}, {per - 1, rate - 1}, {per - 1, -1}, {per - 1, 1}}, each(per, 2*per-1, per/rate))},
		{"SlidingWindow admits 2·Rate with windows aligned by the clock",
			per - 1, 2 * rate, Limit{Algorithm: SlidingWindow, Rate: rate, Start: per},
			join([]admission{{per - 1, rate}}, each(per, 2*per-1, per/rate))},
		{"SlidingWindow admits two units of a Rate of 1 with windows aligned by the clock",
			per - 1, 2, Limit{Algorithm: SlidingWindow, Rate: 1, Start: per}, each(per-1, 2*per-1, per/rate)},
		{"SlidingWindow admits one unit of a Rate of 1", per, 1, Limit{Algorithm: SlidingWindow, Rate: 1},
			join([]admission{{0, 1}, {per - 1, 1}}, each(per, 2*per, 10_000))},
		{"FixedWindow admits 2·Rate across a boundary if the first unit is refunded and spent again",
			per - 1, 2 * rate, Limit{Algorithm: FixedWindow, Rate: rate},
			[]admission{{0, 1}, {per - 1, rate - 1}, {per - 1, -1}, {per - 1, 1}, {per, rate}}},
		{"SlidingLog admits Rate and no more", per - 1, rate, Limit{Algorithm: SlidingLog, Rate: rate},
			join([]admission{{0, 1}, {per - 1, rate - 1}}, each(per, 2*per-1, per/rate))},
		{"TokenBucket admits Burst and the refilled units",
			0, 300 + rate - 1, Limit{Algorithm: TokenBucket, Rate: rate, Burst: 300},
			join([]admission{{0, 300}}, each(per/rate, per, per/rate))},
		{"LeakyBucket admits Burst and the drained units",
			0, 300 + rate - 1, Limit{Algorithm: LeakyBucket, Rate: rate, Burst: 300},
			join([]admission{{0, 300}}, each(per/rate, per, per/rate))},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.limit.Per = time.Duration(per)
			k := newCount(test.limit)
			var got int64
			var first Receipt
			for i, ask := range test.asks {
				if ask.units < 0 { // refunds the units of the first ask
					require.True(t, k.refund(origin+ask.t, -ask.units, first, false))
					continue
				}
				r := k.takeUnits(origin+ask.t, ask.units)
				if i == 0 {
					first = r.Receipt
				}
				if r.Allowed && test.from <= ask.t && ask.t < test.from+per {
					got += ask.units
				}
			}
			require.Equal(t, test.want, got)
		})
	}
}

// bound returns the maximum number of units in a window that contains asks from a to b,
// inclusive.
func bound(l *Limit, refunds bool, a, b int64) *big.Rat {
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		return plus(rat(l.Capacity()), times(minus(rat(b), rat(a)), ratio(l.Rate, int64(l.Per))))
	case SlidingLog:
		return rat(l.Rate)
	}
	if l.Start != 0 || refunds && l.Rate > 1 {
		return rat(2 * l.Rate)
	}
	return rat(2*l.Rate - 1)
}

// A take that was refunded by its receipt is removed from the list. The remaining takes must
// be within the bound, however late the refund was. A take of a bucket is refunded only if no
// refund followed it, because otherwise the remaining takes can exceed the bound (see refundLevel).
func TestNoWindowAdmitsMoreThanItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		if mulDiv(uint64(l.Burst), uint64(l.Per), uint64(l.Rate)) > uint64(maxRefill) {
			l.Burst = 0 // otherwise receipts exceed the range of int64
		}
		k := newCount(l)
		type taken struct {
			admission
			receipt Receipt
			refunds int
		}
		var list []taken
		now, refunds := origin, 0
		for range rapid.IntRange(2, 40).Draw(t, "steps") {
			now += max(0, drawStep(t, &l))
			if i := len(list) - 1; i >= 0 && rapid.IntRange(0, 3).Draw(t, "refund") == 0 {
				i = rapid.IntRange(0, i).Draw(t, "index")
				switch a := &list[i]; {
				case !l.Algorithm.isBucket():
					given, _ := l.refund(&k.c, k.g, now, a.units, a.receipt, false, Lease{})
					a.units -= given
					refunds++
				case a.refunds == refunds:
					k.refund(now, a.units, a.receipt, false)
					a.units = 0
					refunds++
				}
				continue
			}
			units := drawUnits(t, &l)
			if r := k.takeUnits(now, units); r.Allowed {
				list = append(list, taken{admission{now, units}, r.Receipt, refunds})
			}
		}
		for i, a := range list {
			units := int64(0)
			for _, b := range list[i:] {
				if !l.Algorithm.isBucket() && b.t-a.t >= int64(l.Per) {
					break
				}
				units += b.units
				require.LessOrEqual(t, rat(units).Cmp(bound(&l, refunds > 0, a.t, b.t)), 0, "%d units from %d to %d", units, a.t, b.t)
			}
		}
	})
}
