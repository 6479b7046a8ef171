package envoylimit

import (
	"context"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/envoy/kuadrant"
)

// FuzzReservations reserves and commits arbitrary requests. Each request gets a response
// or a valid error.
func FuzzReservations(f *testing.F) {
	k := &kuadrantServer{of: serviceOf(f, start(f, weir.Config{MaxKeys: 1000}), tokens, Options{})}
	for _, m := range []proto.Message{
		&kuadrant.ReserveRequest{},
		&kuadrant.ReserveRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{descriptorOf("user", "u"), descriptorOf("tried", ""), refunded(7, "quota", "")}, Amount: 60},
		&kuadrant.CommitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{descriptorOf("user", "u"), descriptorOf("banned", "")}, ReservationId: "forged", ActualAmount: 1 << 63},
		&kuadrant.CommitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{descriptorOf("user", "u"), descriptorOf("free", "")}, ReservationId: "..", ActualAmount: 5},
		&kuadrant.CommitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{descriptorOf("user", "u")}, ReservationId: "~zz.forged", ActualAmount: 5},
		&kuadrant.ReserveRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{descriptorOf("user", "u")}, Amount: 6, Ttl: durationpb.New(1)},
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
