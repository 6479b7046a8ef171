package weir

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
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
	require.EqualValues(t, 5, s.Shadows.Allowed+s.Shadows.Denied)
}

func TestNamesBeyondThoseThatANodeCountsApartAreCountedTogether(t *testing.T) {
	var m limitMeters
	one := &wire.Result{Source: wire.Owner}
	for i := range maxMetered + 10 {
		m.of(strconv.Itoa(i)).decided(bucket.ID{Hi: uint64(i)}, one, false)
	}
	require.Same(t, m.of("0"), m.of("0"))
	require.NotSame(t, m.of("0"), m.of("1"))
	require.Same(t, m.of("one more"), m.of("another"))

	var s Stats
	m.decisions(&s)
	require.Len(t, s.Limits, maxMetered+1)
	require.Equal(t, Outcomes{Denied: 10}, s.Limits["(other)"][Owner])
	require.Equal(t, Outcomes{Denied: maxMetered + 10}, s.Decisions[Owner])
}

func TestALimitNamedAsTheOthersLosesNoDecision(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits []string // each denies once
		want   map[string]Outcomes
	}{
		{"by itself", []string{"(other)"}, map[string]Outcomes{"(other)": {Denied: 1}}},
		{"before the bound", append([]string{"(other)"}, numbers(maxMetered+2)...), map[string]Outcomes{"0": {Denied: 1}, "4095": {Denied: 1}, "(other)": {Denied: 3}}},
		{"beyond the bound", append(numbers(maxMetered+2), "(other)"), map[string]Outcomes{"0": {Denied: 1}, "4095": {Denied: 1}, "(other)": {Denied: 3}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m limitMeters
			for _, name := range c.limits {
				m.of(name).decided(bucket.ID{}, &wire.Result{Source: wire.Owner}, false)
			}
			var s Stats
			m.decisions(&s)
			for name, want := range c.want {
				require.Equal(t, want, s.Limits[name][Owner], name)
			}
			require.EqualValues(t, len(c.limits), s.Decisions[Owner].Denied)
		})
	}
}

// numbers are so many names.
func numbers(n int) (names []string) {
	for i := range n {
		names = append(names, strconv.Itoa(i))
	}
	return names
}

func TestStatsHaveTheCountsThatMayBeHeld(t *testing.T) {
	for _, c := range []struct{ config, want int }{{0, 5_000_000}, {1, 1}, {70_000, 70_000}} {
		require.Equal(t, c.want, solo(t, Config{MaxKeys: c.config}).Stats().MaxKeys)
	}
}

func TestWhatIsCountedAtOnceIsCountedOnce(t *testing.T) {
	var m limitMeters
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			for i := range 1000 {
				m.of(fmt.Sprint(i%3)).decided(bucket.ID{Hi: uint64(g * i)}, &wire.Result{Source: wire.Forwarded}, i%2 == 0)
				if i%100 == 0 {
					var s Stats
					m.decisions(&s)
				}
			}
		})
	}
	wait.Wait()
	var s Stats
	m.decisions(&s)
	require.Equal(t, Outcomes{Denied: 2000}, s.Decisions[Forwarded])
	require.Equal(t, Outcomes{Denied: 2000}, s.Shadows)
}

func TestTheWeightsOfMeasuredDecisionsSumToAllOfThem(t *testing.T) {
	sum, last := uint64(0), uint64(0)
	residues := make(map[uint64]map[uint64]uint64)
	for n := uint64(1); n <= 1<<20; n++ {
		weight := weightOf(n)
		sum += weight
		if max(n, sum)-min(n, sum) > 192 { // a require would cost more than what it checks, a million times
			t.Fatalf("the weights of %d decisions sum to %d", n, sum)
		}
		if weight == 0 {
			continue
		}
		if n > measuredOf {
			require.EqualValues(t, measuredOf, weight)
			require.LessOrEqual(t, n-last, uint64(89))
		} else {
			require.EqualValues(t, 1, weight)
		}
		last = n
		for _, period := range []uint64{2, 3, 8, 64} {
			if residues[period] == nil {
				residues[period] = make(map[uint64]uint64)
			}
			residues[period][n%period] += weight
		}
	}
	for period, of := range residues {
		require.Len(t, of, int(period))
		for residue, weight := range of {
			require.InEpsilon(t, float64(sum)/float64(period), float64(weight), 0.05, "of those that are %d modulo %d", residue, period)
		}
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

func TestABucketHasWhatTookNoLongerThanItsBound(t *testing.T) {
	var h histogram
	for _, bound := range LatencyBounds() {
		h.add(bound, 1)
		h.add(bound+1, 64)
	}
	l := h.read()
	require.EqualValues(t, 65*len(latencyBounds), l.Count)
	for i, got := range l.Buckets {
		require.EqualValues(t, 65*i+1, got)
	}
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
			a, r, i := wire.Ask{Began: n.steady()}, wire.Result{Source: wire.Owner}, 0
			r.Allowed = true
			b.ReportAllocs()
			for b.Loop() {
				a.ID = ids[i]
				if weight := l.meter.decided(a.ID, &r, false); weight > 0 {
					n.sampled(l, key, &a, &r, true, weight)
				}
				if i++; i == keys {
					i = 0
				}
			}
		})
	}
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
