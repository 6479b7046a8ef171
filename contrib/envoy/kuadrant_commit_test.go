package envoylimit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir/contrib/envoy/kuadrant"
	"github.com/weir-go/weir/weirtest"
)

func TestAnotherNodeCommitsAReservation(t *testing.T) {
	all := gateways(t, tokens)
	user, everyone := of("user", "u"), of("all", "")
	for about, c := range map[string]struct {
		amount, actual uint64
	}{
		"less":     {300, 100},
		"more":     {100, 250},
		"as much":  {50, 50},
		"nothing":  {200, 0},
		"too much": {10, 3000},
	} {
		user := of("user", about)
		r := all[0].reserve(c.amount, user)
		require.Equal(t, ok, r.Code, about)
		leaves(t, all, 1000-int(c.amount), user)
		released, code := all[1].commit(r.ReservationId, c.actual, user)
		require.Equal(t, codes.OK, code, about)
		require.True(t, released, about)
		leaves(t, all, max(0, 1000-int(c.actual)), user)
	}

	r := all[2].reserve(400, user, of("free", ""), everyone, of("unknown", ""))
	released, code := all[0].commit(r.ReservationId, 30, user, of("free", ""), everyone, of("unknown", ""))
	require.Equal(t, codes.OK, code)
	require.True(t, released)
	leaves(t, all, 970, user)
	leaves(t, all, 99970, everyone)
}

func TestACommitThatIsWrongChangesNoCount(t *testing.T) {
	all := gateways(t, tokens)
	user, everyone := of("user", "u"), of("all", "")
	id := all[0].reserve(400, user, everyone).ReservationId
	first, second, _ := strings.Cut(id, textSeparator)
	for about, c := range map[string]struct {
		id string
		ds []*ratelimit.RateLimitDescriptor
	}{
		"forged":            {"forged.forged", []*ratelimit.RateLimitDescriptor{user, everyone}},
		"past a deadline":   {"~1.forged.forged", []*ratelimit.RateLimitDescriptor{user, everyone}},
		"a deadline alone":  {"~1", []*ratelimit.RateLimitDescriptor{user, everyone}},
		"changed":           {id[:40] + "AAAA" + id[44:], []*ratelimit.RateLimitDescriptor{user, everyone}},
		"another key":       {id, []*ratelimit.RateLimitDescriptor{of("user", "v"), everyone}},
		"another order":     {id, []*ratelimit.RateLimitDescriptor{everyone, user}},
		"fewer descriptors": {id, []*ratelimit.RateLimitDescriptor{user}},
		"more descriptors":  {first, []*ratelimit.RateLimitDescriptor{user, everyone}},
		"another part":      {second, []*ratelimit.RateLimitDescriptor{user}},
		"no descriptor":     {id, []*ratelimit.RateLimitDescriptor{of("unknown", "")}},
	} {
		_, code := all[1].commit(c.id, 9, c.ds...)
		require.Equal(t, codes.InvalidArgument, code, about)
	}
	leaves(t, all, 600, user)
	leaves(t, all, 99600, everyone)

	_, code := all[1].commit(id, 100, user, everyone)
	require.Equal(t, codes.OK, code)
	for _, g := range all {
		released, code := g.commit(id, 700, user, everyone)
		require.Equal(t, codes.FailedPrecondition, code, "it was committed before")
		require.False(t, released)
	}
	leaves(t, all, 900, user)
	leaves(t, all, 99900, everyone)
}

func TestALimitWithoutRoomThatDoesNotDenyIsDebitedByTheCommit(t *testing.T) {
	all := gateways(t, tokens)
	user, tried := of("user", "u"), of("tried", "")
	r := all[0].reserve(200, user, tried)
	require.Equal(t, ok, r.Code)
	leaves(t, all, 100, tried)
	_, code := all[1].commit(r.ReservationId, 60, user, tried)
	require.Equal(t, codes.OK, code)
	_, code = all[2].commit(r.ReservationId, 60, user, tried)
	require.Equal(t, codes.FailedPrecondition, code)
	leaves(t, all, 940, user)
	leaves(t, all, 40, tried)

	quota := of("quota", "")
	require.Equal(t, ok, all[0].reserve(100, quota).Code)
	require.Equal(t, over, all[1].reserve(1, quota, user).Code, "the only quota is used up")
	leaves(t, all, 940, user)
}

const windows = `
domain: d
descriptors:
- key: user
  rate_limit: {unit: second, requests_per_unit: 1000}
- key: all
  rate_limit: {unit: minute, requests_per_unit: 100000}
`

func TestALateCommitSettlesTheWindowsThatGoOn(t *testing.T) {
	virtually(t, windows, func(t *testing.T, c *weirtest.Cluster, services map[string]*Service) {
		a, b := &kuadrantServer{of: services["a"]}, &kuadrantServer{of: services["b"]}
		ds := request(of("user", "u"), of("all", "")).Descriptors
		r, err := a.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "d", Descriptors: ds, Amount: 500})
		require.NoError(t, err)
		late, err := a.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "d", Descriptors: ds, Amount: 500})
		require.NoError(t, err)
		left := func(d *ratelimit.RateLimitDescriptor) int {
			time.Sleep(2 * time.Second)
			r, err := b.CheckRateLimit(t.Context(), request(d))
			require.NoError(t, err)
			return int(r.Statuses[0].LimitRemaining)
		}
		commit := func(id string) error {
			_, err := b.Commit(t.Context(), &kuadrant.CommitRequest{Domain: "d", Descriptors: ds, ReservationId: id, ActualAmount: 20})
			return err
		}
		require.Equal(t, 1000, left(of("user", "u")), "its window is over")
		require.Equal(t, 99000, left(of("all", "")))
		require.NoError(t, commit(r.ReservationId))
		require.Equal(t, 1000, left(of("user", "u")))
		require.Equal(t, 99480, left(of("all", "")))
		require.Equal(t, codes.FailedPrecondition, status.Code(commit(r.ReservationId)))

		time.Sleep(time.Minute)
		err = commit(late.ReservationId)
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		require.ErrorContains(t, err, "expired")
		require.Equal(t, 100000, left(of("all", "")))
	})
}

func TestWhatNobodyCommitsWithinItsTTLIsGivenBack(t *testing.T) {
	virtually(t, tokens, func(t *testing.T, c *weirtest.Cluster, services map[string]*Service) {
		a, b := &kuadrantServer{of: services["a"]}, &kuadrantServer{of: services["b"]}
		user := of("user", "u")
		ds := request(user, of("all", "")).Descriptors
		reserve := func() string {
			r, err := a.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "d", Descriptors: ds, Amount: 500, Ttl: durationpb.New(30 * time.Second)})
			require.NoError(t, err)
			require.Equal(t, ok, r.Code)
			return r.ReservationId
		}
		commit := func(k *kuadrantServer, id string, actual uint64) (bool, error) {
			r, err := k.Commit(t.Context(), &kuadrant.CommitRequest{Domain: "d", Descriptors: ds, ReservationId: id, ActualAmount: actual})
			return r.GetReservationReleased(), err
		}
		left := func() int {
			time.Sleep(3 * time.Second)
			r, err := b.CheckRateLimit(t.Context(), request(user))
			require.NoError(t, err)
			return int(r.Statuses[0].LimitRemaining)
		}
		id := reserve()
		time.Sleep(25 * time.Second)
		require.Equal(t, 500, left())
		time.Sleep(3 * time.Second)
		require.Equal(t, 1000, left())
		released, err := commit(b, id, 20)
		require.NoError(t, err)
		require.False(t, released)
		require.Equal(t, 980, left(), "what it cost counts all the same")

		for _, k := range []*kuadrantServer{a, b} {
			before := left()
			id := reserve()
			released, err := commit(k, id, 30)
			require.NoError(t, err)
			require.True(t, released)
			require.Equal(t, before-30, left())
			_, err = commit(k, id, 30)
			require.Equal(t, codes.FailedPrecondition, status.Code(err), "within the ttl it takes effect once")
			time.Sleep(time.Minute)
			require.Equal(t, before-30, left(), "nothing is given back once it is committed")
			require.Empty(t, services["a"].releases.due)
		}

		_, err = a.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "d", Descriptors: ds, Amount: 1, Ttl: durationpb.New(-1)})
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	})
}

func TestReservationsThatWaitForTheirTTLAreBounded(t *testing.T) {
	var r releases
	for i := range maxReleases + 1 {
		r.add(fmt.Sprint(i), nil, time.Hour)
	}
	require.Len(t, r.due, maxReleases)
	for id := range r.due {
		r.remove(id)
	}
	require.Empty(t, r.due)
}
