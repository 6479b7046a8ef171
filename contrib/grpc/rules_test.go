package grpclimit

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/adapt"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

const oneAtOnce = "rules: [{name: r, key: ip, limit: {algorithm: in_flight, rate: 1}}]"

// oneInFlight returns Limits of a single concurrent call, by rules and by a Limiter.
func oneInFlight(t *testing.T) map[string]*Limits {
	byOne := byLimiter(t, limiter(t, weir.Limit{Name: "r", Algorithm: weir.InFlight, Rate: 1}), Options{})
	return map[string]*Limits{"by rules": byRules(t, oneAtOnce, Options{}), "by a Limiter": byOne}
}

func TestCallsObeySwitches(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, "rules: [{name: r, key: ip, limit: {rate: 1, per: 1h}}]")
	limits, err := New(node, book, Options{})
	require.NoError(t, err)
	c := serve(t, &model{}, limits)
	require.NoError(t, ask(t.Context(), c, 1))
	for _, of := range []struct {
		mode rules.Mode
		want codes.Code
	}{{rules.Enforce, codes.ResourceExhausted}, {rules.Shadow, codes.OK}, {rules.Enforce, codes.ResourceExhausted}, {rules.Off, codes.OK}} {
		require.NoError(t, book.Switch("r", rules.Switch{Mode: of.mode}))
		require.Equal(t, of.want, status.Code(ask(t.Context(), c, 1)), of.mode)
	}
}

func TestCallHoldsUnitUntilHandlerReturns(t *testing.T) {
	for about, limits := range oneInFlight(t) {
		t.Run(about, func(t *testing.T) { testHold(t, limits) })
	}
}

func testHold(t *testing.T, limits *Limits) {
	m := &model{entered: make(chan struct{}), proceed: make(chan struct{})}
	c := serve(t, m, limits)
	ctx := t.Context()
	ended := make(chan error, 1)
	go func() { ended <- ask(ctx, c, 1) }()
	<-m.entered
	require.Equal(t, codes.ResourceExhausted, status.Code(ask(ctx, c, 1)))
	stream, err := c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
	require.NoError(t, err)
	_, err = read(stream)
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "streams hold the same units")
	m.proceed <- struct{}{}
	require.NoError(t, <-ended)

	stream, err = c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
	require.NoError(t, err)
	<-m.entered
	require.Equal(t, codes.ResourceExhausted, status.Code(ask(ctx, c, 1)))
	close(m.proceed)
	_, err = read(stream)
	require.ErrorContains(t, err, "EOF")
}

func TestPanickingHandlerReleasesItsHold(t *testing.T) {
	for about, limits := range oneInFlight(t) {
		for range 3 {
			require.PanicsWithValue(t, "oh", func() {
				_, _ = limits.Unary()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.S/M"}, func(context.Context, any) (any, error) { panic("oh") })
			}, about)
		}
	}
}

func TestMessageTakesNoHold(t *testing.T) {
	limits := byRules(t, oneAtOnce, Options{})
	for range 2 {
		a, err := limits.admit(t.Context(), limits.request(t.Context(), "/a.S/M"), message{}, nil)
		require.Nil(t, a)
		require.Equal(t, codes.Unavailable, status.Code(err))
	}
}

func TestCallsAreCountedByStatusCode(t *testing.T) {
	for code, counts := range map[codes.Code]bool{
		codes.OK: false, codes.NotFound: false, codes.Unauthenticated: true, codes.Unavailable: true, codes.Internal: true, codes.Unknown: true, codes.DataLoss: true,
	} {
		t.Run(code.String(), func(t *testing.T) {
			limits, l := limitsOfRule(t, "{name: r, key: user, count: {status: [401, 5xx]}, limit: {algorithm: fixed_window, rate: 1000, per: 1h}}")
			_, err := limits.Unary()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.S/M"}, func(context.Context, any) (any, error) { return nil, status.Error(code, "") })
			require.Equal(t, code, status.Code(err))
			requireSpent(t, l, "ada", map[bool]int64{true: 1}[counts])
		})
	}
}

func TestCostIsSettledByTrailer(t *testing.T) {
	const rule = "{name: r, key: user, reserve: 50, settle: {trailer: X-Cost}, limit: {algorithm: fixed_window, rate: 1000, per: 1h}}"
	limits, l := limitsOfRule(t, rule)
	c := serve(t, &model{trailer: "7"}, limits)
	require.NoError(t, ask(t.Context(), c, 1))
	requireSpent(t, l, "ada", 7)
	stream, err := c.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
	require.NoError(t, err)
	_, err = read(stream)
	require.ErrorContains(t, err, "EOF")
	requireSpent(t, l, "ada", 14)
	require.Error(t, ask(t.Context(), c, 0))
	requireSpent(t, l, "ada", 14) // an error is free
}

// limitsOfRule returns the Limits and the Limiter of a rule.
func limitsOfRule(t *testing.T, rule string) (*Limits, *weir.Limiter) {
	t.Helper()
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, "rules: ["+rule+"]")
	limits, err := New(node, book, Options{User: func(context.Context) string { return "ada" }})
	require.NoError(t, err)
	limit, _, ok := book.Current().Limit("r")
	require.True(t, ok)
	return limits, book.Current().Limiter(limit, "", "ada")
}

func TestBlockedCallIsDenied(t *testing.T) {
	for until, waits := range map[string]bool{"": false, ", until: 2999-01-01T00:00:00Z": true} {
		limits := byRules(t, "deny: {user: mallory"+until+"}\nrules: [{name: r, key: ip, limit: {rate: 1, per: 1h}}]", Options{User: func(context.Context) string { return "mallory" }})
		_, err := limits.Unary()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.S/M"}, nil)
		require.Equal(t, codes.PermissionDenied, status.Code(err))
		require.Equal(t, waits, len(status.Convert(err).Details()) == 1)
	}
}

func TestCallsAreMeasuredForAdapt(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, "rules: [{name: r, key: ip, limit: {rate: 2, per: 1m}, adapt: {latency: 1m}}]")
	require.NoError(t, book.Close()) // otherwise the Book takes the measurements out of the meter
	limits, err := New(node, book, Options{})
	require.NoError(t, err)
	measured := func() adapt.Sample {
		s := book.Current().Meter(book.Current().Rules()[0]).TakeSample(time.Now())
		s.Busy = 0
		return s
	}
	c := serve(t, &model{}, limits)
	require.NoError(t, ask(t.Context(), c, 1))
	require.Equal(t, adapt.Sample{Started: 1, Done: 1}, measured())
	require.Panics(t, func() {
		_, _ = limits.Unary()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.S/M"}, func(context.Context, any) (any, error) { panic("oh") })
	})
	require.Equal(t, adapt.Sample{Started: 1, Done: 1, Failed: 1}, measured())
	require.NoError(t, ask(t.Context(), c, 1))
	require.Equal(t, codes.ResourceExhausted, status.Code(ask(t.Context(), c, 1)))
	require.Equal(t, adapt.Sample{Started: 1, Done: 1, Denied: 1}, measured())
}

// sent is a stream that discards its messages.
type sent struct {
	grpc.ServerStream
	ctx context.Context
}

func (s sent) Context() context.Context   { return s.ctx }
func (sent) SendMsg(any) error            { return nil }
func (sent) SetHeader(metadata.MD) error  { return nil }
func (sent) SendHeader(metadata.MD) error { return nil }

func TestStreamIsMeasuredUntilItsFirstMessage(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, "rules: [{name: r, key: ip, limit: {rate: 2, per: 1m}, adapt: {latency: 1m}}]")
	require.NoError(t, book.Close()) // otherwise the Book takes the measurements out of the meter
	limits, err := New(node, book, Options{})
	require.NoError(t, err)
	m := book.Current().Meter(book.Current().Rules()[0])
	err = limits.Stream()(nil, sent{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a.S/M"}, func(_ any, stream grpc.ServerStream) error {
		require.Zero(t, m.TakeSample(time.Now()).Done)
		require.NoError(t, stream.SendMsg(nil))
		require.EqualValues(t, 1, m.TakeSample(time.Now()).Done)
		return status.Error(codes.Unavailable, "gone")
	})
	require.Error(t, err)
	s := m.TakeSample(time.Now())
	require.Equal(t, []int64{0, 1}, []int64{s.Done, s.Failed}, "the handler fails later")
}
