package envoylimit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/weir-go/weir"
)

// echo answers every request with the same response: what gRPC alone costs.
type echo struct {
	rls.UnimplementedRateLimitServiceServer
	response *rls.RateLimitResponse
}

func (e *echo) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return e.response, nil
}

const benched = `
domain: d
descriptors:
- key: user
  rate_limit: {unit: hour, requests_per_unit: 4000000000}
- key: path
  value: /api/*
  rate_limit: {unit: minute, requests_per_unit: 4000000000}
- key: all
  descriptors:
  - key: method
    value: GET
    rate_limit: {unit: second, requests_per_unit: 4000000000}
`

// requests have so many descriptors each, and many users.
func requests(descriptors int) (all []*rls.RateLimitRequest) {
	for i := range 1000 {
		r := &rls.RateLimitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{
			of("user", fmt.Sprintf("user-%d", i)), of("path", "/api/orders"), of("all", "", "method", "GET"),
		}}
		r.Descriptors = r.Descriptors[:descriptors]
		all = append(all, r)
	}
	return all
}

// BenchmarkCalls asks the service, and a bare echo of the same messages, in turns of
// some thousand calls by 16 callers. The part of the echo's calls a second that the
// service answers is of-echo; ns/op is of the service.
func BenchmarkCalls(b *testing.B) {
	const callers, turn = 16, 4096
	for _, descriptors := range []int{1, 3} {
		b.Run(fmt.Sprintf("descriptors=%d", descriptors), func(b *testing.B) {
			service := serviceOf(b, start(b, weir.Config{}), benched, Options{})
			reqs := requests(descriptors)
			response, err := service.ShouldRateLimit(b.Context(), reqs[0])
			require.NoError(b, err)
			limited := rls.NewRateLimitServiceClient(dial(b, service.Register))
			bare := rls.NewRateLimitServiceClient(dial(b, func(on *grpc.Server) { rls.RegisterRateLimitServiceServer(on, &echo{response: response}) }))
			round := func(c rls.RateLimitServiceClient, calls int) time.Duration {
				var wg sync.WaitGroup
				var next atomic.Int64
				begun := time.Now()
				for range callers {
					wg.Go(func() {
						for {
							i := next.Add(1)
							if i > int64(calls) {
								return
							}
							ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
							_, err := c.ShouldRateLimit(ctx, reqs[i%int64(len(reqs))])
							cancel()
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return time.Since(begun)
			}
			round(limited, turn)
			round(bare, turn)
			var with, without time.Duration
			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; left -= turn {
				with += round(limited, min(left, turn))
				b.StopTimer()
				without += round(bare, min(left, turn))
				b.StartTimer()
			}
			b.ReportMetric(float64(without)/float64(with), "of-echo")
			b.ReportMetric(float64(b.N)/with.Seconds(), "calls/s")
		})
	}
}

// BenchmarkShouldRateLimit is the service without gRPC; limits are the requests' own.
func BenchmarkShouldRateLimit(b *testing.B) {
	for _, c := range []struct {
		about       string
		descriptors int
		limit       *ratelimit.RateLimitDescriptor_RateLimitOverride
	}{
		{"descriptors=1", 1, nil}, {"descriptors=3", 3, nil},
		{"limits=1", 1, &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 4e9, Unit: typev3.RateLimitUnit_HOUR}},
	} {
		b.Run(c.about, func(b *testing.B) {
			service := serviceOf(b, start(b, weir.Config{}), benched, Options{})
			reqs := requests(c.descriptors)
			for _, r := range reqs {
				r.Descriptors[0].Limit = c.limit
			}
			b.ReportAllocs()
			for i := range b.N {
				if _, err := service.ShouldRateLimit(b.Context(), reqs[i%len(reqs)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
