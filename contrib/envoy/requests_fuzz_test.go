package envoylimit

import (
	"context"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/envoy/kuadrant"
	"github.com/weir-go/weir/internal/testnode"
)

// FuzzRequests sends arbitrary requests to the service. Each request gets a response with a
// status for each descriptor, or the error INVALID_ARGUMENT.
func FuzzRequests(f *testing.F) {
	const text = `
domain: d
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}
- {key: path, value: "/a*", shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 1}, descriptors: [{key: user, rate_limit: {unlimited: true}}]}
- {key: name, rate_limit: {name: n, unit: hour, requests_per_unit: 0, replaces: [{name: m}]}}
- {key: other, rate_limit: {name: m, unit: day, requests_per_unit: 3}}
- {key: quota, value: "a*b*", share_threshold: true, quota_mode: true, metadata: {to: {a: 1}}, rate_limit: {unit: hour, requests_per_unit: 2}}
- {key: quota, quota_mode: true, metadata: {to: {b: 1}}, rate_limit: {unit: hour, requests_per_unit: 3}}
- {key: cost, debit: true, rate_limit: {unit: hour, requests_per_unit: 3}}
`
	s := serviceOf(f, testnode.Start(f, weir.Config{MaxKeys: 1000}), text, Options{Metadata: true})
	add := func(req *rls.RateLimitRequest) {
		b, err := proto.Marshal(req)
		require.NoError(f, err)
		f.Add(b)
	}
	add(&rls.RateLimitRequest{})
	negative := descriptorOf("path", "/abc", "user", "u")
	negative.IsNegativeHits = true
	many := request(hits(1<<63, "user", "u"), negative, descriptorOf())
	many.HitsAddend = 1<<32 - 1
	add(many)
	add(request(descriptorOf("name", ""), limited(descriptorOf("other", "x"), 1<<32-1, 99)))
	add(request(descriptorOf("quota", "abc"), hits(2, "quota", "x"), hits(9, "cost", "")))
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		var req rls.RateLimitRequest
		if proto.Unmarshal(b, &req) != nil {
			return // gRPC refuses it
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		answer, err := s.ShouldRateLimit(ctx, &req)
		if err != nil {
			require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
			return
		}
		require.Len(t, answer.GetStatuses(), len(req.GetDescriptors()))
		require.Contains(t, []rls.RateLimitResponse_Code{ok, over}, answer.GetOverallCode())
	})
}

// FuzzReservations reserves and commits arbitrary requests. Each request gets a response
// or a valid error.
func FuzzReservations(f *testing.F) {
	k := &kuadrantServer{of: serviceOf(f, testnode.Start(f, weir.Config{MaxKeys: 1000}), tokens, Options{})}
	type ds = []*ratelimit.RateLimitDescriptor
	for _, m := range []proto.Message{
		&kuadrant.ReserveRequest{},
		&kuadrant.ReserveRequest{Domain: "d", Descriptors: ds{descriptorOf("user", "u"), descriptorOf("tried", ""), refunded(7, "quota", "")}, Amount: 60},
		&kuadrant.CommitRequest{Domain: "d", Descriptors: ds{descriptorOf("user", "u"), descriptorOf("banned", "")}, ReservationId: "forged", ActualAmount: 1 << 63},
		&kuadrant.CommitRequest{Domain: "d", Descriptors: ds{descriptorOf("user", "u"), descriptorOf("free", "")}, ReservationId: "..", ActualAmount: 5},
		&kuadrant.CommitRequest{Domain: "d", Descriptors: ds{descriptorOf("user", "u")}, ReservationId: "~zz.forged", ActualAmount: 5},
		&kuadrant.ReserveRequest{Domain: "d", Descriptors: ds{descriptorOf("user", "u")}, Amount: 6, Ttl: durationpb.New(1)},
	} {
		b, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		refused := func(err error) {
			if err != nil {
				require.Contains(t, []codes.Code{codes.InvalidArgument, codes.FailedPrecondition}, status.Code(err), err)
			}
		}
		var reserve kuadrant.ReserveRequest
		if proto.Unmarshal(b, &reserve) == nil {
			r, err := k.Reserve(ctx, &reserve)
			refused(err)
			if r.GetReservationId() != "" {
				_, err := k.Commit(ctx, &kuadrant.CommitRequest{Domain: reserve.Domain, Descriptors: reserve.Descriptors, ReservationId: r.ReservationId, ActualAmount: reserve.Amount / 2})
				refused(err)
			}
		}
		var commit kuadrant.CommitRequest
		if proto.Unmarshal(b, &commit) == nil {
			_, err := k.Commit(ctx, &commit)
			refused(err)
		}
	})
}

// FuzzResources reads arbitrary responses of a management server. Each response is
// refused or is a configuration in which every limit that is not unlimited has a period.
func FuzzResources(f *testing.F) {
	resource, err := anypb.New(&rlsconf.RateLimitConfig{Name: "n", Domain: "d", Descriptors: []*rlsconf.RateLimitDescriptor{
		{Key: "a", Value: "*", RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_DAY, RequestsPerUnit: 1}, Descriptors: []*rlsconf.RateLimitDescriptor{{Key: "b"}}},
		{Key: "a", RateLimit: &rlsconf.RateLimitPolicy{Unit: 77, Unlimited: true}},
	}})
	require.NoError(f, err)
	b, err := proto.Marshal(&discovery.DiscoveryResponse{TypeUrl: configType, VersionInfo: "1", Resources: []*anypb.Any{resource}})
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var answer discovery.DiscoveryResponse
		if proto.Unmarshal(b, &answer) != nil {
			return // gRPC refuses it
		}
		cfg, err := configOf(&answer, false)
		if err != nil {
			require.Nil(t, cfg)
			return
		}
		for _, d := range cfg.domains {
			for _, l := range d.limits {
				if l.current != nil {
					per, _ := period(l.current)
					require.Positive(t, per)
				}
			}
			requireFound(t, d.top, nil)
		}
	})
}
