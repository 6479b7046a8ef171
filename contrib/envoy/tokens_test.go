package envoylimit

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/snippets"
)

// secrets seal what nodes hand each other by clients.
var secrets = [][]byte{[]byte("secret for tests")}

// three starts a cluster of three nodes that gossip, a gRPC server on each.
func three(t *testing.T, text string) (conns []*grpc.ClientConn) {
	t.Helper()
	var nodes []*weir.Node
	var join []string
	for _, name := range []string{"a", "b", "c"} {
		n := start(t, weir.Config{Name: name, Bind: "127.0.0.1:0", Timeout: 10 * time.Second, Join: join, Secrets: secrets})
		join = append(join, n.Members()[0].Addr)
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		require.Eventually(t, func() bool { return len(n.Members()) == 3 && n.Ready() }, 30*time.Second, 10*time.Millisecond)
		conns = append(conns, dial(t, serviceOf(t, n, text, Options{}).Register))
	}
	return conns
}

// filterOf reads fields of Envoy's filter as Envoy does: it refuses what it does not know.
func filterOf(t *testing.T, s snippets.Snippet) *filter.RateLimit {
	t.Helper()
	var fields map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(s.Text), &fields), s.At())
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	f := new(filter.RateLimit)
	require.NoError(t, protojson.Unmarshal(text, f), s.At())
	for _, limit := range f.GetRateLimits() {
		require.NoError(t, limit.ValidateAll(), s.At())
	}
	return f
}

// stream stands in for Envoy with one API key: it makes the requests that Envoy sends for
// the documented limits, before the upstream is asked and when the stream is done.
type stream struct {
	t   *testing.T
	f   *filter.RateLimit
	key string
}

// request is nil if no descriptor is due. Tokens below zero are metadata that is not there.
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
			continue // Envoy ignores a descriptor whose hits it cannot read
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

// documented returns the gateway's limits and Envoy's filter, as the README has them.
func documented(t *testing.T) (limits string, f *filter.RateLimit) {
	all, err := snippets.All()
	require.NoError(t, err)
	for _, s := range all {
		switch {
		case s.Language == "yaml" && s.Key() == "rate_limits":
			f = filterOf(t, s)
		case s.Language == "yaml" && s.Key() == "domain" && strings.HasPrefix(s.Text, "domain: model_gateway"):
			limits = s.Text
		}
	}
	require.NotEmpty(t, limits)
	require.NotNil(t, f)
	f.Domain = "model_gateway"
	return limits, f
}

func TestTokensOfResponsesLimitTheRequestsAfterThem(t *testing.T) {
	limits, f := documented(t)
	conns := three(t, limits)
	send := func(on int, req *rls.RateLimitRequest) *rls.RateLimitResponse {
		r, err := rls.NewRateLimitServiceClient(conns[on]).ShouldRateLimit(t.Context(), req)
		require.NoError(t, err)
		return r
	}
	limit := func(key string) (tokens int) {
		r := send(0, stream{t, f, key}.request(false, 0))
		require.Equal(t, ok, r.OverallCode)
		return int(r.Statuses[0].CurrentLimit.RequestsPerUnit)
	}("nobody")

	t.Run("a debit is not denied", func(t *testing.T) {
		s := stream{t, f, "large"}
		require.Equal(t, ok, send(0, s.request(false, 0)).OverallCode)
		require.Equal(t, ok, send(1, s.request(false, 0)).OverallCode)
		require.Equal(t, ok, send(2, s.request(true, limit-1)).OverallCode)
		require.Equal(t, ok, send(1, s.request(false, 0)).OverallCode, "one token is left")
		r := send(0, s.request(true, 100))
		require.Equal(t, ok, r.OverallCode, "nothing can be denied any more")
		require.Equal(t, over, r.Statuses[0].Code)
		for on := range conns {
			require.Equal(t, over, send(on, s.request(false, 0)).OverallCode)
			require.Equal(t, ok, send(on, stream{t, f, "another"}.request(false, 0)).OverallCode)
		}
	})

	t.Run("concurrent streams spend what they report", func(t *testing.T) {
		s := stream{t, f, "concurrent"}
		const streams = 64
		tokens, sum := func(i int) int { return limit/streams/2 + i }, 0
		var wg sync.WaitGroup
		for i := range streams {
			sum += tokens(i)
			wg.Go(func() {
				for _, req := range []*rls.RateLimitRequest{s.request(false, 0), s.request(true, tokens(i))} {
					r, err := rls.NewRateLimitServiceClient(conns[i%3]).ShouldRateLimit(t.Context(), req)
					if err != nil || r.OverallCode != ok {
						t.Error(strconv.Itoa(i), err, r)
					}
				}
			})
		}
		wg.Wait()
		for on := range conns {
			require.Eventually(t, func() bool {
				return int(send(on, s.request(false, 0)).Statuses[0].LimitRemaining) == limit-sum
			}, 30*time.Second, 100*time.Millisecond)
		}
	})

	t.Run("missing usage is no request", func(t *testing.T) {
		require.Nil(t, stream{t, f, "broken"}.request(true, -1))
	})
}
