package adapt

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var bounds = Bounds{Latency: 200 * time.Millisecond, Slow: 0.05, Errors: 0.05, Min: 0.2, Max: 1}

func TestFactorFollowsPublishedState(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	s := State{Factor: 0.5, Ceiling: 0.55, Reason: Slow, At: now}
	require.JSONEq(t, `{"factor":0.5,"ceiling":0.55,"reason":"slow","at":1000000}`, string(s.Encode()))
	read, err := State{}.Follow(s.Encode(), now)
	require.NoError(t, err)
	require.Equal(t, s.Encode(), read.Encode())
	for _, bad := range []string{"", "{}", `{"factor":-1}`, `{"factor":1.5}`, `{"factor":1,"ceiling":-1}`, `{"factor":1e999}`} {
		kept, err := s.Follow([]byte(bad), now)
		require.Error(t, err, bad)
		require.Equal(t, s, kept)
	}
}

func TestFactorStaysWithoutMeasurements(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	var s State
	for range 10 {
		now = now.Add(time.Second)
		s = s.Next(bounds, Sample{}, now)
		require.Equal(t, State{Factor: 1}, s)
	}
}
