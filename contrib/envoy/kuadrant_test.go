package envoylimit

import (
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/envoy/kuadrant"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/weirtest"
)

const tokens = `
domain: d
descriptors:
- key: user
  rate_limit: {unit: hour, requests_per_unit: 1000}
- key: all
  rate_limit: {unit: hour, requests_per_unit: 100000}
- key: tried
  shadow_mode: true
  rate_limit: {unit: hour, requests_per_unit: 100}
- key: quota
  quota_mode: true
  rate_limit: {unit: hour, requests_per_unit: 100}
- key: banned
  rate_limit: {unit: hour, requests_per_unit: 0}
- key: free
  rate_limit: {unlimited: true}
`

// gateway calls Kuadrant's service in domain d.
type gateway struct {
	t testing.TB
	k *kuadrantServer
}

// amongGateways runs a cluster of three nodes, each with Kuadrant's service.
func amongGateways(t *testing.T, text string, run func(t *testing.T, all []gateway)) {
	t.Helper()
	runCluster(t, text, func(t *testing.T, _ *weirtest.Cluster, clients []client) {
		var all []gateway
		for _, c := range clients {
			all = append(all, gateway{t, &kuadrantServer{of: c.s}})
		}
		run(t, all)
	})
}

func (g gateway) reserve(amount uint64, ds ...*ratelimit.RateLimitDescriptor) *kuadrant.ReserveResponse {
	g.t.Helper()
	r, err := g.k.Reserve(g.t.Context(), &kuadrant.ReserveRequest{Domain: "d", Descriptors: ds, Amount: amount})
	require.NoError(g.t, err)
	require.True(g.t, r.Code == ok || r.ReservationId == "")
	return r
}

func (g gateway) commit(id string, actual uint64, ds ...*ratelimit.RateLimitDescriptor) (released bool, code codes.Code) {
	g.t.Helper()
	r, err := g.k.Commit(g.t.Context(), &kuadrant.CommitRequest{Domain: "d", Descriptors: ds, ReservationId: id, ActualAmount: actual})
	return r.GetReservationReleased(), status.Code(err)
}

func (g gateway) remaining(d *ratelimit.RateLimitDescriptor) int {
	g.t.Helper()
	r, err := g.k.CheckRateLimit(g.t.Context(), request(d))
	require.NoError(g.t, err)
	return int(r.Statuses[0].LimitRemaining)
}

// requireRemaining waits until the commits have reached all nodes. The test fails unless
// each node has want units left.
func requireRemaining(t *testing.T, all []gateway, want int, d *ratelimit.RateLimitDescriptor) {
	t.Helper()
	time.Sleep(3 * time.Second)
	for _, g := range all {
		require.Equal(t, want, g.remaining(d))
	}
}

func TestKuadrantCheckSpendsNothingAndReportNeverDenies(t *testing.T) {
	amongGateways(t, tokens, func(t *testing.T, all []gateway) {
		for _, hits := range []uint32{0, 1, 5000} {
			r, err := all[0].k.CheckRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "d", HitsAddend: hits, Descriptors: []*ratelimit.RateLimitDescriptor{descriptorOf("user", "u"), descriptorOf("free", ""), descriptorOf("unknown", "")}})
			require.NoError(t, err)
			require.Equal(t, ok, r.OverallCode)
			require.EqualValues(t, 1000, r.Statuses[0].LimitRemaining)
		}
		report := func(g gateway, hits uint32, ds ...*ratelimit.RateLimitDescriptor) *rls.RateLimitResponse {
			r, err := g.k.Report(t.Context(), &rls.RateLimitRequest{Domain: "d", HitsAddend: hits, Descriptors: ds})
			require.NoError(t, err)
			require.Equal(t, ok, r.OverallCode)
			return r
		}
		report(all[1], 0, descriptorOf("user", "u"))
		requireRemaining(t, all, 999, descriptorOf("user", "u"))
		report(all[2], 998, descriptorOf("user", "u"), descriptorOf("all", ""))
		r := report(all[1], 500, descriptorOf("user", "u"), descriptorOf("all", ""), descriptorOf("banned", ""))
		require.Equal(t, over, r.Statuses[0].Code)
		require.Equal(t, ok, r.Statuses[1].Code)
		require.Equal(t, over, r.Statuses[2].Code)
		requireRemaining(t, all, 100000-1498, descriptorOf("all", ""))
		for _, g := range all {
			r, err := g.k.CheckRateLimit(t.Context(), request(descriptorOf("user", "u"), descriptorOf("all", "")))
			require.NoError(t, err)
			require.Equal(t, over, r.OverallCode)
		}
	})
}

func TestReservationCoversAllLimitsOrNone(t *testing.T) {
	amongGateways(t, tokens, func(t *testing.T, all []gateway) {
		user, everyone := descriptorOf("user", "u"), descriptorOf("all", "")
		require.Equal(t, ok, all[0].reserve(700, user, everyone).Code)
		require.Equal(t, over, all[1].reserve(400, everyone, user).Code)
		require.Equal(t, over, all[1].reserve(1, descriptorOf("banned", ""), everyone).Code)
		require.Equal(t, over, all[1].reserve(1001, descriptorOf("user", "other"), everyone).Code, "more than the limit can ever grant")
		require.Equal(t, over, all[1].reserve(600, descriptorOf("user", "twice"), descriptorOf("user", "twice")).Code)
		requireRemaining(t, all, 300, user)
		requireRemaining(t, all, 99300, everyone)
		requireRemaining(t, all, 1000, descriptorOf("user", "other"))

		require.Equal(t, ok, all[2].reserve(300, user).Code)
		require.Equal(t, over, all[2].reserve(0, user).Code, "none is left")
		r := all[2].reserve(0, everyone)
		require.Equal(t, ok, r.Code)
		require.Empty(t, r.ReservationId, "nothing was reserved")
		r = all[2].reserve(5, descriptorOf("free", ""), descriptorOf("unknown", ""))
		require.Equal(t, ok, r.Code)
		require.Empty(t, r.ReservationId)
	})
}

func TestCommitWithoutReservationDebitsLikeReport(t *testing.T) {
	amongGateways(t, tokens, func(t *testing.T, all []gateway) {
		released, code := all[0].commit("", 1500, descriptorOf("user", "u"))
		require.Equal(t, codes.OK, code)
		require.False(t, released)
		require.Equal(t, over, all[1].reserve(0, descriptorOf("user", "u")).Code)
		_, code = all[0].commit("", 0, descriptorOf("user", "v"))
		require.Equal(t, codes.OK, code)
		requireRemaining(t, all, 1000, descriptorOf("user", "v"))
	})
}

func TestOversizedAmountsAreRefused(t *testing.T) {
	g := gateway{t, &kuadrantServer{of: serviceOf(t, testnode.Start(t, weir.Config{}), tokens, Options{})}}
	_, err := g.k.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "d", Descriptors: request(descriptorOf("user", "u")).Descriptors, Amount: 1 << 63})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.Equal(t, "amount is 9223372036854775808: use at most 1000000000000", status.Convert(err).Message())
	_, err = g.k.Reserve(t.Context(), new(kuadrant.ReserveRequest))
	require.Equal(t, "the request has no domain", status.Convert(err).Message())
	_, code := g.commit("", 1<<63, descriptorOf("user", "u"))
	require.Equal(t, codes.InvalidArgument, code)
}
