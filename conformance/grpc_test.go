package conformance

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	grpclimit "github.com/weir-go/weir/contrib/grpc"
)

// The interceptors send the HTTP header fields as metadata.
func TestStrictestInterceptorSetsMetadata(t *testing.T) {
	for about, ask := range map[string]func(context.Context, grpc_health_v1.HealthClient, *metadata.MD) error{
		"unary": func(ctx context.Context, c grpc_health_v1.HealthClient, header *metadata.MD) error {
			_, err := c.Check(ctx, new(grpc_health_v1.HealthCheckRequest), grpc.Header(header))
			return err
		},
		"stream": func(ctx context.Context, c grpc_health_v1.HealthClient, header *metadata.MD) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := c.Watch(ctx, new(grpc_health_v1.HealthCheckRequest))
			require.NoError(t, err)
			_, err = stream.Recv()
			*header, _ = stream.Header()
			return err
		},
	} {
		t.Run(about, func(t *testing.T) {
			serve := func(t *testing.T, limits ...*weir.Limiter) func() (bool, http.Header) {
				client := serveGRPC(t, limits...)
				return func() (bool, http.Header) {
					var md metadata.MD
					err := ask(t.Context(), client, &md)
					require.Contains(t, []codes.Code{codes.OK, codes.ResourceExhausted}, status.Code(err))
					header := make(http.Header)
					for name, values := range md {
						header[http.CanonicalHeaderKey(name)] = values
					}
					return err == nil, header
				}
			}
			requireStrictest(t, serve)
			requireOnce(t, serve)
		})
	}
}

func serveGRPC(t *testing.T, limits ...*weir.Limiter) grpc_health_v1.HealthClient {
	var unary []grpc.UnaryServerInterceptor
	var streams []grpc.StreamServerInterceptor
	for _, l := range limits {
		m, err := grpclimit.ByLimiter(l, grpclimit.Options{})
		require.NoError(t, err)
		unary, streams = append(unary, m.Unary()), append(streams, m.Stream())
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(streams...))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}
