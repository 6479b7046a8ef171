package stats

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/testenv"
)

// oracle counts every key, and halves its counts like the sketch.
type oracle struct {
	counts map[int]float64
	sum    float64
	halved int64
}

func (o *oracle) add(key int, weight float64, halfLife, now int64) {
	for ; now-o.halved >= halfLife; o.halved += halfLife {
		o.sum /= 2
		for k := range o.counts {
			o.counts[k] /= 2
		}
	}
	o.counts[key] += weight
	o.sum += weight
}

func TestCountsAreWithinTheStatedError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const halfLife = 100
		size, keys := rapid.IntRange(1, 12).Draw(t, "size"), rapid.IntRange(1, 40).Draw(t, "keys")
		s, o, now := newSketch(size, halfLife, 0), oracle{counts: make(map[int]float64)}, int64(0)
		for range rapid.IntRange(1, 300).Draw(t, "adds") {
			// Some keys are far more frequent than other keys.
			key := int(float64(keys) * math.Pow(rapid.Float64Range(0, 0.999).Draw(t, "key"), 3))
			weight := float64(rapid.SampledFrom([]int{1, 1, 64}).Draw(t, "weight"))
			now += rapid.Int64Range(0, 7).Draw(t, "passes")
			s.add(idOf(uint64(key)), weight, "limit", fmt.Sprint(key), false, now)
			o.add(key, weight, halfLife, now)
		}
		floor, listed := s.floor(now), make(map[string]bool)
		require.LessOrEqual(t, floor, o.sum/float64(size)+1e-9)
		last := math.Inf(1)
		for _, e := range s.top(size, now) {
			var key int
			fmt.Sscan(e.key, &key)
			require.Equal(t, idOf(uint64(key)), e.id, "the text belongs to the id")
			require.GreaterOrEqual(t, e.count+1e-9, o.counts[key])
			require.LessOrEqual(t, e.count-e.over-1e-9, o.counts[key])
			require.LessOrEqual(t, e.count, last, "the most frequent first")
			last, listed[e.key] = e.count, true
		}
		require.Len(t, listed, min(size, len(o.counts)))
		for key, count := range o.counts {
			if !listed[fmt.Sprint(key)] {
				require.LessOrEqual(t, count, floor+1e-9)
			}
		}
	})
}

func TestOldAsksAreForgotten(t *testing.T) {
	s := newSketch(4, 60, 0)
	s.add(idOf(1), 64, "limit", "then", false, 0)
	s.add(idOf(2), 20, "limit", "now", false, 120)
	top := s.top(4, 120)
	require.Equal(t, "now", top[0].key)
	require.Equal(t, 16.0, top[1].count)
	require.Less(t, s.top(4, 1<<62)[0].count, 1e-9)
	require.Equal(t, "now", s.top(1, 0)[0].key, "a clock that steps back changes nothing")
}

func TestAddDoesNotAllocate(t *testing.T) {
	s, key := newSketch(16, 60, 0), strings.Repeat("k", 100)
	for i := range 100 {
		s.add(idOf(uint64(i)), 1, "limit", key, false, 0)
	}
	next := 100
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		next++
		s.add(idOf(uint64(next)), 1, "limit", key, false, 0)
	}))
}

func TestSecretKeyIsMasked(t *testing.T) {
	for key, want := range map[string]string{
		"sk_live_0123456789abcdef": "…cdef",
		"short secret":             "…",
		"":                         "…",
		"0123456789abc日本":          "…",
		"0123456789abcdef\r\n":     "…",
	} {
		s := newSketch(1, 60, 0)
		s.add(idOf(2), 1, "limit", "an open key that was there before", false, 0)
		s.add(idOf(1), 1, "limit", key, true, 0)
		require.Equal(t, want, s.top(1, 0)[0].key, key)
	}
}
