package countsync

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
)

func TestRegionsStartWithTheirWeightedParts(t *testing.T) {
	for _, test := range []struct {
		name    string
		weights map[string]int64
		whole   int64
		want    []int64 // for a, b and c
	}{
		{"equal parts without weights", nil, 9, []int64{3, 3, 3}},
		{"an indivisible remainder", nil, 5, []int64{1, 2, 2}},
		{"by weight", map[string]int64{"a": 5, "b": 3, "c": 2}, 1000, []int64{500, 300, 200}},
		{"a region without weight", map[string]int64{"a": 1, "b": 0, "c": 1}, 10, []int64{5, 0, 5}},
		{"a missing region", map[string]int64{"a": 5, "b": 3}, 9, []int64{3, 3, 3}},
		{"an unknown region", map[string]int64{"a": 5, "b": 3, "c": 1, "d": 1}, 9, []int64{3, 3, 3}},
		{"weights that are all zero", map[string]int64{"a": 0, "b": 0, "c": 0}, 9, []int64{3, 3, 3}},
		{"a sum that is too large", map[string]int64{"a": math.MaxInt64, "b": math.MaxInt64, "c": 2}, 9, []int64{3, 3, 3}},
		{"a sum that overflows", map[string]int64{"a": math.MaxInt64, "b": math.MaxInt64, "c": 3}, 9, []int64{3, 3, 3}},
		{"a negative weight", map[string]int64{"a": -5, "b": 1, "c": 1}, 10, []int64{0, 5, 5}},
		{"an empty limit", nil, 0, []int64{0, 0, 0}},
		{"the largest limit", nil, 1e12, []int64{333333333333, 333333333333, 333333333334}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := NewRegions("b", []string{"c", "a"}, test.weights)
			for i, want := range test.want {
				require.Equal(t, want, r.start(test.whole, i))
			}
		})
	}
}

func TestNodesOfAllRegionsComputeTheSameFingerprint(t *testing.T) {
	a := NewRegions("a", []string{"b", "c", "b"}, nil)
	b := NewRegions("b", []string{"c", "a"}, nil)
	require.Equal(t, a.print, b.print)
	require.Equal(t, a.print, NewRegions("c", []string{"a", "b", "c"}, nil).print)
	require.NotEqual(t, a.print, NewRegions("a", []string{"b"}, nil).print)
	require.NotEqual(t, a.print, NewRegions("a", []string{"b", "c"}, map[string]int64{"a": 1, "b": 1, "c": 2}).print)
	require.NotEqual(t, NewRegions("a", []string{"bc"}, nil).print, NewRegions("ab", []string{"c"}, nil).print)
	require.Equal(t, -1, a.index("a"))
	require.Equal(t, 1, a.index("b"))
	require.Equal(t, -1, a.index("x"))
}

func drawRegions(t *rapid.T) (names []string, weights map[string]int64) {
	weights = make(map[string]int64)
	for i := range rapid.IntRange(1, 8).Draw(t, "regions") {
		name := fmt.Sprint("r", i)
		names = append(names, name)
		weights[name] = rapid.Int64Range(0, 1<<29).Draw(t, "weight")
	}
	return names, weights
}

// A region's part of a bucket recovers at most at its exact rate: the rate of the limit, in
// proportion to the units of the part. All parts together recover at most at the rate of the
// limit. A part recovers at 99.9 % of its exact rate or faster, unless the sum of the Per of the part
// and the Per of the limit is above 366 days.
func TestPartsRecoverProportionallyToTheirUnits(t *testing.T) {
	checks(t, 300, 2000)
	rapid.Check(t, func(t *rapid.T) {
		whole := bucket.Limit{
			Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
			Rate:      rapid.Custom(func(t *rapid.T) int64 { return drawUnits(t) }).Draw(t, "rate"),
			Per:       time.Duration(rapid.Int64Range(ms, int64(366*24*time.Hour)).Draw(t, "per")),
		}
		if whole.IsBucket() {
			whole.Burst = drawUnits(t)
		} else if whole.Algorithm == bucket.SlidingLog {
			whole.Rate = min(whole.Rate, 100_000)
		}
		if whole.Validate() != nil {
			t.Skip("not a limit")
		}
		names, weights := drawRegions(t)
		r := NewRegions(names[0], names, weights)
		rates, sum := new(big.Rat), int64(0)
		for i := range r.names {
			units := r.start(whole.Capacity(), i)
			l := whole.Scale(units)
			require.NoError(t, sane(&l), "%d of %+v", units, whole)
			require.Equal(t, whole.Capacity(), l.Whole, "%d of %+v is of %d", units, whole, l.Whole)
			require.GreaterOrEqual(t, units, int64(0), "%d of %+v", units, whole)
			sum += units
			if !whole.IsBucket() {
				require.False(t, l.Rate != units || l.Per != whole.Per, "%d of %+v is %+v", units, whole, l)
				continue
			}
			if l.Burst == -1 {
				continue
			}
			require.Equal(t, units, l.Burst, "%d of %+v is %+v", units, whole, l)
			rate := big.NewRat(l.Rate, int64(l.Per))
			exact := new(big.Rat).Mul(big.NewRat(whole.Rate, int64(whole.Per)), big.NewRat(units, whole.Capacity()))
			require.True(t, rate.Cmp(exact) <= 0, "%d of %+v recovers at %v, above %v", units, whole, rate, exact)
			near := new(big.Rat).Mul(exact, big.NewRat(999, 1000))
			if rate.Cmp(near) < 0 && l.Per+whole.Per <= 366*24*time.Hour {
				t.Fatalf("%d of %+v recovers at %v, below %v", units, whole, rate, exact)
			}
			rates.Add(rates, rate)
		}
		require.Equal(t, whole.Capacity(), sum, "of %+v", whole)
		require.True(t, rates.Cmp(big.NewRat(whole.Rate, int64(whole.Per))) <= 0, "portions of %+v recover at %v", whole, rates)
	})
}

func drawUnits(t *rapid.T) int64 {
	if rapid.Bool().Draw(t, "small") {
		return rapid.Int64Range(1, 2000).Draw(t, "units")
	}
	return rapid.Int64Range(1, 1e12).Draw(t, "units")
}
