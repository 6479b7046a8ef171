package clustertests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// exhaust takes single units of a key until a check is denied.
func exhaust(t *testing.T, l *weir.Limiter, key string) {
	t.Helper()
	for {
		if d, err := l.Allow(t.Context(), key); err != nil || !d.Allowed {
			require.NoError(t, err)
			return
		}
	}
}

func TestFloodOfDeniedKeyBarelyReachesOwner(t *testing.T) {
	t.Parallel()
	for _, l := range []weir.Limit{
		{Name: "hour", Rate: 100, Per: time.Hour},
		{Name: "minute", Algorithm: weir.TokenBucket, Rate: 100, Per: time.Minute},
		{Name: "log", Algorithm: weir.SlidingLog, Rate: 10, Per: time.Second},
	} {
		t.Run(l.Name, func(t *testing.T) {
			inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
				ls := w.limiters(t, l)
				key := keyOf(t, ls["a"])
				exhaust(t, ls["a"], key)
				before := w.nodes["a"].Stats().Served
				const rounds = 5_000
				for range rounds { // for five seconds
					for _, name := range w.names {
						allowed(t, ls[name], key, 1)
					}
					time.Sleep(time.Millisecond)
				}
				served := w.nodes["a"].Stats().Served - before
				t.Logf("of %d requests, the owner decided %d", 2*rounds, served)
				require.LessOrEqual(t, served, uint64(3*rounds*2/100))
				require.Positive(t, served)
				denied := w.nodes["b"].Stats().Decisions[weir.Pushback]
				require.Zero(t, denied.Allowed)
				require.GreaterOrEqual(t, denied.Denied, uint64(rounds*95/100))
			})
		})
	}
}

func TestSmallerCheckIsNotDeniedByPushback(t *testing.T) {
	inWorlds(t, 2, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 10, Per: time.Hour})
		key, b := keyOf(t, ls["a"]), ls["b"]
		require.True(t, allowed(t, b, key, 7).Allowed)
		first := allowed(t, b, key, 5)
		require.Equal(t, weir.Forwarded, first.Source)
		time.Sleep(100 * time.Millisecond)
		again := allowed(t, b, key, 5)
		require.Equal(t, weir.Pushback, again.Source)
		require.False(t, again.Allowed)
		require.EqualValues(t, 3, again.Remaining)
		require.EqualValues(t, 10, again.Limit)
		require.InDelta(t, first.RetryAfter-100*time.Millisecond, again.RetryAfter, float64(time.Millisecond))
		require.GreaterOrEqual(t, again.ResetAfter, again.RetryAfter)
		require.Equal(t, weir.Pushback, allowed(t, b, key, 6).Source, "a larger check is denied by the pushback")
		require.Equal(t, weir.Forwarded, peek(t, b, key).Source)
		fits := allowed(t, b, key, 3)
		require.True(t, fits.Allowed)
		require.Equal(t, weir.Forwarded, fits.Source)
		d, err := b.Debit(t.Context(), key, 5)
		require.NoError(t, err)
		require.Equal(t, weir.Forwarded, d.Source)
		require.Equal(t, weir.Pushback, allowed(t, b, key, 5).Source)
		time.Sleep(time.Second)
		require.Equal(t, weir.Forwarded, allowed(t, b, key, 5).Source, "after a second the owner is asked again")
	})
}

func TestRefundAndResetEndPushback(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		l := weir.Limit{Name: "test", Rate: 5, Per: time.Hour}
		ls := w.limiters(t, l)
		key := keyOf(t, ls["a"])
		exhausted := func() {
			t.Helper()
			for _, name := range []string{"b", "c"} {
				exhaust(t, ls[name], key)
				require.Equal(t, weir.Pushback, allowed(t, ls[name], key, 1).Source)
			}
		}
		exhausted()
		require.NoError(t, ls["b"].Refund(t.Context(), key, 1))
		require.True(t, allowed(t, ls["b"], key, 1).Allowed, "a refund ends the pushback of its node at once")
		exhausted()
		require.NoError(t, ls["b"].Refund(t.Context(), key, 2))
		time.Sleep(time.Second)
		require.True(t, allowed(t, ls["c"], key, 1).Allowed, "pushbacks of other nodes end within a second")
		exhausted()
		require.NoError(t, ls["b"].Reset(t.Context(), key))
		require.True(t, allowed(t, ls["c"], key, 1).Allowed, "a reset ends the pushbacks of all nodes that it reaches at once")
		exhausted()
		l.Rate, l.Version = 6, 1
		override, err := w.nodes["c"].Limiter(l)
		require.NoError(t, err)
		require.True(t, allowed(t, override, key, 1).Allowed, "other numbers end a pushback at once")
		require.Equal(t, weir.Forwarded, allowed(t, override, key, 1).Source)
		require.Equal(t, weir.Pushback, allowed(t, override, key, 1).Source)
	})
}

func TestPushbackDeniesAllowAllWithoutHop(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		few := w.limiters(t, weir.Limit{Name: "few", Rate: 2, Per: time.Hour})
		many := w.limiters(t, weir.Limit{Name: "many", Rate: 100, Per: time.Hour})
		a := w.nodes["a"]
		asks := []weir.Ask{{Limiter: few["a"], Key: keyOf(t, few["b"])}, {Limiter: many["a"], Key: keyOf(t, many["c"])}, {Limiter: many["a"], Key: keyOf(t, many["a"])}}
		served := func() uint64 { return w.nodes["b"].Stats().Served + w.nodes["c"].Stats().Served }
		ask := func(asks ...weir.Ask) weir.Decisions {
			t.Helper()
			ds, err := a.AllowAll(t.Context(), asks...)
			require.NoError(t, err)
			time.Sleep(time.Millisecond) // until the refunds arrive at the owners
			return ds
		}
		for range 2 {
			require.True(t, ask(asks...).Allowed())
		}
		time.Sleep(2*timeout - 5*time.Millisecond)
		for range 2 {
			require.Equal(t, weir.Forwarded, ask(asks...)[0].Source, "a take is tentative for the longest time of a check, twice its timeout")
		}
		time.Sleep(4 * timeout) // until the owners count no take as tentative
		ds := ask(asks...)
		require.False(t, ds.Allowed())
		require.Equal(t, weir.Forwarded, ds[0].Source)
		before := served()
		for range 100 {
			ds = ask(asks...)
			require.False(t, ds.Allowed())
			require.Equal(t, weir.Pushback, ds[0].Source)
			require.Equal(t, "few", ds.Strictest().Name)
			require.Equal(t, weir.Decision{Allowed: true, Limit: 100, Name: "many"}, ds[1], "the second limit was not checked, so it allows")
		}
		require.Equal(t, before, served())
		require.EqualValues(t, 100, a.Stats().Decisions[weir.Pushback].Denied)
		for i, left := range []int64{0, 98, 98} {
			require.Equal(t, left, remaining(t, asks[i].Limiter, asks[i].Key))
		}

		shadow := asks[1]
		shadow.Shadow = true
		ds = ask(asks[0], shadow)
		require.False(t, ds.Allowed())
		require.True(t, ds[1].Allowed && ds[1].Shadow)
		require.Equal(t, weir.Forwarded, ds[1].Source, "a shadow is checked at its owner")
		shadow = asks[0]
		shadow.Shadow = true
		require.True(t, ask(shadow, asks[1]).Allowed(), "a denied shadow denies nothing")
		require.EqualValues(t, 2, a.Stats().Shadows.Allowed+a.Stats().Shadows.Denied)
	})
}

// In this test, node a asks for a unit of a key of node b and a unit of a key of node c in one
// call. The link to c is slow, and c denies. Until a has received this denial, b denies the
// checks of node d.
func TestTentativeDenialsAreNotRemembered(t *testing.T) {
	inWorlds(t, 4, weir.Config{Timeout: 100 * time.Millisecond}, func(t *testing.T, w *world) {
		one := w.limiters(t, weir.Limit{Name: "one", Rate: 1, Per: time.Hour})
		key, other := keyOf(t, one["b"]), keyOf(t, one["c"])
		exhaust(t, one["c"], other)
		w.network.SetLink("a", "c", weirtest.Link{Latency: 20 * time.Millisecond})
		done := make(chan weir.Decisions)
		both := func() {
			ds, err := w.nodes["a"].AllowAll(t.Context(), weir.Ask{Limiter: one["a"], Key: key}, weir.Ask{Limiter: one["a"], Key: other})
			assert.NoError(t, err)
			done <- ds
		}
		go both()
		time.Sleep(5 * time.Millisecond)
		for range 3 {
			d := allowed(t, one["d"], key, 1)
			require.False(t, d.Allowed)
			require.Equal(t, weir.Forwarded, d.Source)
		}
		require.False(t, (<-done).Allowed())
		time.Sleep(time.Millisecond)
		require.True(t, allowed(t, one["d"], key, 1).Allowed, "the returned unit is free")
		require.False(t, allowed(t, one["d"], key, 1).Allowed)
		require.Equal(t, weir.Pushback, allowed(t, one["d"], key, 1).Source, "later denials are remembered")

		require.NoError(t, one["a"].Reset(t.Context(), key))
		require.NoError(t, one["a"].Reset(t.Context(), other))
		time.Sleep(time.Second)
		go both()
		time.Sleep(5 * time.Millisecond)
		require.Equal(t, weir.Forwarded, allowed(t, one["d"], key, 1).Source)
		require.Equal(t, weir.Forwarded, allowed(t, one["d"], key, 1).Source)
		require.True(t, (<-done).Allowed())
		time.Sleep(time.Millisecond)
		require.Equal(t, weir.Forwarded, allowed(t, one["d"], key, 1).Source)
		require.Equal(t, weir.Pushback, allowed(t, one["d"], key, 1).Source, "the kept unit is no longer tentative")
	})
}

func TestLateDenialIsRemembered(t *testing.T) {
	inLimitedWorlds(t, 3, weir.Limit{Rate: 5, Per: time.Hour}, func(t *testing.T, w *world, ls limiterMap, key string) {
		exhaust(t, ls["a"], key)
		for _, to := range []string{"b", "c"} {
			w.network.SetLink("a", to, weirtest.Link{Latency: 200 * time.Millisecond})
		}
		begun := time.Now()
		d := allowed(t, ls["b"], key, 1)
		require.NotEqual(t, weir.Forwarded, d.Source, "the owner is too late")
		require.NotEqual(t, weir.Relayed, d.Source)
		time.Sleep(200 * time.Millisecond)
		d = allowed(t, ls["b"], key, 1)
		require.Equal(t, weir.Pushback, d.Source)
		require.LessOrEqual(t, d.RetryAfter, time.Hour-time.Since(begun), "the pushback began when the request was sent")
		time.Sleep(time.Until(begun.Add(time.Second)))
		require.NotEqual(t, weir.Pushback, allowed(t, ls["b"], key, 1).Source, "the pushback lasts a second from then on")
	})
}

func TestDenialOfGlobalLimitIsNotRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := planet(t, 2, weir.Config{})
		awaitRegions()
		l := weir.Limit{Name: "global", Rate: 5, Per: time.Minute, Scope: weir.Global}
		drain(t, c, "eu1", l, "user")
		drain(t, c, "eu2", l, "user")
		for range 3 {
			for _, node := range []string{"eu1", "eu2"} {
				require.NotEqual(t, weir.Pushback, allow(t, c, node, l, "user").Source, "each request counts as demand of the region")
			}
		}
	})
}
