package weir

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

func TestDecisionsAreCountedByLimitAndSumToTheNodes(t *testing.T) {
	n := solo(t, Config{})
	a, b := limiter(t, n, Limit{Name: "a", Rate: 3, Per: time.Hour}), limiter(t, n, Limit{Name: "b", Rate: 2, Per: time.Hour})
	again := limiter(t, n, Limit{Name: "a", Rate: 3, Per: time.Hour})
	for range 5 {
		_, err := a.Allow(t.Context(), "key")
		require.NoError(t, err)
		_, err = n.AllowAll(t.Context(), Ask{Limiter: b, Key: "key"}, Ask{Limiter: b, Key: "shadow", Shadow: true})
		require.NoError(t, err)
	}
	_, err := again.Allow(t.Context(), "another")
	require.NoError(t, err)
	limiter(t, n, Limit{Name: "never asked", Rate: 1, Per: time.Hour})

	s := n.Stats()
	require.Equal(t, map[string]map[Source]Outcomes{
		"a": {Owner: {Allowed: 4, Denied: 2}},
		"b": {Owner: {Allowed: 2, Denied: 3}},
	}, s.Limits)
	require.Equal(t, map[Source]Outcomes{Owner: {Allowed: 6, Denied: 5}}, s.Decisions)
	require.Equal(t, Outcomes{Allowed: 2, Denied: 3}, s.Shadows)
	require.Equal(t, map[string]Outcomes{"b": {Allowed: 2, Denied: 3}}, s.ShadowLimits)
}

func TestStatsHaveTheCountsThatMayBeHeld(t *testing.T) {
	for _, c := range []struct{ config, want int }{{0, 5_000_000}, {1, 1}, {70_000, 70_000}} {
		require.Equal(t, c.want, solo(t, Config{MaxKeys: c.config}).Stats().MaxKeys)
	}
}

func TestLatencyIsOfAllDecisionsBySource(t *testing.T) {
	scripted(t, func(t *testing.T, p *pair, n *Node) {
		l := limiter(t, n, Limit{Name: "limit", Rate: 1e9, Per: time.Hour})
		for _, key := range []string{ownedBy(t, l, n), keyOf(t, l, "b")} {
			for range 10_000 {
				_, err := l.Allow(t.Context(), key)
				require.NoError(t, err)
			}
		}
		s := n.Stats()
		require.Len(t, s.Latency, 2)
		for source, took := range map[Source]time.Duration{Owner: 0, Budget: time.Millisecond} {
			of := s.Latency[source]
			require.InDelta(t, 10_000, of.Count, 192)
			require.Len(t, of.Buckets, len(LatencyBounds()))
			require.True(t, slices.IsSorted(of.Buckets))
			require.Equal(t, of.Count, of.Buckets[len(of.Buckets)-1], "no check took a second")
			require.Equal(t, time.Duration(of.Count)*took, of.Sum)
		}
	})
}

// BenchmarkMetrics is what an owned check pays for being counted, measured and looked
// for among the top keys, and for nothing else.
func BenchmarkMetrics(b *testing.B) {
	for _, keys := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			n, err := Start(b.Context(), Config{Logger: quiet})
			require.NoError(b, err)
			defer n.Close()
			l, err := n.Limiter(Limit{Name: "limit", Rate: 1, Per: time.Hour})
			require.NoError(b, err)
			const key = "a key that has thirty bytes .."
			ids := make([]bucket.ID, keys)
			for i := range ids {
				ids[i] = l.id(fmt.Sprint(key, i))
			}
			a, r, i := wire.Ask{Began: n.env.Steady()}, wire.Result{Source: wire.Owner}, 0
			r.Allowed = true
			b.ReportAllocs()
			for b.Loop() {
				a.ID = ids[i]
				if weight := l.meter.Decided(a.ID, &r, false); weight > 0 {
					l.measure(key, &a, &r, weight)
				}
				if i++; i == keys {
					i = 0
				}
			}
		})
	}
}

func TestPeekIsNoDecisionOfStats(t *testing.T) {
	n, err := Start(t.Context(), Config{})
	require.NoError(t, err)
	defer n.Close()
	window, err := n.Limiter(Limit{Name: "window", Algorithm: FixedWindow, Rate: 1, Per: time.Hour})
	require.NoError(t, err)
	inFlight, err := n.Limiter(Limit{Name: "in flight", Algorithm: InFlight, Rate: 1})
	require.NoError(t, err)
	_, err = window.Allow(t.Context(), "k")
	require.NoError(t, err)
	for range 10 {
		for _, l := range []*Limiter{window, inFlight, window.Shadow()} {
			_, err := l.Peek(t.Context(), "k")
			require.NoError(t, err)
		}
	}
	s := n.Stats()
	require.Equal(t, map[Source]Outcomes{Owner: {Allowed: 1}}, s.Decisions)
	require.Equal(t, map[string]map[Source]Outcomes{"window": {Owner: {Allowed: 1}}}, s.Limits)
	require.EqualValues(t, 1, s.Latency[Owner].Count)
	require.Zero(t, s.Shadows)
}

func TestChecksOfCallersThatWentAwayAreCounted(t *testing.T) {
	n, err := Start(t.Context(), Config{})
	require.NoError(t, err)
	defer n.Close()
	l, err := n.Limiter(Limit{Name: "l", Algorithm: LeakyBucket, Rate: 1, Per: time.Hour, Burst: 3})
	require.NoError(t, err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	past, end := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer end()
	for i, check := range []func(ctx context.Context) error{
		func(ctx context.Context) error { _, err := l.Allow(ctx, "k"); return err },
		func(ctx context.Context) error { _, err := l.Peek(ctx, "k"); return err },
		func(ctx context.Context) error { return l.Wait(ctx, "k", 1) },
		func(ctx context.Context) error { _, err := n.AllowAll(ctx, Ask{Limiter: l, Key: "k"}); return err },
	} {
		_ = check(past)
		require.EqualValues(t, i, n.Stats().Canceled, "a deadline is none")
		require.ErrorIs(t, check(gone), context.Canceled)
		require.EqualValues(t, i+1, n.Stats().Canceled)
	}
}
