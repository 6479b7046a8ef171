package main

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weir-go/weir"
	grpclimit "github.com/weir-go/weir/contrib/grpc"
	"github.com/weir-go/weir/rules"
	"github.com/weir-go/weir/service"
)

// serveGRPC limits the health service, which needs no generated code.
func serveGRPC(perKey *weir.Limiter, l net.Listener) (service.Server, error) {
	keyOf := grpclimit.MetadataValue("x-api-key")
	limit, err := grpclimit.ByLimiter(perKey, grpclimit.Options{Key: func(ctx context.Context, _ *rules.Request) (string, bool) {
		return keyOf(ctx), true // an empty key stands for the client address
	}})
	if err != nil {
		return service.Server{}, err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary()), grpc.ChainStreamInterceptor(limit.Stream()))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return service.Server{
		Serve: func() error { return server.Serve(l) },
		Shutdown: func(ctx context.Context) error {
			defer context.AfterFunc(ctx, server.Stop)()
			server.GracefulStop()
			return ctx.Err()
		},
	}, nil
}
