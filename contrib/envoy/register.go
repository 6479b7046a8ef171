package envoylimit

import (
	"context"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/contrib/envoy/kuadrant"
)

// Register registers Envoy's and Kuadrant's rate limit service, grpc.health.v1 and
// reflection on a server. The health follows weir.Node.Ready, and is NOT_SERVING after
// Drain. A node that leaves still answers requests.
func (s *Service) Register(on *grpc.Server) {
	rls.RegisterRateLimitServiceServer(on, s)
	kuadrant.RegisterRateLimitServiceServer(on, &kuadrantServer{of: s})
	health.RegisterHealthServer(on, &healthServer{of: s})
	reflection.Register(on)
}

// Drain sets the health to NOT_SERVING permanently. Call Drain before the node leaves, so
// that Envoy uses other nodes by the time the server stops. Checks are answered as
// before. A client that watches the health is notified at once. Its stream ends within a
// second or two, so that GracefulStop need not wait for it. Drain may be called more than
// once.
func (s *Service) Drain() { s.drain.Do(func() { close(s.drained) }) }

func (s *Service) isDrained() bool {
	select {
	case <-s.drained:
		return true
	default:
		return false
	}
}

// healthServer reports whether the node is ready, for the server as a whole and for the
// rate limit services.
type healthServer struct {
	health.UnimplementedHealthServer
	of *Service
}

// healthEvery is the interval at which Watch checks the health.
const healthEvery = time.Second

func (h *healthServer) status() health.HealthCheckResponse_ServingStatus {
	if h.of.node.Ready() && !h.of.isDrained() {
		return health.HealthCheckResponse_SERVING
	}
	return health.HealthCheckResponse_NOT_SERVING
}

func isKnownService(service string) bool {
	return service == "" || service == rls.RateLimitService_ServiceDesc.ServiceName || service == kuadrant.RateLimitService_ServiceDesc.ServiceName
}

func (h *healthServer) Check(_ context.Context, req *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	if !isKnownService(req.GetService()) {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &health.HealthCheckResponse{Status: h.status()}, nil
}

func (h *healthServer) List(context.Context, *health.HealthListRequest) (*health.HealthListResponse, error) {
	is := &health.HealthCheckResponse{Status: h.status()}
	return &health.HealthListResponse{Statuses: map[string]*health.HealthCheckResponse{
		"": is, rls.RateLimitService_ServiceDesc.ServiceName: is, kuadrant.RateLimitService_ServiceDesc.ServiceName: is,
	}}, nil
}

func (h *healthServer) Watch(req *health.HealthCheckRequest, stream grpc.ServerStreamingServer[health.HealthCheckResponse]) error {
	tick := time.Tick(healthEvery)
	told, drained := health.HealthCheckResponse_UNKNOWN, h.of.drained
	for {
		is := health.HealthCheckResponse_SERVICE_UNKNOWN
		if isKnownService(req.GetService()) {
			is = h.status()
		}
		if is != told {
			if err := stream.Send(&health.HealthCheckResponse{Status: is}); err != nil {
				return err
			}
			told = is
		}
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-drained:
			drained = nil
		case <-tick:
			// Do not end the stream at once: a client that has received a status
			// reconnects without a pause.
			if drained == nil {
				return status.Error(codes.Unavailable, "this node leaves: ask another node")
			}
		}
	}
}
