package grpclimit

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/outbound"
)

// refuser ends each call with an error and metadata.
type refuser struct {
	pb.UnimplementedTestServiceServer
	calls           atomic.Int64
	header, trailer metadata.MD
	err             error
}

func (s *refuser) EmptyCall(ctx context.Context, _ *pb.Empty) (*pb.Empty, error) {
	s.calls.Add(1)
	_, _ = grpc.SetHeader(ctx, s.header), grpc.SetTrailer(ctx, s.trailer)
	return &pb.Empty{}, s.err
}

func (s *refuser) FullDuplexCall(stream grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	s.calls.Add(1)
	_ = stream.SetHeader(s.header)
	stream.SetTrailer(s.trailer)
	return s.err
}

// dialGate starts a server, and returns a client with the interceptors of a Gate.
func dialGate(t *testing.T, s pb.TestServiceServer, gate *outbound.Gate) pb.TestServiceClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	pb.RegisterTestServiceServer(server, s)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(UnaryClient(gate)), grpc.WithStreamInterceptor(StreamClient(gate)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return pb.NewTestServiceClient(conn)
}

func newGate(t *testing.T, l outbound.Limit) *outbound.Gate {
	t.Helper()
	g, err := outbound.New(testnode.Start(t, weir.Config{}), outbound.Options{Limits: []outbound.Limit{l}})
	require.NoError(t, err)
	return g
}

var many = weir.Limit{Name: "many", Algorithm: weir.LeakyBucket, Rate: 1000, Per: time.Second}

// callOnce makes a unary call, or a stream of no messages, with a credential.
func callOnce(t *testing.T, c pb.TestServiceClient, streams bool, credential string) error {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", credential), 2*time.Second)
	defer cancel()
	if !streams {
		_, err := c.EmptyCall(ctx, &pb.Empty{})
		return err
	}
	stream, err := c.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	require.NoError(t, stream.CloseSend())
	if _, err = stream.Recv(); err == io.EOF {
		return nil
	}
	return err
}

func TestRefusalStopsCallsOfCredential(t *testing.T) {
	withDetails := func(code codes.Code) error {
		s, err := status.New(code, "no").WithDetails(&errdetails.QuotaFailure{}, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Hour)})
		require.NoError(t, err)
		return s.Err()
	}
	exhausted, unavailable := status.Error(codes.ResourceExhausted, "no"), status.Error(codes.Unavailable, "no")
	for _, c := range []struct {
		what  string
		s     *refuser
		stops bool
	}{
		{"RetryInfo", &refuser{err: withDetails(codes.ResourceExhausted)}, true},
		{"RetryInfo of UNAVAILABLE", &refuser{err: withDetails(codes.Unavailable)}, true},
		{"RetryInfo of ABORTED", &refuser{err: withDetails(codes.Aborted)}, false},
		{"pushback", &refuser{err: unavailable, trailer: metadata.Pairs("grpc-retry-pushback-ms", "3600000")}, true},
		{"no retry", &refuser{err: unavailable, trailer: metadata.Pairs("grpc-retry-pushback-ms", "-1")}, false},
		{"retry-after", &refuser{err: exhausted, header: metadata.Pairs("retry-after", "3600")}, true},
		{"ratelimit", &refuser{err: exhausted, header: metadata.Pairs("ratelimit", `"a";r=0;t=3600`)}, true},
		{"no field", &refuser{err: exhausted}, false},
		{"success", &refuser{header: metadata.Pairs("retry-after", "3600")}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, streams := range []bool{false, true} {
				gate := newGate(t, outbound.Limit{Host: "127.0.0.1", Limit: many})
				s := &refuser{err: c.s.err, header: c.s.header, trailer: c.s.trailer}
				client := dialGate(t, s, gate)
				require.Equal(t, status.Code(s.err), status.Code(callOnce(t, client, streams, "one")))
				begun := time.Now()
				again := callOnce(t, client, streams, "one")
				require.Equal(t, c.stops, status.Code(again) == codes.DeadlineExceeded, again)
				require.Less(t, time.Since(begun), time.Second)
				require.Equal(t, status.Code(s.err), status.Code(callOnce(t, client, streams, "two")))
				require.EqualValues(t, map[bool]int{false: 3, true: 2}[c.stops], s.calls.Load())
			}
		})
	}
}

func TestUnsentCallHasStatus(t *testing.T) {
	slow := weir.Limit{Name: "slow", Algorithm: weir.LeakyBucket, Rate: 1, Per: time.Hour, Burst: 2}
	s := &refuser{}
	node := testnode.Start(t, weir.Config{})
	gate, err := outbound.New(node, outbound.Options{Limits: []outbound.Limit{{Host: "*", Limit: slow}}})
	require.NoError(t, err)
	client := dialGate(t, s, gate)
	require.NoError(t, callOnce(t, client, false, ""))
	err = callOnce(t, client, false, "")
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	require.ErrorContains(t, err, `was not sent: the next turn of limit "slow" is in `)
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() {
		_, err := client.EmptyCall(ctx, &pb.Empty{})
		waits <- err
	}()
	require.Eventually(t, func() bool { return status.Code(callOnce(t, client, true, "")) == codes.ResourceExhausted }, 10*time.Second, time.Millisecond)
	cancel()
	require.Equal(t, codes.Canceled, status.Code(<-waits))
	require.NoError(t, node.Close())
	require.Equal(t, codes.Unavailable, status.Code(callOnce(t, client, false, "")))
	require.EqualValues(t, 1, s.calls.Load())
}

func TestCallsToOtherHostsDoNotWait(t *testing.T) {
	gate := newGate(t, outbound.Limit{Host: "example.com", Limit: weir.Limit{Name: "one", Algorithm: weir.LeakyBucket, Rate: 1, Per: time.Hour}})
	client := dialGate(t, &refuser{}, gate)
	for range 3 {
		require.NoError(t, callOnce(t, client, false, ""))
		require.NoError(t, callOnce(t, client, true, ""))
	}
	require.Zero(t, gate.Stats()["one"])
}

func TestGateReceivesHTTPRequestOfCall(t *testing.T) {
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", "secret", "trace-bin", "\x00")
	for target, host := range map[string]string{
		"dns:///api.example.com:443":      "api.example.com:443",
		"dns://8.8.8.8/api.example.com":   "api.example.com",
		"passthrough:///127.0.0.1:50051":  "127.0.0.1:50051",
		"unix:///run/api.sock":            "run/api.sock",
		"anything that is not understood": "",
	} {
		r := outgoing(ctx, target, "/shop.Orders/Create")
		require.Equal(t, host, r.URL.Host)
		require.Equal(t, "/shop.Orders/Create", r.URL.Path)
		require.Equal(t, http.Header{"X-Api-Key": {"secret"}}, r.Header)
		require.Equal(t, http.MethodPost, r.Method)
	}
}
