package envoylimit

import (
	"context"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/weirtest"
)

const quotas = `
domain: d
descriptors:
- {key: one, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: two, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2, name: two}}
- {key: three, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
- {key: none, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
- {key: free, quota_mode: true, rate_limit: {unlimited: true}}
- {key: all, rate_limit: {unit: hour, requests_per_unit: 100}}
- {key: few, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: instead, rate_limit: {unit: hour, requests_per_unit: 100, replaces: [{name: two}]}}
- {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 100}}
- {key: cost, quota_mode: true, debit: true, rate_limit: {unit: hour, requests_per_unit: 100}}
`

func TestRequestIsDeniedAfterLastQuota(t *testing.T) {
	type ds = []*ratelimit.RateLimitDescriptor
	for _, c := range []struct {
		about string
		o     Options
		ask   ds
		ok    int // number of OK responses, of 5
	}{
		{"one quota", Options{}, ds{descriptorOf("one", "")}, 1},
		{"two quotas", Options{}, ds{descriptorOf("one", ""), descriptorOf("two", "")}, 2},
		{"three quotas", Options{}, ds{descriptorOf("three", ""), descriptorOf("one", ""), descriptorOf("two", "")}, 3},
		{"a quota of nothing and one", Options{}, ds{descriptorOf("none", ""), descriptorOf("two", "")}, 2},
		{"a quota of nothing", Options{}, ds{descriptorOf("none", "")}, 0},
		{"a quota that is asked for too much, and one", Options{}, ds{hits(2, "one", ""), descriptorOf("two", "")}, 2},
		{"looks, beside what is taken", Options{}, ds{hits(0, "two", ""), descriptorOf("one", "")}, 5},
		{"a quota and a limit", Options{}, ds{descriptorOf("two", ""), descriptorOf("all", "")}, 2},
		{"a quota and a limit that is used up", Options{}, ds{descriptorOf("two", ""), descriptorOf("few", "")}, 1},
		{"a quota and a shadow", Options{}, ds{descriptorOf("two", ""), descriptorOf("shadow", "")}, 2},
		{"a quota and one without a limit", Options{}, ds{descriptorOf("two", ""), descriptorOf("free", "")}, 2},
		{"a quota that is replaced", Options{}, ds{descriptorOf("two", ""), descriptorOf("instead", "")}, 5},
		{"a quota that is given back to, which has no say", Options{}, ds{descriptorOf("one", ""), refunded(1, "two", "")}, 1},
		{"a quota that is debited, which has no say", Options{}, ds{hits(1, "cost", ""), descriptorOf("one", "")}, 1},
		{"a cost alone", Options{}, ds{hits(300, "cost", "")}, 5},
		{"the same quota twice", Options{}, ds{descriptorOf("three", ""), descriptorOf("three", "")}, 1},
		{"everything in shadow mode", Options{ShadowMode: true}, ds{descriptorOf("one", ""), descriptorOf("two", "")}, 5},
	} {
		t.Run(c.about, func(t *testing.T) {
			c2 := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), quotas, c.o))
			done := 0
			for range 5 {
				if r := c2.ask(c.ask...); r.OverallCode == ok {
					done++
				}
			}
			require.Equal(t, c.ok, done)
		})
	}
}

func TestUsedUpQuotaIsReportedAndSpendsNothing(t *testing.T) {
	var told []Decided
	s := serviceOf(t, testnode.Start(t, weir.Config{}), quotas, Options{Metadata: true, Headers: Headers{Remaining: "left"}, OnDecision: func(_ context.Context, d *Decided) { told = append(told, *d) }})
	c := clientOf(t, s)
	ask := func() *rls.RateLimitResponse {
		told = nil
		return c.ask(descriptorOf("one", ""), descriptorOf("two", ""), descriptorOf("all", ""))
	}
	r := ask()
	require.Equal(t, ok, r.OverallCode)
	require.NotContains(t, r.DynamicMetadata.AsMap(), "quotaModeViolations")
	r = ask()
	require.Equal(t, ok, r.OverallCode)
	require.Equal(t, over, r.Statuses[0].Code, "as envoyproxy/ratelimit tells it")
	require.Equal(t, ok, r.Statuses[1].Code)
	require.Equal(t, []any{0.0}, r.DynamicMetadata.AsMap()["quotaModeViolations"])
	require.True(t, told[0].Over)
	require.False(t, told[0].Enforced)
	require.Equal(t, "98", r.ResponseHeadersToAdd[0].Value)
	for range 3 {
		r = ask()
		require.Equal(t, over, r.OverallCode)
		require.Equal(t, over, r.Statuses[0].Code)
		require.Equal(t, over, r.Statuses[1].Code)
		require.EqualValues(t, 98, r.Statuses[2].LimitRemaining)
		require.Equal(t, []any{0.0, 1.0}, r.DynamicMetadata.AsMap()["quotaModeViolations"])
		require.True(t, told[0].Enforced && told[1].Enforced && told[2].Enforced)
		require.Equal(t, "0", r.ResponseHeadersToAdd[0].Value)
	}
}

// The counts of the quotas of different users may have different owners.
func TestNodesShareQuota(t *testing.T) {
	runCluster(t, quotas, func(t *testing.T, _ *weirtest.Cluster, all []client) {
		for _, user := range []string{"u", "v", "w", "x", "y"} {
			admitted := 0
			for range 3 {
				for _, c := range all {
					if c.ask(descriptorOf("one", user), descriptorOf("three", user), descriptorOf("two", user), descriptorOf("all", "")).OverallCode == ok {
						admitted++
					}
				}
			}
			require.Equal(t, 3, admitted, user)
		}
		require.LessOrEqual(t, all[0].ask(hits(0, "all", "")).Statuses[0].LimitRemaining, uint32(85))
	})
}
