package rules_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/ratelimit"
	_ "github.com/weir-go/weir/internal/testenv"
)

// After a client has spent all units of a limit, a request at the time of the reset is allowed.
// This is also true for a share, although the node of the client does not know its rate. If the
// node has the whole limit, a request two nanoseconds earlier is denied.
func TestResetIsTimeOfNextUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now atomic.Int64 // atomic because the goroutines of the node read it
		now.Store(1_800_000_000e9)
		share := rapid.Bool().Draw(t, "share")
		cfg := weir.Config{Now: func() time.Time { return time.Unix(0, now.Load()) }}
		if share {
			cfg.Expect = 3
		}
		n, err := weir.Start(t.Context(), cfg)
		require.NoError(t, err)
		defer n.Close()
		l := weir.Limit{
			Name: "test", Algorithm: weir.Algorithm(rapid.IntRange(0, 4).Draw(t, "algorithm")), Partition: weir.FairShare,
			Rate: rapid.Int64Range(1, 60).Draw(t, "rate"), Per: time.Duration(rapid.Int64Range(1e6, 1e11).Draw(t, "per")),
		}
		if l.Algorithm == weir.TokenBucket || l.Algorithm == weir.LeakyBucket {
			l.Burst = rapid.Int64Range(0, 60).Draw(t, "burst")
		}
		limiter, err := n.Limiter(l)
		require.NoError(t, err)
		for range 200 {
			now.Add(rapid.Int64Range(0, int64(l.Per)/l.Rate).Draw(t, "step"))
			d, err := limiter.Allow(t.Context(), "key")
			require.NoError(t, err)
			if d.Limit == 0 || l.Rate < 3 && share {
				return // the share is zero or never refills
			}
			if d.Allowed && d.Remaining > 0 {
				continue
			}
			reset, at := ratelimit.ResetAfter(&d, limiter), now.Load()
			require.LessOrEqual(t, reset, max(d.ResetAfter, d.RetryAfter))
			if !share {
				now.Store(at + int64(reset) - 2)
				sooner, err := limiter.Peek(t.Context(), "key")
				require.NoError(t, err)
				require.False(t, sooner.Allowed, "%+v", d)
			}
			now.Store(at + int64(reset))
			next, err := limiter.Allow(t.Context(), "key")
			require.NoError(t, err)
			require.True(t, next.Allowed, "%+v, told %v", d, reset)
		}
	})
}

// The end of a calendar window does not depend on the time at which the decision arrives, if the
// difference between the clocks is at most half a second.
func TestCalendarWindowEndsAtBoundary(t *testing.T) {
	n, err := weir.Start(t.Context(), weir.Config{})
	require.NoError(t, err)
	defer n.Close()
	calendar, err := n.Limiter(weir.Limit{Name: "calendar", Algorithm: weir.FixedWindow, Rate: 9, Calendar: weir.Day, Zone: "Asia/Kathmandu"})
	require.NoError(t, err)
	plain, err := n.Limiter(weir.Limit{Name: "plain", Algorithm: weir.FixedWindow, Rate: 9, Per: 24 * time.Hour})
	require.NoError(t, err)
	midnight := time.Date(2026, time.November, 21, 18, 15, 0, 0, time.UTC)
	for _, off := range []time.Duration{-500 * time.Millisecond, -time.Millisecond, -1, 0, 1, 999 * time.Microsecond, 20 * time.Millisecond, 500 * time.Millisecond} {
		d := weir.Decision{Allowed: true, Remaining: 3, Limit: 9, ResetAfter: 5 * time.Hour}
		now := midnight.Add(off - d.ResetAfter)
		require.Equal(t, midnight, ratelimit.ResetAt(now, &d, calendar), off)
		require.Equal(t, midnight.Add(off), ratelimit.ResetAt(now, &d, plain), "a window that no calendar has ends when it does")
		d.ResetAfter += 7 * time.Second // a share without a boundary
		require.Equal(t, midnight.Add(off+7*time.Second), ratelimit.ResetAt(now, &d, calendar))
	}
	d := weir.Decision{Allowed: true, Remaining: 9, Limit: 9}
	require.Equal(t, midnight.Add(1), ratelimit.ResetAt(midnight.Add(1), &d, calendar), "nothing is used")
}
