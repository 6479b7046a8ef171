package envoylimit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

// management is a server that sends the responses of a test, and exposes the received
// requests.
type management struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	asked chan *discovery.DiscoveryRequest
	sends chan *discovery.DiscoveryResponse // nil ends the stream
}

func (m *management) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		m.asked <- req
		answer := <-m.sends
		if answer == nil {
			return errors.New("restarting")
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (m *management) nextRequest(t *testing.T) *discovery.DiscoveryRequest {
	t.Helper()
	select {
	case req := <-m.asked:
		require.Equal(t, configType, req.TypeUrl)
		require.Equal(t, "gateway", req.Node.Id)
		return req
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was asked for")
		return nil
	}
}

// version returns a response with configurations.
func version(t *testing.T, v string, configs ...*rlsconf.RateLimitConfig) *discovery.DiscoveryResponse {
	t.Helper()
	r := &discovery.DiscoveryResponse{VersionInfo: v, Nonce: "n" + v, TypeUrl: configType}
	for _, c := range configs {
		resource, err := anypb.New(c)
		require.NoError(t, err)
		r.Resources = append(r.Resources, resource)
	}
	return r
}

func allOf(requests uint32) *rlsconf.RateLimitConfig {
	return &rlsconf.RateLimitConfig{Name: "d", Domain: "d", Descriptors: []*rlsconf.RateLimitDescriptor{
		{Key: "all", RateLimit: &rlsconf.RateLimitPolicy{RequestsPerUnit: requests, Unit: rlsconf.RateLimitUnit_HOUR}},
	}}
}

func TestServiceFollowsConfigurationOverXDS(t *testing.T) {
	m := &management{asked: make(chan *discovery.DiscoveryRequest, 1), sends: make(chan *discovery.DiscoveryResponse, 1)}
	conn := dial(t, func(on *grpc.Server) { discovery.RegisterAggregatedDiscoveryServiceServer(on, m) })
	var log bytes.Buffer // read after Follow has returned
	s, err := New(testnode.Start(t, weir.Config{}), new(Config), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	s.retry = time.Millisecond
	c := clientOf(t, s)
	require.Nil(t, c.ask(descriptorOf("all", "")).Statuses[0].CurrentLimit, "nothing is limited before the first")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Follow(ctx, conn, "gateway") }()

	require.Empty(t, m.nextRequest(t).VersionInfo)
	m.sends <- version(t, "1", allOf(5))
	req := m.nextRequest(t)
	require.Equal(t, "1", req.VersionInfo)
	require.Equal(t, "n1", req.ResponseNonce)
	require.Nil(t, req.ErrorDetail)
	require.EqualValues(t, 4, c.ask(descriptorOf("all", "")).Statuses[0].LimitRemaining)

	m.sends <- version(t, "2", &rlsconf.RateLimitConfig{Name: "d"})
	req = m.nextRequest(t)
	require.Equal(t, "1", req.VersionInfo, "what is wrong is refused")
	require.Equal(t, "n2", req.ResponseNonce)
	require.Equal(t, `resource "d" has no domain`, req.ErrorDetail.Message)
	require.EqualValues(t, 3, c.ask(descriptorOf("all", "")).Statuses[0].LimitRemaining, "the last good one stays in force")

	for range 10 { // a server may repeat a refused configuration
		m.sends <- version(t, "2", &rlsconf.RateLimitConfig{Name: "d"})
		require.NotNil(t, m.nextRequest(t).ErrorDetail)
	}
	m.sends <- version(t, "1", allOf(5))
	require.Nil(t, m.nextRequest(t).ErrorDetail)

	m.sends <- nil
	require.Empty(t, m.nextRequest(t).VersionInfo, "it comes back")
	require.EqualValues(t, 2, c.ask(descriptorOf("all", "")).Statuses[0].LimitRemaining)
	m.sends <- version(t, "3", allOf(50))
	require.Equal(t, "3", m.nextRequest(t).VersionInfo)
	require.EqualValues(t, 46, c.ask(descriptorOf("all", "")).Statuses[0].LimitRemaining, "counts go on")
	stop()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Equal(t, 1, strings.Count(log.String(), "was refused"), log.String())
	require.Equal(t, 2, strings.Count(log.String(), "is in force"), log.String())
	close(m.sends)
}

func TestResourceDescriptorsEqualFileDescriptors(t *testing.T) {
	meta, err := structpb.NewStruct(map[string]any{"to": "one"})
	require.NoError(t, err)
	policy := &rlsconf.RateLimitPolicy{Unit: 5, RequestsPerUnit: 7, Name: "u", Replaces: []*rlsconf.RateLimitReplace{{Name: "v"}}}
	cfg, err := configOf(version(t, "1", allOf(5), &rlsconf.RateLimitConfig{Domain: "e", Descriptors: []*rlsconf.RateLimitDescriptor{
		{Key: "path", Value: "/api/*", ShadowMode: true, Descriptors: []*rlsconf.RateLimitDescriptor{
			{Key: "user", ShadowMode: true, QuotaMode: true, DetailedMetric: true, RateLimit: policy},
			{Key: "user", Value: "root", RateLimit: &rlsconf.RateLimitPolicy{Unlimited: true}},
		}},
		{Key: "quota", QuotaMode: true, Metadata: meta, RateLimit: policy},
		{Key: "above", QuotaMode: true, Metadata: meta},
	}}), false)
	require.NoError(t, err)
	require.Equal(t, []string{"d", "e"}, cfg.Domains())
	d := cfg.domains["e"]
	way := findDescriptors(t, d, "path", "/api/a", "user", "x")
	require.Len(t, way, 2)
	l := way[1].limit
	require.Equal(t, "e.path_/api/*.user", l.path)
	require.True(t, l.shadow && l.detailed)
	require.False(t, l.quota, "a shadow never denies")
	require.Equal(t, []string{"v"}, l.replaces)
	per, _ := period(l.current)
	require.Equal(t, 30*day, per)
	require.Nil(t, findDescriptors(t, d, "path", "/api/a", "user", "root")[1].limit.current)
	l = findDescriptors(t, d, "quota", "")[0].limit
	require.True(t, l.quota)
	require.Equal(t, map[string]any{"to": "one"}, l.metadata.AsMap())
	require.Nil(t, findDescriptors(t, d, "above", "")[0].limit)
}

func TestInvalidResourceIsRefused(t *testing.T) {
	newer := allOf(1)
	newer.Descriptors[0].ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	deep := []*rlsconf.RateLimitDescriptor{{Key: "a"}}
	for range maxLevels {
		deep = []*rlsconf.RateLimitDescriptor{{Key: "a", Descriptors: deep}}
	}
	other := version(t, "1")
	other.TypeUrl = "other"
	broken := version(t, "1", allOf(1))
	broken.Resources[0].Value = []byte{0xff}
	unit := allOf(1)
	unit.Descriptors[0].RateLimit.Unit = 0
	star := &rlsconf.RateLimitConfig{Domain: "d", Descriptors: []*rlsconf.RateLimitDescriptor{{Key: "b", Descriptors: []*rlsconf.RateLimitDescriptor{{Key: "a*"}}}}}
	twice := proto.CloneOf(allOf(1))
	twice.Descriptors = append(twice.Descriptors, twice.Descriptors[0])
	for want, answer := range map[string]*discovery.DiscoveryResponse{
		`the type of the resources is "other"`:                       other,
		"cannot parse":                                               broken,
		`domain "d" is sent twice`:                                   version(t, "1", allOf(1), allOf(2)),
		"d.all: the unit is UNKNOWN: use a known unit":               version(t, "1", unit),
		"d.all: a descriptor has no key, or repeats a key and value": version(t, "1", twice),
		`d.b.a*: "key" is "a*", and only a value can be a pattern`:   version(t, "1", star),
		"nested more than 32 levels deep":                            version(t, "1", &rlsconf.RateLimitConfig{Domain: "d", Descriptors: deep}),
		"d.all: field 99 of ratelimit.config.ratelimit.v3.RateLimitDescriptor is not known to this version": version(t, "1", newer),
	} {
		cfg, err := configOf(answer, false)
		require.ErrorContains(t, err, want)
		require.Nil(t, cfg)
	}
}
