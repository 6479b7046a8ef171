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
	"google.golang.org/protobuf/types/known/wrapperspb"

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

// stream simulates Envoy with an API key. A stream makes the requests that Envoy sends
// for the documented limits, before the request to the upstream and at the end of the
// stream.
type stream struct {
	t   *testing.T
	f   *filter.RateLimit
	key string
}

// request returns nil if no descriptor is due. Negative tokens mean that the metadata is
// missing.
func (s stream) request(done bool, tokens int) *rls.RateLimitRequest {
	req := &rls.RateLimitRequest{Domain: s.f.GetDomain()}
	for _, limit := range s.f.GetRateLimits() {
		if limit.GetApplyOnStreamDone() != done {
			continue
		}
		d := new(ratelimit.RateLimitDescriptor)
		for _, a := range limit.GetActions() {
			require.Equal(s.t, "x-api-key", a.GetRequestHeaders().GetHeaderName())
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: a.GetRequestHeaders().GetDescriptorKey(), Value: s.key})
		}
		switch hits := limit.GetHitsAddend(); {
		case hits.GetFormat() == "":
			d.HitsAddend = hits.GetNumber()
		case tokens < 0:
			continue // Envoy ignores a descriptor with unreadable hits
		default:
			require.True(s.t, strings.HasPrefix(hits.GetFormat(), "%DYNAMIC_METADATA("), hits.GetFormat())
			d.HitsAddend = wrapperspb.UInt64(uint64(tokens))
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	if len(req.Descriptors) == 0 {
		return nil
	}
	return req
}

// documented returns the limits and Envoy's filter of the README.
func documented(t *testing.T) (limits string, f *filter.RateLimit) {
	all, err := snippets.All()
	require.NoError(t, err)
	for _, s := range all {
		switch {
		case s.Language == "yaml" && s.Key() == "rate_limits":
			var fields map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(s.Text), &fields), s.Position())
			f = new(filter.RateLimit)
			readProto(t, s.Position(), fields, f)
			for _, limit := range f.GetRateLimits() {
				require.NoError(t, limit.ValidateAll(), s.Position())
			}
		case s.Language == "yaml" && s.Key() == "domain" && strings.HasPrefix(s.Text, "domain: model_gateway"):
			limits = s.Text
		}
	}
	require.NotEmpty(t, limits)
	require.NotNil(t, f)
	f.Domain = "model_gateway"
	return limits, f
}

func TestTokensOfResponsesLimitLaterRequests(t *testing.T) {
	limits, f := documented(t)
	runCluster(t, limits, func(t *testing.T, _ *weirtest.Cluster, all []client) {
		r := all[0].send(stream{t, f, "nobody"}.request(false, 0))
		require.Equal(t, ok, r.OverallCode)
		limit := int(r.Statuses[0].CurrentLimit.RequestsPerUnit)

		// A debit is not denied.
		s := stream{t, f, "large"}
		require.Equal(t, ok, all[0].send(s.request(false, 0)).OverallCode)
		require.Equal(t, ok, all[1].send(s.request(false, 0)).OverallCode)
		require.Equal(t, ok, all[2].send(s.request(true, limit-1)).OverallCode)
		require.Equal(t, ok, all[1].send(s.request(false, 0)).OverallCode, "one token is left")
		r = all[0].send(s.request(true, 100))
		require.Equal(t, ok, r.OverallCode, "nothing can be denied any more")
		require.Equal(t, over, r.Statuses[0].Code)
		for _, c := range all {
			require.Equal(t, over, c.send(s.request(false, 0)).OverallCode)
			require.Equal(t, ok, c.send(stream{t, f, "another"}.request(false, 0)).OverallCode)
		}

		// Each of the concurrent streams spends its reported tokens.
		s = stream{t, f, "concurrent"}
		const streams = 64
		tokens, sum := func(i int) int { return limit/streams/2 + i }, 0
		var wg sync.WaitGroup
		for i := range streams {
			sum += tokens(i)
			wg.Go(func() {
				for _, req := range []*rls.RateLimitRequest{s.request(false, 0), s.request(true, tokens(i))} {
					r, err := all[i%3].s.ShouldRateLimit(t.Context(), req)
					if err != nil || r.OverallCode != ok {
						t.Error(i, err, r)
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(3 * time.Second)
		for _, c := range all {
			require.EqualValues(t, limit-sum, c.send(s.request(false, 0)).Statuses[0].LimitRemaining)
		}

		require.Nil(t, stream{t, f, "broken"}.request(true, -1), "missing usage is no request")
	})
}
