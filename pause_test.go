package weir

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInvalidPausesAreErrors(t *testing.T) {
	n := solo(t, Config{Logger: quiet})
	l, err := n.Limiter(Limit{Name: "test", Rate: 10, Per: time.Minute, Pauses: true})
	require.NoError(t, err)
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond - 1, MaxPause + 1} {
		require.ErrorIs(t, l.Pause(t.Context(), "key", d), ErrInvalid)
		require.ErrorContains(t, l.Pause(t.Context(), "key", d), "from 1ms to 24h0m0s")
	}
	require.ErrorIs(t, l.Pause(t.Context(), string(make([]byte, 2000)), time.Second), ErrInvalid)
	d, err := l.Allow(t.Context(), "key")
	require.NoError(t, err)
	require.True(t, d.Allowed)
	for _, d := range []time.Duration{time.Millisecond, MaxPause} {
		require.NoError(t, l.Pause(t.Context(), "key", d))
		denial, err := l.Allow(t.Context(), "key")
		require.NoError(t, err)
		require.True(t, denial.Paused)
		require.InDelta(t, d, denial.RetryAfter, float64(time.Second))
		require.Less(t, denial.RetryAfter, d+time.Millisecond)
	}
	without, err := n.Limiter(Limit{Name: "other", Rate: 10, Per: time.Minute})
	require.NoError(t, err)
	require.ErrorContains(t, without.Pause(t.Context(), "key", time.Second), `limit "other" has no pauses: set Limit.Pauses`)
	require.ErrorIs(t, Limit{Name: "holds", Algorithm: InFlight, Rate: 10, Pauses: true}.Validate(), ErrInvalid)
	require.NoError(t, n.Close())
	require.ErrorIs(t, l.Pause(t.Context(), "key", time.Second), ErrClosed)
}
