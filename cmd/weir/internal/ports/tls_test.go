package ports

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// A port identifies its connections below TLS, so that requests over TLS prove them, too.
func TestRequestsOverTLSProveConnections(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	config := &tls.Config{Certificates: certified.TLS.Certificates}
	trusting := certified.Client().Transport.(*http.Transport).TLSClientConfig
	listen := func() *Port {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return NewBudget(1024, quiet).Clients(l, "test")
	}
	kept := func(p *Port) {
		require.Eventually(t, func() bool { return keeps(p) == 1 && opened(p) == 1 }, time.Minute, time.Millisecond)
	}

	web := listen()
	server := NewWeb(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "yes") }), log.New(io.Discard, "", 0))
	go server.Serve(tls.NewListener(web, config))
	defer server.Close()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: trusting}}
	defer client.CloseIdleConnections()
	a, err := client.Get("https://" + web.Addr().String())
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, a.Body) // otherwise the client closes the connection
	require.NoError(t, err)
	a.Body.Close()
	kept(web)

	rpc := listen()
	served := rpc.NewRPC(credentials.NewTLS(config), func(s *grpc.Server) { healthpb.RegisterHealthServer(s, health.NewServer()) })
	go served.Serve(rpc)
	defer served.Stop()
	named := trusting.Clone()
	named.ServerName = "example.com" // a name of the certificate
	conn, err := grpc.NewClient(rpc.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(named)))
	require.NoError(t, err)
	defer conn.Close()
	_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	kept(rpc)
}
