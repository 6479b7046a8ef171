package weir

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/stats"
)

func TestLimitDecisionsSumToNodeDecisions(t *testing.T) {
	n := solo(t, Config{})
	a, b := limiter(t, n, Limit{Name: "a", Rate: 3, Per: time.Hour}), limiter(t, n, Limit{Name: "b", Rate: 2, Per: time.Hour})
	again := limiter(t, n, Limit{Name: "a", Rate: 3, Per: time.Hour})
	for range 5 {
		ask(t, a, "key", 1)
		_, err := n.AllowAll(t.Context(), Ask{Limiter: b, Key: "key"}, Ask{Limiter: b, Key: "shadow", Shadow: true})
		require.NoError(t, err)
	}
	ask(t, again, "another", 1)
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

func TestStatsHaveMaxKeys(t *testing.T) {
	for _, c := range []struct{ config, want int }{{0, 5_000_000}, {1, 1}, {70_000, 70_000}} {
		require.Equal(t, c.want, solo(t, Config{MaxKeys: c.config}).Stats().MaxKeys)
	}
}

func TestLatencyCoversDecisionsBySource(t *testing.T) {
	scripted(t, func(t *testing.T, p *pair, n *Node) {
		l := limiter(t, n, Limit{Name: "limit", Rate: 1e9, Per: time.Hour})
		for _, key := range []string{findOwnedKey(t, l, n), findKey(t, l, "b")} {
			ask(t, l, key, 10_000)
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

func TestStatsIgnorePeeks(t *testing.T) {
	n := solo(t, Config{})
	window := limiter(t, n, Limit{Name: "window", Algorithm: FixedWindow, Rate: 1, Per: time.Hour})
	inFlight := limiter(t, n, Limit{Name: "in flight", Algorithm: InFlight, Rate: 1})
	ask(t, window, "k", 1)
	for range 10 {
		for _, l := range []*Limiter{window, inFlight, window.Shadow()} {
			remaining(t, l, "k")
		}
	}
	s := n.Stats()
	require.Equal(t, map[Source]Outcomes{Owner: {Allowed: 1}}, s.Decisions)
	require.Equal(t, map[string]map[Source]Outcomes{"window": {Owner: {Allowed: 1}}}, s.Limits)
	require.EqualValues(t, 1, s.Latency[Owner].Count)
	require.Zero(t, s.Shadows)
}

func TestCanceledChecksAreCounted(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Name: "l", Algorithm: LeakyBucket, Rate: 1, Per: time.Hour, Burst: 3})
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
		require.EqualValues(t, i, n.Stats().Canceled, "a check whose deadline has passed is not canceled")
		require.ErrorIs(t, check(gone), context.Canceled)
		require.EqualValues(t, i+1, n.Stats().Canceled)
	}
}

func TestTopKeysAreMostRequestedAndDenied(t *testing.T) {
	n := solo(t, Config{})
	free, tight := limiter(t, n, Limit{Name: "free", Rate: 1e6, Per: time.Hour}), limiter(t, n, Limit{Name: "tight", Rate: 5, Per: time.Hour})
	for i := range 30 {
		ask(t, free, fmt.Sprint("user ", i), 30-i)
	}
	for range 12 {
		ask(t, tight, "greedy", 1)
		remaining(t, tight, "looked at")
	}
	top, err := n.TopKeys(t.Context(), 3)
	require.NoError(t, err)
	require.Len(t, top.Asked, 3)
	for i, k := range top.Asked {
		key := fmt.Sprint("user ", i)
		require.Equal(t, TopKey{Limit: "free", ID: free.ID(key), Key: key, Known: true, Asks: uint64(30 - i)}, k)
	}
	require.Equal(t, []TopKey{{Limit: "tight", ID: tight.ID("greedy"), Key: "greedy", Known: true, Asks: 12, Denials: 7}}, top.Denied)
	require.Empty(t, top.Missing)
}

func TestTopKeysHaveHeldUnits(t *testing.T) {
	const secret = "sk_live_0123456789abcdef"
	n := solo(t, Config{})
	few := limiter(t, n, Limit{Name: "few", Algorithm: InFlight, Rate: 3, Varies: true})
	many := limiter(t, n, Limit{Name: "few", Algorithm: InFlight, Rate: 10, Varies: true}) // for a key with its own numbers
	keyed := limiter(t, n, Limit{Name: "keyed", Algorithm: InFlight, Rate: 4, SecretKeys: true})
	hold := func(l *Limiter, key string, units int64) *Hold {
		h, err := l.Hold(t.Context(), key, units)
		require.NoError(t, err)
		return h
	}
	hold(few, "alice", 1)
	hold(few, "alice", 3) // denied
	hold(many, "vip", 5)
	hold(keyed, secret, 2)
	gone := hold(few, "gone", 3)
	ask(t, limiter(t, n, Limit{Name: "spent", Rate: 9, Per: time.Hour}), "alice", 1)
	gone.Release()

	before := n.Stats().Decisions
	top, err := n.TopKeys(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, []HeldKey{
		{TopKey{Limit: "few", ID: few.ID("vip"), Key: "vip", Known: true, Asks: 1}, 5, 10},
		{TopKey{Limit: "keyed", ID: keyed.ID(secret), Key: "…cdef", Known: true, Masked: true, Asks: 1}, 2, 4},
		{TopKey{Limit: "few", ID: few.ID("alice"), Key: "alice", Known: true, Asks: 2, Denials: 1}, 1, 3},
	}, top.Held)
	require.Equal(t, before, n.Stats().Decisions, "TopKeys does not count as a decision")
	top, err = n.TopKeys(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, top.Held, 1)
}

func TestDisabledTopKeysAreNeitherKeptNorSent(t *testing.T) {
	n := solo(t, Config{TopKeys: -1})
	l := limiter(t, n, Limit{Name: "limit", Rate: 1, Per: time.Hour})
	ask(t, l, "secret", 3)
	top, err := n.TopKeys(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, TopKeys{Silent: []string{n.Members()[0].Name}}, top)
	require.Equal(t, []byte{0}, n.clients.survey.AppendTop(nil))
}

func TestTopKeysRefusesInvalidNumbers(t *testing.T) {
	n := solo(t, Config{})
	for _, most := range []int{-1, 0, stats.MaxTop + 1} {
		_, err := n.TopKeys(t.Context(), most)
		require.ErrorIs(t, err, ErrInvalid)
	}
	require.NoError(t, n.Close())
	_, err := n.TopKeys(t.Context(), 1)
	require.ErrorIs(t, err, ErrClosed)
}

func TestKeyTextRequiresAuthenticatedMembers(t *testing.T) {
	require.False(t, (&Config{Bind: "127.0.0.1:0"}).sharesKeys())
	require.False(t, (&Config{Bind: ":1"}).sharesKeys())
	require.True(t, (&Config{Bind: ":1", Secrets: [][]byte{make([]byte, 16)}}).sharesKeys())
}

func TestTopKeysMasksSecretKeys(t *testing.T) {
	const secret = "sk_live_0123456789abcdef"
	for _, c := range []struct {
		name   string
		limit  Limit
		want   string
		masked bool
	}{
		{"a secret", Limit{SecretKeys: true}, "…cdef", true},
		{"a secret of all regions", Limit{SecretKeys: true, Scope: Global}, "…cdef", true},
		{"no secret", Limit{}, secret, false},
		{"no secret of all regions", Limit{Scope: Global}, secret, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := solo(t, Config{})
			c.limit.Name, c.limit.Rate, c.limit.Per = "limit", 1, time.Hour
			l := limiter(t, n, c.limit)
			ask(t, l, secret, 2)
			top, err := n.TopKeys(t.Context(), 1)
			require.NoError(t, err)
			want := TopKey{Limit: "limit", ID: l.ID(secret), Key: c.want, Known: true, Masked: c.masked, Asks: 2, Denials: 1}
			require.Equal(t, TopKeys{Asked: []TopKey{want}, Denied: []TopKey{want}}, top)
			kept := n.meters.TopKeys.Top(n.env.Monotonic())
			require.Equal(t, !c.masked, strings.Contains(string(kept.Append(nil, true)), secret), "other members get the masked text only")
		})
	}
}
