package envoylimit

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

const (
	ok   = rls.RateLimitResponse_OK
	over = rls.RateLimitResponse_OVER_LIMIT
)

func parsed(t testing.TB, text string) *Config {
	t.Helper()
	cfg, err := Parse("f.yaml", []byte(text))
	require.NoError(t, err)
	return cfg
}

func serviceOf(t testing.TB, node *weir.Node, text string, o Options) *Service {
	t.Helper()
	s, err := New(node, parsed(t, text), o)
	require.NoError(t, err)
	return s
}

// dial starts a server with the registered services on loopback, and returns a connection
// to the server.
func dial(t testing.TB, register func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	register(server)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// client calls a Service directly, without a socket.
type client struct {
	t testing.TB
	s *Service
}

func clientOf(t testing.TB, s *Service) client { return client{t, s} }

func (c client) send(req *rls.RateLimitRequest) *rls.RateLimitResponse {
	c.t.Helper()
	r, err := c.s.ShouldRateLimit(c.t.Context(), req)
	require.NoError(c.t, err)
	require.Len(c.t, r.Statuses, len(req.Descriptors))
	return r
}

// ask sends a request in domain d.
func (c client) ask(descriptors ...*ratelimit.RateLimitDescriptor) *rls.RateLimitResponse {
	c.t.Helper()
	return c.send(request(descriptors...))
}

// hits returns a descriptor with a hits_addend of its own.
func hits(n uint64, pairs ...string) *ratelimit.RateLimitDescriptor {
	d := descriptorOf(pairs...)
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

// refunded returns a descriptor that refunds hits.
func refunded(n uint64, pairs ...string) *ratelimit.RateLimitDescriptor {
	d := hits(n, pairs...)
	d.IsNegativeHits = true
	return d
}

// limited adds a limit to a descriptor of a request, and returns the descriptor.
func limited(d *ratelimit.RateLimitDescriptor, requests uint32, unit typev3.RateLimitUnit) *ratelimit.RateLimitDescriptor {
	d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	return d
}

const basic = `
domain: d
descriptors:
- key: user
  rate_limit: {unit: hour, requests_per_unit: 3, name: user}
- key: all
  rate_limit: {unit: hour, requests_per_unit: 5}
- key: banned
  rate_limit: {unit: minute, requests_per_unit: 0}
- key: free
  rate_limit: {unlimited: true}
- key: group
`

func TestEachDescriptorValueHasSeparateCount(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), basic, Options{}))
	for i := range 3 {
		r := c.ask(descriptorOf("user", "a"))
		require.Equal(t, ok, r.OverallCode)
		s := r.Statuses[0]
		require.Equal(t, ok, s.Code)
		require.EqualValues(t, 2-i, s.LimitRemaining)
		require.EqualValues(t, 3, s.CurrentLimit.RequestsPerUnit)
		require.Equal(t, rls.RateLimitResponse_RateLimit_HOUR, s.CurrentLimit.Unit)
		require.Equal(t, "user", s.CurrentLimit.Name)
		require.InDelta(t, time.Hour.Seconds(), s.DurationUntilReset.AsDuration().Seconds(), 30)
	}
	r := c.ask(descriptorOf("user", "a"))
	require.Equal(t, over, r.OverallCode)
	require.Equal(t, over, r.Statuses[0].Code)
	require.Zero(t, r.Statuses[0].LimitRemaining)
	require.Positive(t, r.Statuses[0].DurationUntilReset.AsDuration())
	require.Equal(t, ok, c.ask(descriptorOf("user", "b")).OverallCode)
}

func TestDescriptorWithoutLimitIsOK(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), basic, Options{}))
	for range 3 {
		r := c.ask(descriptorOf("group", "a"), descriptorOf("other", "a"), descriptorOf("user", "a", "user", "b"), descriptorOf("free", "a"), descriptorOf())
		require.Equal(t, ok, r.OverallCode)
		for i, s := range r.Statuses {
			require.Equal(t, ok, s.Code)
			require.Nil(t, s.CurrentLimit)
			require.Equal(t, i == 3, s.LimitRemaining == 1<<32-1, "what is unlimited says so")
		}
	}
	r := c.send(&rls.RateLimitRequest{Domain: "e", Descriptors: []*ratelimit.RateLimitDescriptor{limited(descriptorOf("user", "a"), 0, typev3.RateLimitUnit_DAY)}})
	require.Equal(t, ok, r.OverallCode, "a domain that is not in the configuration")
	require.Nil(t, r.Statuses[0].CurrentLimit)
}

func TestLimitOfZeroDenies(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), basic, Options{}))
	r := c.ask(descriptorOf("banned", "a"), descriptorOf("all", ""))
	require.Equal(t, over, r.OverallCode)
	require.Equal(t, over, r.Statuses[0].Code)
	require.EqualValues(t, 60, r.Statuses[0].DurationUntilReset.Seconds)
	require.Equal(t, ok, r.Statuses[1].Code)
	require.EqualValues(t, 5, r.Statuses[1].LimitRemaining, "nothing was spent")
	require.Equal(t, over, c.ask(hits(0, "banned", "a")).OverallCode)
	require.Equal(t, ok, c.ask(refunded(1, "banned", "a")).OverallCode)
}

func TestHitsOfDescriptorOverrideHitsOfRequest(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), basic, Options{}))
	type ds = []*ratelimit.RateLimitDescriptor
	for i, step := range []struct {
		about   string
		request uint32
		ds      ds
		code    rls.RateLimitResponse_Code
		left    uint32
	}{
		{"none is one", 0, ds{descriptorOf("all", "")}, ok, 4},
		{"the request's", 2, ds{descriptorOf("all", "")}, ok, 2},
		{"the descriptor's", 2, ds{hits(1, "all", "")}, ok, 1},
		{"more than is left spends nothing", 0, ds{hits(2, "all", "")}, over, 1},
		{"more than the limit can grant", 0, ds{hits(6, "all", "")}, over, 1},
		{"none is a peek", 2, ds{hits(0, "all", "")}, ok, 1},
		{"the last", 0, ds{descriptorOf("all", "")}, ok, 0},
		{"a peek where nothing is left", 0, ds{hits(0, "all", "")}, over, 0},
		{"given back", 0, ds{refunded(2, "all", "")}, ok, 2},
		{"a peek is never given back", 0, ds{refunded(0, "all", "")}, ok, 2},
		{"more than was spent is not given back", 0, ds{refunded(100, "all", "")}, ok, 5},
		{"a descriptor twice", 0, ds{descriptorOf("all", ""), descriptorOf("all", "")}, ok, 3},
		{"together above the limit", 3, ds{descriptorOf("all", ""), descriptorOf("all", "")}, over, 3},
		{"all of it", 3, ds{descriptorOf("all", "")}, ok, 0},
	} {
		r := c.send(&rls.RateLimitRequest{Domain: "d", HitsAddend: step.request, Descriptors: step.ds})
		require.Equal(t, step.code, r.OverallCode, "%d: %s", i, step.about)
		last := r.Statuses[len(r.Statuses)-1]
		require.Equal(t, step.code, last.Code, "%d: %s", i, step.about)
		require.Equal(t, step.left, last.LimitRemaining, "%d: %s", i, step.about)
	}
}

func TestLimitOfRequestReplacesConfiguredLimit(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), basic, Options{}))
	r := c.ask(limited(descriptorOf("user", "a"), 10, typev3.RateLimitUnit_HOUR))
	require.EqualValues(t, 9, r.Statuses[0].LimitRemaining)
	require.EqualValues(t, 10, r.Statuses[0].CurrentLimit.RequestsPerUnit)
	require.EqualValues(t, 1, c.ask(descriptorOf("user", "a")).Statuses[0].LimitRemaining, "the count is the same one")
	require.EqualValues(t, 9, c.ask(limited(descriptorOf("user", "a"), 10, typev3.RateLimitUnit_DAY)).Statuses[0].LimitRemaining, "but not with another unit")

	require.Equal(t, ok, c.ask(limited(descriptorOf("new", "a", "b", "c"), 1, typev3.RateLimitUnit_SECOND)).OverallCode)
	require.Equal(t, over, c.ask(limited(descriptorOf("new", "a", "b", "c"), 0, typev3.RateLimitUnit_SECOND)).OverallCode)
	require.Equal(t, ok, c.ask(limited(descriptorOf("free", "a"), 1, typev3.RateLimitUnit_DAY)).OverallCode)
	require.Equal(t, over, c.ask(limited(descriptorOf("free", "a"), 1, typev3.RateLimitUnit_DAY)).OverallCode)

	long := limited(descriptorOf("long", "a"), 2, typev3.RateLimitUnit_HOUR)
	long.Limit.UnitMultiplier = wrapperspb.UInt32(6)
	r = c.ask(long, limited(hits(2, "long", "a"), 2, typev3.RateLimitUnit_HOUR))
	require.Equal(t, ok, r.OverallCode, "the limits of two periods have separate counts")
	require.InDelta(t, 6*3600, r.Statuses[0].DurationUntilReset.Seconds, 30)
	require.EqualValues(t, 6, r.Statuses[0].CurrentLimit.UnitMultiplier.GetValue())
}

func TestInvalidRequestIsRefused(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), basic, Options{}))
	ds := func(ds ...*ratelimit.RateLimitDescriptor) []*ratelimit.RateLimitDescriptor { return ds }
	long := limited(descriptorOf("a", "b"), 1, typev3.RateLimitUnit_YEAR)
	long.Limit.UnitMultiplier = wrapperspb.UInt32(2)
	endless := limited(descriptorOf("a", "b"), 1, typev3.RateLimitUnit_YEAR)
	endless.Limit.UnitMultiplier = wrapperspb.UInt32(1<<32 - 1)
	for want, req := range map[string]*rls.RateLimitRequest{
		"the request has no domain":                                                             {Descriptors: ds(descriptorOf("user", "a"))},
		"the request has no descriptors":                                                        {Domain: "d"},
		"the request has 256 descriptors: at most 255 are decided together":                     {Domain: "d", Descriptors: make([]*ratelimit.RateLimitDescriptor, 256)},
		"hits_addend is 1000000000001: use at most 1000000000000":                               {Domain: "d", Descriptors: ds(hits(1_000_000_000_001, "user", "a"))},
		`"limit" has a period of 1 times UNKNOWN: use a known unit, and at most 366 days`:       {Domain: "d", Descriptors: ds(limited(descriptorOf("a", "b"), 1, 0))},
		`"limit" has a period of 2 times YEAR: use a known unit, and at most 366 days`:          {Domain: "d", Descriptors: ds(long)},
		`"limit" has a period of 4294967295 times YEAR: use a known unit, and at most 366 days`: {Domain: "d", Descriptors: ds(endless)},
	} {
		_, err := c.s.ShouldRateLimit(t.Context(), req)
		require.Equal(t, codes.InvalidArgument, status.Code(err), want)
		require.Equal(t, want, status.Convert(err).Message())
	}
}

const modes = `
domain: d
descriptors:
- key: shadow
  shadow_mode: true
  rate_limit: {unit: hour, requests_per_unit: 1}
- key: nothing
  shadow_mode: true
  rate_limit: {unit: hour, requests_per_unit: 0}
- key: quota
  quota_mode: true
  rate_limit: {unit: hour, requests_per_unit: 1}
- key: large
  quota_mode: true
  rate_limit: {unit: hour, requests_per_unit: 100}
- key: tokens
  debit: true
  rate_limit: {unit: hour, requests_per_unit: 100}
- key: narrow
  rate_limit: {unit: hour, requests_per_unit: 1, name: narrow}
- key: wide
  rate_limit: {unit: hour, requests_per_unit: 5, replaces: [{name: narrow}]}
`

func TestShadowOrOneUsedUpQuotaNeverDenies(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), modes, Options{Metadata: true}))
	for i := range 3 {
		r := c.ask(descriptorOf("shadow", ""), descriptorOf("quota", ""), descriptorOf("nothing", ""), descriptorOf("wide", ""), descriptorOf("large", ""))
		require.Equal(t, ok, r.OverallCode)
		for n, s := range r.Statuses {
			require.Equal(t, n == 1 && i > 0, s.Code == over, "a quota that is used up says so, a shadow does not")
			require.NotNil(t, s.CurrentLimit)
		}
		require.EqualValues(t, 4-i, r.Statuses[3].LimitRemaining)
		m := r.DynamicMetadata.AsMap()
		require.Equal(t, "d", m["domain"])
		require.Equal(t, true, m["quotaModeEnabled"])
		require.Equal(t, []any{"quota="}, m["descriptors"].([]any)[1].(map[string]any)["entries"])
		if i == 0 {
			require.NotContains(t, m, "quotaModeViolations")
		} else {
			require.Equal(t, []any{1.0}, m["quotaModeViolations"])
		}
	}
	r := c.send(&rls.RateLimitRequest{Domain: "d", HitsAddend: 7, Descriptors: []*ratelimit.RateLimitDescriptor{descriptorOf("shadow", "more than it can grant")}})
	require.Equal(t, ok, r.OverallCode)
	require.Equal(t, 7.0, r.DynamicMetadata.AsMap()["hitsAddend"])
	require.Equal(t, false, r.DynamicMetadata.AsMap()["quotaModeEnabled"])
}

func TestShadowModeDeniesNoRequest(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), basic, Options{ShadowMode: true}))
	for range 4 {
		require.Equal(t, ok, c.ask(descriptorOf("user", "a"), descriptorOf("banned", "a")).OverallCode)
	}
	r := c.ask(descriptorOf("user", "a"), descriptorOf("banned", "a"), descriptorOf("all", ""))
	require.Equal(t, ok, r.OverallCode)
	require.Equal(t, over, r.Statuses[0].Code, "a descriptor says what would be")
	require.Equal(t, over, r.Statuses[1].Code)
	require.EqualValues(t, 4, r.Statuses[2].LimitRemaining)
}

func TestDebitSpendsWithoutRoom(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), modes, Options{}))
	peek := func() rls.RateLimitResponse_Code { return c.ask(hits(0, "tokens", "a")).OverallCode }
	require.Equal(t, ok, peek())
	require.Equal(t, ok, c.ask(hits(99, "tokens", "a")).OverallCode)
	require.Equal(t, ok, peek())
	r := c.ask(hits(70, "tokens", "a"))
	require.Equal(t, ok, r.OverallCode, "what has arisen cannot be denied")
	require.Equal(t, over, r.Statuses[0].Code)
	require.Equal(t, over, peek())
	require.Equal(t, ok, c.ask(refunded(60, "tokens", "a")).OverallCode)
	require.Equal(t, over, peek(), "169 of 100 were spent")
	require.Equal(t, ok, c.ask(refunded(60, "tokens", "a"), hits(0, "narrow", "")).OverallCode)
	require.Equal(t, ok, peek())
	require.Equal(t, over, c.ask(hits(100, "tokens", "b"), hits(2, "narrow", "")).OverallCode)
	require.EqualValues(t, 100, c.ask(hits(0, "tokens", "b")).Statuses[0].LimitRemaining, "a denied request has no cost")
	require.Equal(t, ok, c.ask(hits(100, "tokens", "b")).OverallCode)
	require.Equal(t, over, c.ask(descriptorOf("tokens", "b")).OverallCode, "a request that states no cost is a check")
}

func TestManyHitsAreDebitedByOption(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), basic, Options{DebitMany: true}))
	r := c.ask(hits(8, "all", ""))
	require.Equal(t, ok, r.OverallCode, "something was left")
	require.Equal(t, over, r.Statuses[0].Code, "but not as much")
	require.Equal(t, over, c.ask(hits(0, "all", "")).OverallCode, "it was spent")
	require.Equal(t, over, c.ask(hits(8, "all", "")).OverallCode, "nothing is left")
	require.Equal(t, ok, c.ask(refunded(4, "all", "")).OverallCode)
	require.Equal(t, ok, c.ask(descriptorOf("all", "")).OverallCode)
	require.Equal(t, over, c.ask(descriptorOf("all", "")).OverallCode, "one hit is asked for")
	require.Equal(t, ok, c.ask(refunded(1, "all", "")).OverallCode)
	require.Equal(t, ok, c.ask(descriptorOf("all", "")).OverallCode)
}

func TestHeadersDescribeLimitNearestToDenying(t *testing.T) {
	c := clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), basic+`
- key: shadow
  shadow_mode: true
  rate_limit: {unit: hour, requests_per_unit: 0}
`, Options{Headers: Headers{Limit: "x-ratelimit-limit", Remaining: "x-ratelimit-remaining", Reset: "x-ratelimit-reset"}}))
	headers := func(ds ...*ratelimit.RateLimitDescriptor) map[string]string {
		h := make(map[string]string)
		for _, f := range c.ask(ds...).ResponseHeadersToAdd {
			h[f.Key] = f.Value
		}
		return h
	}
	h := headers(descriptorOf("all", ""), descriptorOf("shadow", ""), descriptorOf("free", ""), descriptorOf("user", "a"))
	require.Equal(t, "3", h["x-ratelimit-limit"])
	require.Equal(t, "2", h["x-ratelimit-remaining"])
	reset, err := strconv.Atoi(h["x-ratelimit-reset"])
	require.NoError(t, err)
	require.InDelta(t, 3600, reset, 30)
	require.Equal(t, map[string]string{"x-ratelimit-limit": "0", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}, headers(descriptorOf("user", "a"), descriptorOf("banned", "a")))
	require.Empty(t, headers(descriptorOf("free", "")))
	require.Empty(t, clientOf(t, serviceOf(t, testnode.Start(t, weir.Config{}), basic, Options{})).ask(descriptorOf("user", "a")).ResponseHeadersToAdd)
}

func TestDecisionsAreReportedWithPaths(t *testing.T) {
	var told []Decided
	cfg := messaging + `
  - key: hidden
    rate_limit: {unit: day, requests_per_unit: 1}
`
	s := serviceOf(t, testnode.Start(t, weir.Config{}), cfg, Options{OnDecision: func(_ context.Context, d *Decided) { told = append(told, *d) }})
	c := clientOf(t, s)
	path := func(d *ratelimit.RateLimitDescriptor) string {
		told = nil
		c.send(&rls.RateLimitRequest{Domain: "messaging", Descriptors: []*ratelimit.RateLimitDescriptor{d}})
		require.Len(t, told, 1)
		require.Equal(t, "messaging", told[0].Domain)
		return told[0].Path
	}
	require.Equal(t, "messaging.message_type_marketing.to_number_1", path(descriptorOf("message_type", "marketing", "to_number", "1")), "detailed_metric")
	require.Equal(t, Decided{Domain: "messaging", Path: "messaging.message_type_marketing.to_number_1", Hits: 1, Enforced: true, Decision: told[0].Decision}, told[0])
	require.Equal(t, "messaging.to_number_1", path(descriptorOf("to_number", "1")), "value_to_metric")
	require.Equal(t, "messaging.hidden", path(descriptorOf("hidden", "1")))
	require.Equal(t, "messaging.hidden", path(refunded(1, "hidden", "1")))
	require.True(t, told[0].Negative)
	require.Equal(t, "messaging.path_files/*", path(descriptorOf("path", "files/c")))
	require.False(t, told[0].Enforced)
	require.True(t, told[0].Over)
	require.Equal(t, "messaging.message_type_marketing.to_number_2061234567", path(descriptorOf("message_type", "marketing", "to_number", "2061234567")), "an unlimited descriptor")
	require.Equal(t, "messaging.new.other", path(limited(descriptorOf("new", "a", "other", "b"), 1, typev3.RateLimitUnit_DAY)))
}

// watchHealth watches the health of a server, and returns a function that requires the
// next status.
func watchHealth(t *testing.T, h health.HealthClient) (next func(health.HealthCheckResponse_ServingStatus, codes.Code)) {
	t.Helper()
	watch, err := h.Watch(t.Context(), &health.HealthCheckRequest{})
	require.NoError(t, err)
	return func(want health.HealthCheckResponse_ServingStatus, code codes.Code) {
		t.Helper()
		r, err := watch.Recv()
		require.Equal(t, code, status.Code(err))
		require.Equal(t, want, r.GetStatus())
	}
}

func TestHealthFollowsReadinessOfNode(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	h := health.NewHealthClient(dial(t, serviceOf(t, node, basic, Options{}).Register))
	requireStatus := func(service string, want health.HealthCheckResponse_ServingStatus) {
		r, err := h.Check(t.Context(), &health.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		require.Equal(t, want, r.Status)
	}
	next := watchHealth(t, h)
	next(health.HealthCheckResponse_SERVING, codes.OK)
	for _, service := range []string{"", "envoy.service.ratelimit.v3.RateLimitService", "kuadrant.service.ratelimit.v1.RateLimitService"} {
		requireStatus(service, health.HealthCheckResponse_SERVING)
	}
	_, err := h.Check(t.Context(), &health.HealthCheckRequest{Service: "other"})
	require.Equal(t, codes.NotFound, status.Code(err))
	all, err := h.List(t.Context(), &health.HealthListRequest{})
	require.NoError(t, err)
	require.Len(t, all.Statuses, 3)

	require.NoError(t, node.Leave(t.Context()))
	requireStatus("", health.HealthCheckResponse_NOT_SERVING)
	next(health.HealthCheckResponse_NOT_SERVING, codes.OK)
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	node, cfg := testnode.Start(t, weir.Config{}), parsed(t, basic)
	_, err := New(nil, cfg, Options{})
	require.ErrorIs(t, err, weir.ErrInvalid)
	_, err = New(node, nil, Options{})
	require.ErrorIs(t, err, weir.ErrInvalid)
	_, err = New(node, cfg, Options{Scope: 9})
	require.ErrorIs(t, err, weir.ErrInvalid)
	s := serviceOf(t, node, basic, Options{})
	require.ErrorIs(t, s.Use(nil), weir.ErrInvalid)
	require.NoError(t, node.Close())
	_, err = New(node, cfg, Options{})
	require.ErrorIs(t, err, weir.ErrClosed)
	_, err = s.ShouldRateLimit(t.Context(), request(descriptorOf("user", "a")))
	require.Equal(t, codes.Unavailable, status.Code(err))
}

func TestDrainedServiceAnswersAndDoesNotBlockServer(t *testing.T) {
	s := serviceOf(t, testnode.Start(t, weir.Config{}), basic, Options{})
	var server *grpc.Server
	conn := dial(t, func(on *grpc.Server) { server = on; s.Register(on) })
	require.Subset(t, slices.Collect(maps.Keys(server.GetServiceInfo())), []string{
		"envoy.service.ratelimit.v3.RateLimitService", "kuadrant.service.ratelimit.v1.RateLimitService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
	})
	next := watchHealth(t, health.NewHealthClient(conn))
	next(health.HealthCheckResponse_SERVING, codes.OK)
	s.Drain()
	next(health.HealthCheckResponse_NOT_SERVING, codes.OK)
	next(health.HealthCheckResponse_UNKNOWN, codes.Unavailable)
	_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request(descriptorOf("user", "a")))
	require.NoError(t, err)
	server.GracefulStop() // would wait for an open stream
}
