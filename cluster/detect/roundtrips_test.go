package detect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/testenv"
)

func TestFirstRoundTripSetsMeanAndDeviation(t *testing.T) {
	var r RoundTrips
	require.Zero(t, r.Timeout())
	r.Record(10 * time.Millisecond)
	require.Equal(t, 30*time.Millisecond, r.Timeout(), "SRTT R, RTTVAR R/2")
	r.Record(18 * time.Millisecond)
	require.Equal(t, 11*time.Millisecond, r.mean)
	require.Equal(t, 5750*time.Microsecond, r.deviation)
}

func TestTimeoutApproachesMeanOfEqualRoundTrips(t *testing.T) {
	var r RoundTrips
	for range 100 {
		r.Record(time.Millisecond)
	}
	require.InDelta(t, time.Millisecond, r.Timeout(), float64(time.Microsecond))
}

func TestMeanStaysWithinRecordedRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least, most := time.Hour, time.Duration(0)
		var r RoundTrips
		for _, ms := range rapid.SliceOfN(rapid.IntRange(1, 1000), 1, 100).Draw(t, "ms") {
			took := time.Duration(ms) * time.Millisecond
			r.Record(took)
			least, most = min(least, took), max(most, took)
			if r.mean < least-8 || r.mean > most+8 || r.deviation < 0 || r.deviation > most {
				t.Fatalf("mean %v, deviation %v of round trips from %v to %v", r.mean, r.deviation, least, most)
			}
		}
	})
}
