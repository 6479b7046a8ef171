package lab

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistogramQuantilesAreWithinAThirtieth(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h, half Histogram
	var times []time.Duration
	for i := range 100_000 {
		d := time.Duration(random.ExpFloat64() * float64(random.IntN(10_000_000)))
		if i%2 == 0 {
			h.Add(d)
		} else {
			half.Add(d)
		}
		times = append(times, d)
	}
	h.Merge(&half)
	slices.Sort(times)
	require.Equal(t, len(times), h.Total)
	for _, q := range []float64{0, .001, .5, .99, .999, 1} {
		exact := times[min(len(times)-1, int(q*float64(len(times))))]
		require.GreaterOrEqual(t, h.Quantile(q), exact, q)
		require.LessOrEqual(t, float64(h.Quantile(q)), float64(exact)*(1+1./30)+1, q)
	}
	require.Equal(t, times[len(times)-1], h.Quantile(1))
}

func TestHistogramHasBinForEveryTime(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 31, 32, 63, 64, 65, 127, 128, 1000, time.Millisecond, time.Second, time.Hour, 1<<63 - 1} {
		bin := binOf(d)
		require.LessOrEqual(t, d, topOf(bin))
		if bin > 0 {
			require.Greater(t, d, topOf(bin-1))
		}
		var h Histogram
		h.Add(d)
		require.Equal(t, d, h.Quantile(1), "no quantile is above the longest time")
	}
	require.Zero(t, binOf(-time.Second))
	require.Zero(t, new(Histogram).Quantile(.5))
}

func TestHistogramAllocatesNothing(t *testing.T) {
	h := new(Histogram)
	require.Zero(t, testing.AllocsPerRun(100, func() { h.Add(time.Millisecond) }))
}
