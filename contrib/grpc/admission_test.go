package grpclimit

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

// model responds with the number of bytes that a request asks for. Each byte costs a
// unit.
type model struct {
	pb.UnimplementedTestServiceServer
	entered, proceed chan struct{} // if not nil, each call sends to entered, and then waits for proceed
	trailer          string        // trailer of each call; may be empty
}

func (m *model) work() {
	if m.proceed != nil {
		m.entered <- struct{}{}
		<-m.proceed
	}
}

func (m *model) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	m.work()
	if m.trailer != "" {
		if err := grpc.SetTrailer(ctx, metadata.Pairs("x-cost", m.trailer)); err != nil {
			return nil, err
		}
	}
	if r.ResponseSize == 0 {
		return nil, status.Error(codes.InvalidArgument, "nothing to say")
	}
	return &pb.SimpleResponse{Payload: &pb.Payload{Body: make([]byte, r.ResponseSize)}}, nil
}

// StreamingOutputCall sends the requested messages. Each message contains the usage so
// far.
func (m *model) StreamingOutputCall(r *pb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	m.work()
	sum := 0
	for _, p := range r.ResponseParameters {
		sum += int(p.Size)
		if err := stream.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, sum)}}); err != nil {
			return err
		}
	}
	if m.trailer != "" {
		stream.SetTrailer(metadata.Pairs("x-cost", m.trailer))
	}
	return nil
}

// usage is an Options.Settle. It returns the size of the payload in a response.
func usage(response any) (int64, bool) {
	r, ok := response.(interface{ GetPayload() *pb.Payload })
	return int64(len(r.GetPayload().GetBody())), ok
}

func limiter(t *testing.T, l weir.Limit) *weir.Limiter {
	t.Helper()
	return testnode.Limiter(t, testnode.Start(t, weir.Config{}), l)
}

func serveModel(t *testing.T, m *model, l *weir.Limiter, o Options) pb.TestServiceClient {
	t.Helper()
	return serve(t, m, byLimiter(t, l, o))
}

func ask(ctx context.Context, c pb.TestServiceClient, units int32) error {
	_, err := c.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: units})
	return err
}

func read(stream grpc.ServerStreamingClient[pb.StreamingOutputCallResponse]) (messages int, err error) {
	for {
		if _, err := stream.Recv(); err != nil {
			return messages, err
		}
		messages++
	}
}

// perMethod is an Options.Key.
func perMethod(_ context.Context, r *rules.Request) (string, bool) { return r.Path, true }

// requireSpent waits until a key has spent the given units of 1000, because settlements are
// asynchronous.
func requireSpent(t *testing.T, l *weir.Limiter, key string, units int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := l.Peek(t.Context(), key)
		return err == nil && d.Remaining == 1000-units
	}, 10*time.Second, time.Millisecond, "%s spends %d", key, units)
}

var inFlight = weir.Limit{Name: "calls", Algorithm: weir.InFlight, Rate: 2}

func TestStreamHoldsUnitUntilClientIsGone(t *testing.T) {
	m := &model{entered: make(chan struct{}), proceed: make(chan struct{})}
	defer close(m.proceed)
	c := serveModel(t, m, limiter(t, weir.Limit{Name: "streams", Algorithm: weir.InFlight, Rate: 1}), Options{})
	for range 3 {
		ctx, leave := context.WithCancel(t.Context())
		require.Eventually(t, func() bool {
			stream, err := c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{})
			require.NoError(t, err)
			denied := make(chan struct{})
			go func() { _, _ = stream.Recv(); close(denied) }()
			select {
			case <-m.entered:
				return true
			case <-denied:
				return false
			}
		}, 30*time.Second, 10*time.Millisecond, "the handlers before do not return")
		leave()
	}
}

func TestCostIsReadFromMessagesOrTrailer(t *testing.T) {
	for about, c := range map[string]struct {
		settle, settleTrailer bool
		trailer               string
		units                 []int32
		want                  int64
	}{
		"less than the estimate":  {settle: true, units: []int32{10}, want: 10},
		"more than the estimate":  {settle: true, units: []int32{400}, want: 400},
		"the last message":        {settle: true, units: []int32{50, 60, 70}, want: 180},
		"the trailer":             {settleTrailer: true, trailer: "7", units: []int32{10}, want: 7},
		"a cost of nothing":       {settleTrailer: true, trailer: "0", units: []int32{10}, want: 0},
		"the trailer before all":  {settle: true, settleTrailer: true, trailer: "8", units: []int32{10}, want: 8},
		"a trailer that is wrong": {settle: true, settleTrailer: true, trailer: "-8", units: []int32{10}, want: 10},
		"none is told":            {settleTrailer: true, units: []int32{10}, want: 50},
	} {
		t.Run(about, func(t *testing.T) {
			l := limiter(t, weir.Limit{Name: "tokens", Algorithm: weir.FixedWindow, Rate: 1000, Per: time.Hour})
			log := new(bytes.Buffer)
			o := Options{Estimate: func(context.Context, any) int64 { return 50 }, Logger: slog.New(slog.NewTextHandler(log, nil))}
			o.Key = perMethod
			if c.settle {
				o.Settle = usage
			}
			if c.settleTrailer {
				o.SettleTrailer = "x-cost"
			}
			client := serveModel(t, &model{trailer: c.trailer}, l, o)
			for range 2 {
				var r pb.StreamingOutputCallRequest
				for _, units := range c.units {
					r.ResponseParameters = append(r.ResponseParameters, &pb.ResponseParameters{Size: units})
				}
				stream, err := client.StreamingOutputCall(t.Context(), &r)
				require.NoError(t, err)
				n, _ := read(stream)
				require.Len(t, c.units, n)
			}
			requireSpent(t, l, "/grpc.testing.TestService/StreamingOutputCall", 2*c.want)
			if len(c.units) == 1 {
				require.NoError(t, ask(t.Context(), client, c.units[0]))
				requireSpent(t, l, "/grpc.testing.TestService/UnaryCall", c.want)
			}
			warnings := 0
			if c.want == 50 {
				warnings = 1
			}
			require.Equal(t, warnings, strings.Count(log.String(), "units that a request did not use stay spent"), log.String())
		})
	}
}

func TestEstimateOfFailedCallStaysSpent(t *testing.T) {
	l := limiter(t, weir.Limit{Name: "tokens", Algorithm: weir.FixedWindow, Rate: 1000, Per: time.Hour})
	c := serveModel(t, new(model), l, Options{Settle: usage, Estimate: func(_ context.Context, request any) int64 { return 20 }, Key: perMethod})
	require.Equal(t, codes.InvalidArgument, status.Code(ask(t.Context(), c, 0)))
	requireSpent(t, l, "/grpc.testing.TestService/UnaryCall", 20)
}
