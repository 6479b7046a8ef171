package envoylimit

import (
	"log/slog"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

func TestStarMatchesAtAnyPosition(t *testing.T) {
	for _, c := range []struct {
		pattern     string
		fits, other []string
	}{
		{"files/*", []string{"files/", "files/a", "files/a/b", "files/*"}, []string{"files", "file/a", ""}},
		{"*.internal", []string{".internal", "a.internal", "a.b.internal"}, []string{"a.internal.", "internal", ""}},
		{"/v1/*/orders", []string{"/v1//orders", "/v1/7/orders", "/v1/a/b/orders"}, []string{"/v1/orders", "/v1/7/orders/", "/v2/7/orders"}},
		{"/v1/*/orders/*/lines", []string{"/v1/7/orders/8/lines", "/v1//orders//lines", "/v1/orders/orders/orders/lines"}, []string{"/v1/7/orders/lines", "/v1/7/8/lines"}},
		{"*bot*", []string{"bot", "a bot", "bots", "robots.txt"}, []string{"bo t", ""}},
		{"ab*ba", []string{"abba", "ab ba", "abbaba"}, []string{"aba", "ab", "abbab"}},
		{"a*b*a", []string{"aba", "abba", "a-b-a"}, []string{"aa", "ab", "ba"}},
		{"a*bc*bd", []string{"abcbd", "a-bc-bd", "abcbcbd"}, []string{"abd", "abcd", "abc"}},
		{"*", []string{"", "a", "*"}, nil},
		{"a**b", []string{"ab", "a-b"}, []string{"a", "b"}},
		{`a\*`, []string{`a\`, `a\b`}, []string{"a*", "a"}},
	} {
		t.Run(c.pattern, func(t *testing.T) {
			file := parsed(t, "domain: d\ndescriptors:\n- {key: k, value: '"+c.pattern+"', rate_limit: {unit: day, requests_per_unit: 1}}")
			xds, err := configOf(version(t, "1", &rlsconf.RateLimitConfig{Domain: "d", Descriptors: []*rlsconf.RateLimitDescriptor{
				{Key: "k", Value: c.pattern, RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_DAY, RequestsPerUnit: 1}},
			}}), false)
			require.NoError(t, err)
			for _, cfg := range []*Config{file, xds} {
				for _, value := range c.fits {
					require.Len(t, findDescriptors(t, cfg.domains["d"], "k", value), 1, "%q", value)
				}
				for _, value := range c.other {
					require.Empty(t, findDescriptors(t, cfg.domains["d"], "k", value), "%q", value)
				}
			}
		})
	}
}

func TestValuesOfPatternCanShareCount(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), `
domain: d
descriptors:
- {key: host, value: "*.shop", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}
- {key: path, value: "/v1/*/orders", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}
- {key: path, value: "/v2/*/orders", rate_limit: {unit: hour, requests_per_unit: 1}}
`, Options{}))
	for _, step := range []struct {
		key, value string
		want       rls.RateLimitResponse_Code
	}{
		{"host", "a.shop", ok}, {"host", "b.shop", ok}, {"host", "c.shop", over},
		{"path", "/v1/a/orders", ok}, {"path", "/v1/b/orders", ok}, {"path", "/v1/c/orders", over},
		{"path", "/v2/a/orders", ok}, {"path", "/v2/b/orders", ok}, {"path", "/v2/b/orders", over}, // each value has its own count
	} {
		require.Equal(t, step.want, c.ask(descriptorOf(step.key, step.value)).OverallCode, step.value)
	}
}

// Each request compares a long value with many patterns.
func TestPatternSearchCountsAsWork(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), strings.ReplaceAll(ofPatterns(4000), "'a", "'*a"), Options{Logger: slog.New(slog.DiscardHandler)}))
	long := descriptorOf("path", strings.Repeat("a", 60<<10))
	require.Equal(t, ok, c.ask(long).OverallCode)
	require.Equal(t, over, c.ask(long, long).OverallCode)
}
