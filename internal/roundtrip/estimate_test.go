package roundtrip

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/drawn"
)

func TestTheFirstRoundTripSetsMeanAndDeviation(t *testing.T) {
	var e Estimate
	require.Zero(t, e.Late())
	e.Add(10 * time.Millisecond)
	require.Equal(t, 30*time.Millisecond, e.Late(), "SRTT R, RTTVAR R/2")
	e.Add(18 * time.Millisecond)
	require.Equal(t, 11*time.Millisecond, e.mean)
	require.Equal(t, 5750*time.Microsecond, e.deviation)
}

func TestSteadyRoundTripsAreLateSoonAfterTheirMean(t *testing.T) {
	var e Estimate
	for range 100 {
		e.Add(time.Millisecond)
	}
	require.InDelta(t, time.Millisecond, e.Late(), float64(time.Microsecond))
}

func TestTheEstimateStaysWithinWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least, most := time.Hour, time.Duration(0)
		var e Estimate
		for _, ms := range rapid.SliceOfN(rapid.IntRange(1, 1000), 1, 100).Draw(t, "ms") {
			took := time.Duration(ms) * time.Millisecond
			e.Add(took)
			least, most = min(least, took), max(most, took)
			if e.mean < least-8 || e.mean > most+8 || e.deviation < 0 || e.deviation > most {
				t.Fatalf("mean %v, deviation %v of round trips from %v to %v", e.mean, e.deviation, least, most)
			}
		}
	})
}
