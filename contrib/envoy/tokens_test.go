package envoylimit

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weir-go/weir/internal/snippets"
	"github.com/weir-go/weir/weirtest"
)

// readProto reads a part of a YAML document into a message of Envoy. Unknown fields are
// refused, as by Envoy.
func readProto(t *testing.T, at string, fields map[string]any, into proto.Message) {
	t.Helper()
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	require.NoError(t, protojson.Unmarshal(text, into), at)
}

// documented returns the limits of the README, and requires that the filter of Envoy there
// sends a peek before the request, and the tokens at the end of the stream.
func documented(t *testing.T) (limits string) {
	all, err := snippets.All()
	require.NoError(t, err)
	var f filter.RateLimit
	for _, s := range all {
		switch {
		case s.Language == "yaml" && s.Key() == "rate_limits":
			var fields map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(s.Text), &fields), s.Position())
			readProto(t, s.Position(), fields, &f)
		case s.Language == "yaml" && s.Key() == "domain" && strings.HasPrefix(s.Text, "domain: model_gateway"):
			limits = s.Text
		}
	}
	require.NotEmpty(t, limits)
	require.Len(t, f.GetRateLimits(), 2)
	for i, limit := range f.GetRateLimits() {
		require.NoError(t, limit.ValidateAll())
		require.Len(t, limit.GetActions(), 1)
		header := limit.GetActions()[0].GetRequestHeaders()
		require.Equal(t, "x-api-key api_key", header.GetHeaderName()+" "+header.GetDescriptorKey())
		require.Equal(t, i == 1, limit.GetApplyOnStreamDone())
		require.Equal(t, i == 1, strings.HasPrefix(limit.GetHitsAddend().GetFormat(), "%DYNAMIC_METADATA("))
		require.Equal(t, i == 0, limit.GetHitsAddend().GetNumber() != nil)
		require.Zero(t, limit.GetHitsAddend().GetNumber().GetValue())
	}
	return limits
}

func TestReportedTokensDenyLaterRequests(t *testing.T) {
	runCluster(t, documented(t), func(t *testing.T, _ *weirtest.Cluster, all []client) {
		stream := func(c client, key string, tokens int) (*rls.RateLimitResponse, error) {
			return c.s.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
				Domain: "model_gateway", Descriptors: []*ratelimit.RateLimitDescriptor{hits(uint64(tokens), "api_key", key)},
			})
		}
		send := func(c client, key string, tokens int, want rls.RateLimitResponse_Code) *rls.RateLimitResponse_DescriptorStatus {
			t.Helper()
			r, err := stream(c, key, tokens)
			require.NoError(t, err)
			require.Equal(t, want, r.OverallCode)
			return r.Statuses[0]
		}
		limit := int(send(all[0], "large", 0, ok).CurrentLimit.RequestsPerUnit)
		send(all[1], "large", 0, ok)
		send(all[2], "large", limit-1, ok)
		send(all[1], "large", 0, ok) // one token is left
		require.Equal(t, over, send(all[0], "large", 100, ok).Code, "a debit is not denied")
		for _, c := range all {
			send(c, "large", 0, over)
			send(c, "another", 0, ok)
		}

		// Each of the concurrent streams spends its reported tokens.
		const streams = 64
		tokens, sum := func(i int) int { return limit/streams/2 + i }, 0
		var wg sync.WaitGroup
		for i := range streams {
			sum += tokens(i)
			wg.Go(func() {
				for _, tokens := range []int{0, tokens(i)} {
					r, err := stream(all[i%3], "concurrent", tokens)
					if err != nil || r.OverallCode != ok {
						t.Error(i, err, r)
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(3 * time.Second)
		for _, c := range all {
			require.EqualValues(t, limit-sum, send(c, "concurrent", 0, ok).LimitRemaining)
		}
	})
}
