package envoylimit

import (
	"context"
	"math/rand/v2"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/envoy/kuadrant"
	"github.com/weir-go/weir/internal/testnode"
)

const counted = `
domain: d
descriptors:
- key: a
  rate_limit: {unit: hour, requests_per_unit: 10}
- key: b
  rate_limit: {unit: hour, requests_per_unit: 10}
- key: cost
  debit: true
  rate_limit: {unit: hour, requests_per_unit: 10}
- key: used_up
  rate_limit: {unit: hour, requests_per_unit: 1}
- key: owes
  debit: true
  rate_limit: {unit: hour, requests_per_unit: 1}
- key: banned
  rate_limit: {unit: hour, requests_per_unit: 0}
- key: shadow
  shadow_mode: true
  rate_limit: {unit: hour, requests_per_unit: 10}
`

// counts returns the remaining units of each limit.
func (c client) counts(keys ...string) (left []uint32) {
	c.t.Helper()
	for _, key := range keys {
		left = append(left, c.ask(hits(0, key, "")).Statuses[0].LimitRemaining)
	}
	return left
}

// A random request is drawn from all operations that a descriptor can request.
func TestDeniedRandomRequestChangesNoCount(t *testing.T) {
	const text = counted + `
- {key: q, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
- {key: r, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 5}}
- {key: s, rate_limit: {name: s, unit: hour, requests_per_unit: 5}}
- {key: t, rate_limit: {unit: hour, requests_per_unit: 5, replaces: [{name: s}]}}
`
	keys := []string{"a", "b", "cost", "used_up", "owes", "banned", "shadow", "q", "r", "s", "t", "none"}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), text, Options{DebitMany: seed%2 == 1}))
		denied := 0
		for range 60 {
			req := request()
			for range 1 + rng.IntN(5) {
				d := hits(uint64(rng.IntN(4)), keys[rng.IntN(len(keys))], "")
				d.IsNegativeHits = rng.IntN(4) == 0
				if rng.IntN(3) == 0 {
					d.HitsAddend = nil
				}
				req.Descriptors = append(req.Descriptors, d)
			}
			before := c.counts(keys...)
			if c.send(req).OverallCode == over {
				denied++
				require.Equal(t, before, c.counts(keys...), "seed %d: %v", seed, req)
			}
		}
		require.NotZero(t, denied)
	}
}

func TestDebitBeyondLimitDeniesOnlyItsDescriptor(t *testing.T) {
	type ds = []*ratelimit.RateLimitDescriptor
	for _, c := range []struct {
		about string
		ask   ds  // sent when "used_up" and "owes" are used up, and "a", "b", "cost" and "shadow" have 6 of 10 units left
		over  int // index of the descriptor with status OVER_LIMIT
		want  []uint32
	}{
		{"a refund and a debit beyond its limit", ds{refunded(3, "a", ""), hits(7, "cost", "")}, 1, []uint32{9, 6, 0, 0, 0, 6}},
		{"a debit beyond its limit and a refund", ds{hits(7, "cost", ""), refunded(3, "a", "")}, 0, []uint32{9, 6, 0, 0, 0, 6}},
		{"two debits, one of them beyond its limit", ds{hits(5, "cost", ""), hits(1, "owes", "")}, 1, []uint32{6, 6, 1, 0, 0, 6}},
		{"a take and a debit beyond its limit", ds{hits(2, "a", ""), hits(1, "owes", "")}, 1, []uint32{4, 6, 6, 0, 0, 6}},
	} {
		t.Run(c.about, func(t *testing.T) {
			c2 := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), counted, Options{}))
			require.Equal(t, ok, c2.ask(descriptorOf("used_up", ""), hits(1, "owes", "")).OverallCode)
			for _, key := range []string{"a", "b", "cost", "shadow"} {
				require.Equal(t, ok, c2.ask(hits(4, key, "")).OverallCode)
			}
			r := c2.ask(c.ask...)
			require.Equal(t, ok, r.OverallCode, "a debit is a cost that has arisen already")
			for i, s := range r.Statuses {
				require.Equal(t, i == c.over, s.Code == over, i)
			}
			require.Equal(t, c.want, c2.counts("a", "b", "cost", "used_up", "owes", "shadow"))
		})
	}
}

// leaver is a context that is canceled after looks calls of Err.
type leaver struct {
	context.Context
	looks int
}

func (l *leaver) Err() error {
	if l.looks--; l.looks < 0 {
		return context.Canceled
	}
	return nil
}

func TestCanceledRequestSpendsAllOrNothing(t *testing.T) {
	s := serviceOf(t, testnode.Start(t, weir.Config{}), counted, Options{})
	c := clientOf(t, s)
	require.Equal(t, ok, c.ask(hits(9, "b", "")).OverallCode)
	done := 0
	for looks := range 8 {
		before := c.counts("a", "b", "cost")
		_, err := s.ShouldRateLimit(&leaver{t.Context(), looks}, request(descriptorOf("a", ""), refunded(1, "b", ""), hits(1, "cost", "")))
		if after := c.counts("a", "b", "cost"); err != nil {
			require.Equal(t, before, after, "after %d looks", looks)
		} else {
			require.Equal(t, []uint32{before[0] - 1, before[1] + 1, before[2] - 1}, after, "after %d looks", looks)
			done++
		}
	}
	require.True(t, done > 0 && done < 8, "%d", done)
}

func TestBlockedClientIsOverLimit(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, "deny: [{ip: 192.0.2.0/24, user: mallory}, {api_key: k, until: 2999-01-01T00:00:00Z}]\nrules: []")
	c := clientOf(t, serviceOf(t, node, "domain: d\ndescriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 2}}]", Options{Book: book}))
	for range 5 {
		r := c.ask(descriptorOf("remote_address", "198.51.100.1"), descriptorOf("path", "/", "remote_address", "192.0.2.9"))
		require.Equal(t, over, r.OverallCode)
		require.Equal(t, []any{ok, over}, []any{r.Statuses[0].Code, r.Statuses[1].Code})
		require.Equal(t, over, c.ask(descriptorOf("user", "mallory")).OverallCode)
		r = c.ask(descriptorOf("api_key", "k"))
		require.Equal(t, over, r.OverallCode)
		require.Positive(t, r.Statuses[0].DurationUntilReset.AsDuration())
	}
	require.Equal(t, ok, c.ask(descriptorOf("remote_address", "198.51.100.1"), descriptorOf("user", "ada")).OverallCode)
	require.EqualValues(t, 5, book.Stats().Blocked["ip"])
	k := &kuadrantServer{of: c.s}
	for user, want := range map[string]rls.RateLimitResponse_Code{"mallory": over, "ada": ok} {
		r, err := k.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{descriptorOf("user", user)}, Amount: 1})
		require.NoError(t, err)
		require.Equal(t, want, r.Code)
	}
}
