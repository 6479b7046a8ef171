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
	allow(t, l, "key", 1)
	without, err := n.Limiter(Limit{Name: "other", Rate: 10, Per: time.Minute})
	require.NoError(t, err)
	require.ErrorContains(t, without.Pause(t.Context(), "key", time.Second), `limit "other" has no pauses: set Limit.Pauses`)
	require.ErrorIs(t, Limit{Name: "holds", Algorithm: InFlight, Rate: 10, Pauses: true}.Validate(), ErrInvalid)
	require.NoError(t, n.Close())
	require.ErrorIs(t, l.Pause(t.Context(), "key", time.Second), ErrClosed)
}

func TestPauseLastsForRoundedUpMilliseconds(t *testing.T) {
	l := limiter(t, solo(t, Config{Now: newHand().Now, Logger: quiet}), Limit{Rate: 10, Per: time.Minute, Pauses: true})
	for d, want := range map[time.Duration]time.Duration{
		time.Millisecond: time.Millisecond, 1_000_001: 2 * time.Millisecond, MaxPause - 1: MaxPause, MaxPause: MaxPause,
	} {
		key := d.String()
		require.NoError(t, l.Pause(t.Context(), key, d))
		denial := deny(t, l, key, 1)
		require.True(t, denial.Paused)
		require.Equal(t, want, denial.RetryAfter)
	}
}

func TestDenialsOfPauseDoNotBan(t *testing.T) {
	clock := newHand()
	l := limiter(t, solo(t, Config{Now: clock.Now, Logger: quiet}), Limit{
		Rate: 10, Per: time.Minute, Pauses: true, Ban: Ban{Denials: 2, Within: time.Minute, For: BanLengths{time.Hour}},
	})
	require.NoError(t, l.Pause(t.Context(), "key", time.Second))
	for range 5 {
		require.True(t, deny(t, l, "key", 1).Paused)
	}
	clock.Step(time.Second)
	allow(t, l, "key", 1)
}
