package rules_test

import (
	"cmp"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/ratelimit"
	"github.com/weir-go/weir/internal/testenv"
)

// drawLimit draws a limit of any algorithm except InFlight.
func drawLimit(t *rapid.T) weir.Limit {
	l := weir.Limit{
		Name: "test", Algorithm: weir.Algorithm(rapid.IntRange(0, 4).Draw(t, "algorithm")), Partition: weir.FairShare,
		Rate: rapid.Int64Range(1, 60).Draw(t, "rate"), Per: time.Duration(rapid.Int64Range(1e6, 1e11).Draw(t, "per")),
	}
	if rapid.Bool().Draw(t, "global") {
		l.Scope = weir.Global
	}
	switch {
	case l.Algorithm == weir.TokenBucket || l.Algorithm == weir.LeakyBucket:
		l.Burst = rapid.Int64Range(0, 60).Draw(t, "burst")
	case l.Algorithm == weir.FixedWindow && rapid.Bool().Draw(t, "dated"):
		l.Per, l.Calendar = 0, rapid.SampledFrom([]weir.Calendar{weir.Day, weir.Week, weir.Month}).Draw(t, "calendar")
		l.Zone = rapid.SampledFrom([]string{"", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"}).Draw(t, "zone")
	}
	return l
}

// After the RetryAfter of a denial a client is granted the same request, and after the ResetAfter of
// any decision the whole limit, if no other units are spent meanwhile. One nanosecond earlier the
// client is denied. This is true after debts, refunds, settled reservations and resets, for a share,
// and after the clock has stepped back.
func TestRetryAfterAndResetAfterAreExact(t *testing.T) {
	histories := testenv.PickFull(t, 100, 1000) // number of histories on each of 100 nodes
	rapid.Check(t, func(t *rapid.T) {
		var now atomic.Int64 // atomic because the goroutines of the node read it
		now.Store(1_800_000_000e9)
		cfg := weir.Config{Now: func() time.Time { return time.Unix(0, now.Load()) }}
		l := drawLimit(t)
		if rapid.Bool().Draw(t, "share") {
			cfg.Expect, l.Rate = 3, max(l.Rate, 3)
			l.Burst = max(l.Burst, min(1, l.Burst)*3)
		} else if l.Algorithm != weir.LeakyBucket {
			l.Keep = rapid.Int64Range(0, cmp.Or(l.Burst, l.Rate)-1).Draw(t, "keep")
		}
		n, err := weir.Start(t.Context(), cfg)
		require.NoError(t, err)
		defer n.Close()
		limiter, err := n.Limiter(l)
		require.NoError(t, err)
		ctx, capacity, per := t.Context(), cmp.Or(l.Burst, l.Rate)-l.Keep, cmp.Or(l.Per, 24*time.Hour)
		allow := func(key string, units int64) weir.Decision {
			d, err := limiter.AllowN(ctx, key, units)
			require.NoError(t, err)
			return d
		}
		for history := range histories {
			key, rng := strconv.Itoa(history), rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "history"), 0))
			now.Add(rng.Int64N(40 * int64(per)))
			for range 1 + rng.IntN(12) {
				now.Add(rng.Int64N(int64(per)) - int64(per)/4)
				units := 1 + rng.Int64N(capacity)
				switch rng.IntN(8) {
				case 0:
					_, err = limiter.Debit(ctx, key, 2*units)
				case 1:
					err = limiter.Refund(ctx, key, units)
				case 2:
					var v *weir.Reservation
					if v, err = limiter.Reserve(ctx, key, units); err == nil && v.Decision().Allowed {
						err = v.Settle(ctx, rng.Int64N(2*units))
					}
				case 3:
					if rng.IntN(4) == 0 {
						err = limiter.Reset(ctx, key)
					}
				default:
					allow(key, units)
				}
				require.NoError(t, err)
			}
			units := 1 + rng.Int64N(capacity)
			d := allow(key, units)
			require.Positive(t, d.Limit)
			if !d.Allowed && units <= d.Limit {
				now.Add(int64(d.RetryAfter) - 1)
				require.False(t, allow(key, units).Allowed, "%d units of %+v one nanosecond early, after %+v", units, l, d)
				now.Add(1)
				before := d
				d = allow(key, units)
				require.True(t, d.Allowed, "%d units of %+v, after %+v: %+v", units, l, before, d)
			}
			now.Add(int64(d.ResetAfter) - 1)
			if d.Allowed { // after a denial, more units than the share were asked for, and RetryAfter is a guess
				require.False(t, allow(key, d.Limit).Allowed, "all units of %+v one nanosecond early, after %+v", l, d)
			}
			now.Add(1)
			whole := allow(key, d.Limit)
			require.True(t, whole.Allowed, "all units of %+v, after %+v: %+v", l, d, whole)
		}
	})
}

// No time is known at which all units of an InFlight limit are released: ResetAfter is RetryAfter.
func TestInFlightResetAfterEqualsRetryAfter(t *testing.T) {
	n, err := weir.Start(t.Context(), weir.Config{})
	require.NoError(t, err)
	defer n.Close()
	l, err := n.Limiter(weir.Limit{Name: "busy", Algorithm: weir.InFlight, Rate: 1})
	require.NoError(t, err)
	for range 2 {
		h, err := l.Hold(t.Context(), "key", 1)
		require.NoError(t, err)
		require.Equal(t, h.Decision().RetryAfter, h.Decision().ResetAfter)
	}
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
