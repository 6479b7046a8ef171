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
)

func TestAnyNodeCommitsReservation(t *testing.T) {
	amongGateways(t, tokens, func(t *testing.T, all []gateway) {
		user, everyone := descriptorOf("user", "u"), descriptorOf("all", "")
		for about, c := range map[string]struct {
			amount, actual uint64
		}{
			"less":     {300, 100},
			"more":     {100, 250},
			"as much":  {50, 50},
			"nothing":  {200, 0},
			"too much": {10, 3000},
		} {
			user := descriptorOf("user", about)
			r := all[0].reserve(c.amount, user)
			require.Equal(t, ok, r.Code, about)
			requireRemaining(t, all, 1000-int(c.amount), user)
			released, code := all[1].commit(r.ReservationId, c.actual, user)
			require.Equal(t, codes.OK, code, about)
			require.True(t, released, about)
			requireRemaining(t, all, max(0, 1000-int(c.actual)), user)
		}

		r := all[2].reserve(400, user, descriptorOf("free", ""), everyone, descriptorOf("unknown", ""))
		released, code := all[0].commit(r.ReservationId, 30, user, descriptorOf("free", ""), everyone, descriptorOf("unknown", ""))
		require.Equal(t, codes.OK, code)
		require.True(t, released)
		requireRemaining(t, all, 970, user)
		requireRemaining(t, all, 99970, everyone)
	})
}

func TestInvalidCommitChangesNoCount(t *testing.T) {
	amongGateways(t, tokens, func(t *testing.T, all []gateway) {
		user, everyone := descriptorOf("user", "u"), descriptorOf("all", "")
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
			"another key":       {id, []*ratelimit.RateLimitDescriptor{descriptorOf("user", "v"), everyone}},
			"another order":     {id, []*ratelimit.RateLimitDescriptor{everyone, user}},
			"fewer descriptors": {id, []*ratelimit.RateLimitDescriptor{user}},
			"more descriptors":  {first, []*ratelimit.RateLimitDescriptor{user, everyone}},
			"another part":      {second, []*ratelimit.RateLimitDescriptor{user}},
			"no descriptor":     {id, []*ratelimit.RateLimitDescriptor{descriptorOf("unknown", "")}},
		} {
			_, code := all[1].commit(c.id, 9, c.ds...)
			require.Equal(t, codes.InvalidArgument, code, about)
		}
		requireRemaining(t, all, 600, user)
		requireRemaining(t, all, 99600, everyone)

		_, code := all[1].commit(id, 100, user, everyone)
		require.Equal(t, codes.OK, code)
		for _, g := range all {
			released, code := g.commit(id, 700, user, everyone)
			require.Equal(t, codes.FailedPrecondition, code, "it was committed before")
			require.False(t, released)
		}
		requireRemaining(t, all, 900, user)
		requireRemaining(t, all, 99900, everyone)
	})
}

func TestCommitDebitsShadowLimitWithoutRoom(t *testing.T) {
	amongGateways(t, tokens, func(t *testing.T, all []gateway) {
		user, tried := descriptorOf("user", "u"), descriptorOf("tried", "")
		r := all[0].reserve(200, user, tried)
		require.Equal(t, ok, r.Code)
		requireRemaining(t, all, 100, tried)
		_, code := all[1].commit(r.ReservationId, 60, user, tried)
		require.Equal(t, codes.OK, code)
		_, code = all[2].commit(r.ReservationId, 60, user, tried)
		require.Equal(t, codes.FailedPrecondition, code)
		requireRemaining(t, all, 940, user)
		requireRemaining(t, all, 40, tried)

		quota := descriptorOf("quota", "")
		require.Equal(t, ok, all[0].reserve(100, quota).Code)
		require.Equal(t, over, all[1].reserve(1, quota, user).Code, "the only quota is used up")
		requireRemaining(t, all, 940, user)
	})
}

const windows = `
domain: d
descriptors:
- key: user
  rate_limit: {unit: second, requests_per_unit: 1000}
- key: all
  rate_limit: {unit: minute, requests_per_unit: 100000}
`

func TestLateCommitSettlesRemainingWindows(t *testing.T) {
	amongGateways(t, windows, func(t *testing.T, all []gateway) {
		user, everyone := descriptorOf("user", "u"), descriptorOf("all", "")
		first, late := all[0].reserve(500, user, everyone), all[0].reserve(500, user, everyone)
		requireRemaining(t, all, 1000, user) // the window of the user has ended
		requireRemaining(t, all, 99000, everyone)
		_, code := all[1].commit(first.ReservationId, 20, user, everyone)
		require.Equal(t, codes.OK, code)
		requireRemaining(t, all, 1000, user)
		requireRemaining(t, all, 99480, everyone)
		_, code = all[1].commit(first.ReservationId, 20, user, everyone)
		require.Equal(t, codes.FailedPrecondition, code)

		time.Sleep(time.Minute)
		_, err := all[1].k.Commit(t.Context(), &kuadrant.CommitRequest{Domain: "d", Descriptors: request(user, everyone).Descriptors, ReservationId: late.ReservationId})
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		require.ErrorContains(t, err, "expired")
		requireRemaining(t, all, 100000, everyone)
	})
}

func TestUncommittedReservationIsReturnedAfterTTL(t *testing.T) {
	amongGateways(t, tokens, func(t *testing.T, all []gateway) {
		user := descriptorOf("user", "u")
		ds := request(user, descriptorOf("all", "")).Descriptors
		reserve := func(ttl time.Duration) (id string, err error) {
			r, err := all[0].k.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "d", Descriptors: ds, Amount: 500, Ttl: durationpb.New(ttl)})
			return r.GetReservationId(), err
		}
		id, err := reserve(30 * time.Second)
		require.NoError(t, err)
		time.Sleep(25 * time.Second)
		requireRemaining(t, all, 500, user)
		time.Sleep(3 * time.Second)
		requireRemaining(t, all, 1000, user)
		released, code := all[1].commit(id, 20, ds...)
		require.Equal(t, codes.OK, code)
		require.False(t, released)
		requireRemaining(t, all, 980, user) // the cost counts nevertheless

		for i, g := range all[:2] {
			id, err := reserve(30 * time.Second)
			require.NoError(t, err)
			released, code := g.commit(id, 30, ds...)
			require.Equal(t, codes.OK, code)
			require.True(t, released)
			left := 980 - 30*(i+1)
			requireRemaining(t, all, left, user)
			_, code = g.commit(id, 30, ds...)
			require.Equal(t, codes.FailedPrecondition, code, "within the ttl it takes effect once")
			time.Sleep(time.Minute)
			requireRemaining(t, all, left, user) // a committed reservation is not refunded
			require.Empty(t, all[0].k.of.releases.due)
		}

		_, err = reserve(-1)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	})
}

func TestPendingReservationsAreBounded(t *testing.T) {
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
