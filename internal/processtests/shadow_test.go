package processtests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testnode"
)

// The node that checks the keys owns both of them, one of them or neither.
func TestShadowsAreCountedAndNotEnforced(t *testing.T) {
	t.Parallel()
	nodes := testnode.Fleet(t, 3, nil)
	few := testnode.Limiter(t, nodes[0], weir.Limit{Name: "few", Algorithm: weir.SlidingLog, Rate: 2, Per: time.Hour})
	many := testnode.Limiter(t, nodes[0], weir.Limit{Name: "many", Algorithm: weir.TokenBucket, Rate: 100, Per: 365 * 24 * time.Hour})
	for where, owners := range map[string][2]*node{
		"owned":          {nodes[0], nodes[0]},
		"forwarded":      {nodes[1], nodes[1]},
		"of two owners":  {nodes[1], nodes[2]},
		"here and there": {nodes[0], nodes[1]},
		"there and here": {nodes[1], nodes[0]},
	} {
		t.Run(where, func(t *testing.T) {
			lab.WhileHealthy(t, func(t *testing.T) decisions {
				f, m := weir.Ask{Limiter: few, Key: testnode.KeyOf(t, few, owners[0])}, weir.Ask{Limiter: many, Key: testnode.KeyOf(t, many, owners[1])}
				fs, ms := f, m
				fs.Shadow, ms.Shadow = true, true
				left := func(fewLeft, manyLeft int64) {
					t.Helper()
					lab.Eventually(t, fmt.Sprintf("%d and %d are left", fewLeft, manyLeft), func() bool {
						df, err := few.Peek(t.Context(), f.Key)
						require.NoError(t, err)
						dm, err := many.Peek(t.Context(), m.Key)
						require.NoError(t, err)
						byOwners(t, df, dm)
						return df.Remaining == fewLeft && dm.Remaining == manyLeft
					})
				}
				ask := func(asks ...weir.Ask) weir.Decisions {
					t.Helper()
					ds, err := nodes[0].AllowAll(t.Context(), asks...)
					require.NoError(t, err)
					byOwners(t, ds...)
					return ds
				}
				for _, a := range []weir.Ask{f, m} {
					lab.Eventually(t, "it is reset", func() bool { return a.Limiter.Reset(t.Context(), a.Key) == nil })
				}

				for range 2 {
					ds := ask(fs, m)
					require.True(t, ds.Allowed() && ds[0].Allowed && ds[0].Shadow && !ds[1].Shadow)
				}
				left(0, 98)
				ds := ask(fs, m)
				require.True(t, ds.Allowed(), "a shadow denies nothing")
				require.False(t, ds[0].Allowed, "the decision reports that it would have denied")
				require.Positive(t, ds[0].RetryAfter)
				require.Equal(t, "many", ds.Strictest().Name, "the strictest enforced limit")
				left(0, 97)

				ds = ask(f, ms)
				require.False(t, ds.Allowed())
				require.True(t, ds[1].Allowed, "the shadow alone would have allowed the check")
				left(0, 97)
				ds = ask(f, ms, ms)
				require.False(t, ds.Allowed())
				left(0, 97)

				require.True(t, ask(fs).Allowed(), "a shadow alone")
				require.Zero(t, ask(fs).Strictest())
				ds = ask(ms, ms)
				require.True(t, ds[0].Shadow && ds[1].Shadow && ds[0].Allowed)
				require.EqualValues(t, 95, ds[1].Remaining, "the units of both are added")
				ds = ask(ms, m)
				require.False(t, ds[0].Shadow || ds[1].Shadow, "a count is enforced if one of its limits is")
				left(0, 93)

				huge := ms
				huge.Units = 1_000
				ds = ask(huge, weir.Ask{Limiter: few, Key: "of its own " + t.Name()})
				require.True(t, ds.Allowed(), "more units than the limit are denied by a shadow too")
				require.False(t, ds[0].Allowed)
				left(0, 93)
				huge.Shadow = false
				_, err := nodes[0].AllowAll(t.Context(), huge, f)
				require.ErrorIs(t, err, weir.ErrInvalid)
				ds, err = nodes[0].AllowAll(t.Context(), weir.Ask{Limiter: many, Key: m.Key, Units: -1, Shadow: true})
				require.ErrorIs(t, err, weir.ErrInvalid)
				require.False(t, ds.Allowed(), "with an error, all decisions are denials")
				return nil
			})
		})
	}
	total := nodes[0].Stats().Shadows
	require.Positive(t, total.Allowed)
	require.Positive(t, total.Denied)
}

func TestShadowHoldsAndReservationsAreCountedApart(t *testing.T) {
	t.Parallel()
	lab.WhileHealthy(t, func(t *testing.T) decisions {
		nodes := testnode.Fleet(t, 2, nil)
		flights := testnode.Limiter(t, nodes[0], weir.Limit{Name: "flights", Algorithm: weir.InFlight, Rate: 2})
		tokens := testnode.Limiter(t, nodes[0], weir.Limit{Name: "tokens", Rate: 2, Per: time.Hour})
		for name, ask := range map[string]func(l *weir.Limiter, key string) (weir.Decision, error){
			"Hold": func(l *weir.Limiter, key string) (weir.Decision, error) {
				h, err := l.Hold(t.Context(), key, 2)
				return h.Decision(), err
			},
			"HoldFor": func(l *weir.Limiter, key string) (weir.Decision, error) {
				_, d, err := l.HoldFor(t.Context(), key, 2, time.Minute)
				return d, err
			},
			"Reserve": func(l *weir.Limiter, key string) (weir.Decision, error) {
				v, err := l.Reserve(t.Context(), key, 2)
				return v.Decision(), err
			},
			"AllowN": func(l *weir.Limiter, key string) (weir.Decision, error) { return l.AllowN(t.Context(), key, 2) },
			"AllowAll": func(l *weir.Limiter, key string) (weir.Decision, error) {
				ds, err := nodes[0].AllowAll(t.Context(), weir.Ask{Limiter: l, Key: key, Units: 2})
				require.True(t, ds.Allowed(), "a shadow denies nothing")
				return ds[0], err
			},
		} {
			l := flights
			if name == "Reserve" || strings.HasPrefix(name, "Allow") {
				l = tokens
			}
			for _, owner := range nodes {
				key, before := "", nodes[0].Stats()
				for i := 0; key == "" || l.Owner(key).Name != owner.Self().Name; i++ {
					key = fmt.Sprint(name, i)
				}
				for _, allowed := range []bool{true, false} {
					d, err := ask(l.Shadow(), key)
					require.NoError(t, err)
					byOwners(t, d)
					require.True(t, d.Shadow, name)
					require.Equal(t, allowed, d.Allowed, name)
				}
				after := nodes[0].Stats()
				require.Equal(t, weir.Outcomes{Allowed: before.Shadows.Allowed + 1, Denied: before.Shadows.Denied + 1}, after.Shadows, name)
				require.Equal(t, before.Limits, after.Limits, name)
				d, err := l.Peek(t.Context(), key)
				require.NoError(t, err)
				byOwners(t, d)
				require.Zero(t, d.Remaining, "the units of a shadow are spent or held")
			}
		}
		v, err := tokens.Shadow().Reserve(t.Context(), "key", 3)
		require.NoError(t, err, "more units than the limit")
		require.False(t, v.Decision().Allowed)
		_, err = tokens.Reserve(t.Context(), "key", 3)
		require.ErrorIs(t, err, weir.ErrInvalid)
		return nil
	})
}
