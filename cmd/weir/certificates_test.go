package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/anypb"
)

// certified writes a self-signed certificate for 127.0.0.1.
func certified(t *testing.T) files {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	f := files{filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "cert")}
	require.NoError(t, os.WriteFile(f.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	require.NoError(t, os.WriteFile(f.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return f
}

// once is a management server that sends a single configuration.
type once struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	answer *discovery.DiscoveryResponse
	taken  chan struct{}
}

func (o *once) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(o.answer); err != nil {
		return err
	}
	req, err := stream.Recv()
	if err == nil && req.GetVersionInfo() == "1" {
		close(o.taken)
		<-stream.Context().Done()
	}
	return errors.New("the end")
}

func TestManagementServerAndEnvoyUseCertificates(t *testing.T) {
	t.Parallel()
	f := certified(t)
	serving, asking, err := f.credentials()
	require.NoError(t, err)
	resource, err := anypb.New(&rlsconf.RateLimitConfig{Domain: "d", Descriptors: []*rlsconf.RateLimitDescriptor{
		{Key: "user", RateLimit: &rlsconf.RateLimitPolicy{RequestsPerUnit: 10, Unit: rlsconf.RateLimitUnit_HOUR}},
	}})
	require.NoError(t, err)
	m := &once{answer: &discovery.DiscoveryResponse{VersionInfo: "1", TypeUrl: resource.TypeUrl, Resources: []*anypb.Any{resource}}, taken: make(chan struct{})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.Creds(serving))
	discovery.RegisterAggregatedDiscoveryServiceServer(server, m)
	go server.Serve(listener)
	t.Cleanup(server.Stop)

	r := beginWith(t, asking, "-bind", "127.0.0.1:0", "-checks", "127.0.0.1:0", "-health", "127.0.0.1:0", "-envoy", "127.0.0.1:0", "-envoy_config", "xds://n@"+listener.Addr().String(), "-envoy_tls", f.Cert+","+f.Key+","+f.CA)
	select {
	case <-m.taken:
	case <-time.After(eventually):
		t.Fatal("the configuration was not taken")
	}
	require.Equal(t, 9, r.remaining(t))

	plain, err := grpc.NewClient(r.addrs["envoy"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer plain.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = health.NewHealthClient(plain).Check(ctx, &health.HealthCheckRequest{})
	require.Error(t, err, "who has no certificate is refused")
	r.stop()
	require.NoError(t, <-r.done)
}

func TestInvalidCertificateFilesAreRefused(t *testing.T) {
	t.Parallel()
	f := certified(t)
	_, _, err := files{f.Cert, f.Key, f.Key}.credentials()
	require.ErrorContains(t, err, "has no certificate in PEM")
	_, _, err = files{f.Cert, f.Cert, f.CA}.credentials()
	require.Error(t, err)
	_, _, err = files{f.Cert, f.Key, "none"}.credentials()
	require.Error(t, err)
}
