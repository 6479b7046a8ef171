package countsync

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naive is a simple implementation of a set of hashes, restricted to points.
type naive map[uint64]bool

// points returns the hashes near all ends that the ranges in a test can have.
func points() (list []uint64) {
	for h := range uint64(40) {
		list = append(list, h, math.MaxUint64-h)
	}
	return list
}

func (r Ranges) naive() naive {
	set := make(naive)
	for _, h := range points() {
		for _, x := range r {
			if x.First <= h && h <= x.Last {
				set[h] = true
			}
		}
	}
	return set
}

func TestRangesAreSetsOfHashes(t *testing.T) {
	checks(t, 300, 2000)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (list []Range, r Ranges) {
			for range rapid.IntRange(0, 5).Draw(t, name) {
				hash := rapid.SampledFrom(points())
				list = append(list, Range{hash.Draw(t, "first"), hash.Draw(t, "last")})
			}
			return list, NewRanges(slices.Clone(list)...)
		}
		list, a := draw("a")
		_, b := draw("b")
		for _, set := range []Ranges{a, b, a.Union(b), a.Minus(b), a.Intersect(b)} {
			for i, r := range set {
				require.LessOrEqual(t, r.First, r.Last)
				if i > 0 {
					require.Greater(t, r.First-1, set[i-1].Last, "sorted, and neither overlapping nor touching")
				}
			}
		}
		na, nb := Ranges(list).naive(), b.naive()
		for _, h := range points() {
			require.Equal(t, na[h], a.Contains(h))
			require.Equal(t, na[h] || nb[h], a.Union(b).Contains(h))
			require.Equal(t, na[h] && !nb[h], a.Minus(b).Contains(h))
			require.Equal(t, na[h] && nb[h], a.Intersect(b).Contains(h))
		}
		require.True(t, a.Union(b).Equal(b.Union(a)))
		require.True(t, a.Minus(b).Union(a.Intersect(b)).Equal(a))
		require.True(t, All().Minus(a).Union(a).Equal(All()))
		require.Empty(t, a.Minus(All()))
	})
}
