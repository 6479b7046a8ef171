package ports

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// What the bounds of a Port cost a request of gRPC: the difference to a server without.
func BenchmarkRequestOfGRPC(b *testing.B) {
	register := func(s *grpc.Server) { healthpb.RegisterHealthServer(s, health.NewServer()) }
	for _, bounded := range []bool{false, true} {
		name := "without bounds"
		if bounded {
			name = "bounded"
		}
		b.Run(name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			server := grpc.NewServer()
			if bounded {
				p := NewBudget(1024, quiet).Clients(l, "bench")
				server, l = p.NewRPC(insecure.NewCredentials(), register), p
			} else {
				register(server)
			}
			go server.Serve(l)
			defer server.Stop()
			conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(b, err)
			defer conn.Close()
			client := healthpb.NewHealthClient(conn)
			ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second) // Envoy sends one
			defer cancel()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
