package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-go/weir"
)

func write(t *testing.T, text string) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "file.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func noEnvironment(string) (string, bool) { return "", false }

func parsed(t *testing.T, args ...string) serveOptions {
	t.Helper()
	var complaints bytes.Buffer
	o, err := parseServe(args, noEnvironment, &complaints)
	require.NoError(t, err, "%s", &complaints)
	return o
}

func TestAConfigurationIsCheckedWithoutServing(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, ok, run([]string{"envoy", "check", "../../contrib/envoy/testdata"}, &out, &errs))
	require.Equal(t, "../../contrib/envoy/testdata is good: messaging\n", out.String())
	name := write(t, "domain: d\nrules: []")
	require.Equal(t, bad, run([]string{"envoy", "check", name}, &out, &errs))
	require.Equal(t, name+":2:1: unknown field \"rules\": known are domain, descriptors\n", errs.String())
}

func TestSecretsAndSeedAreReadAsTheyArePrinted(t *testing.T) {
	var cfg weir.Config
	require.NoError(t, readShared(write(t, "secret: 6e6577\nseed: 736565640a\nsecret: 6f6c64\n"), &cfg))
	require.Equal(t, weir.Config{Secrets: [][]byte{[]byte("new"), []byte("old")}, Seed: []byte("seed\n")}, cfg)
	for _, text := range []string{"", "seed: 00", "secret: new", "seed: new\nsecret: 00"} {
		err := readShared(write(t, text), new(weir.Config))
		require.Error(t, err, "%q", text)
		require.NotContains(t, err.Error(), "new", "nothing of a secret is shown")
	}
	require.Error(t, readShared(t.TempDir(), new(weir.Config)))
	require.Error(t, readShared("none", new(weir.Config)))
}

// replica is a node that serves, in this process.
type replica struct {
	*served
	rpc  rls.RateLimitServiceClient // nil if it does not serve Envoy
	stop context.CancelFunc
	done chan error
}

// begin has a node serve; what is not said otherwise is on free ports.
func begin(t *testing.T, asking credentials.TransportCredentials, args ...string) *replica {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	r := &replica{stop: stop, done: make(chan error, 1)}
	o := parsed(t, append([]string{"-envoy", "127.0.0.1:0", "-bind", "127.0.0.1:0", "-checks", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-health", "127.0.0.1:0"}, args...)...)
	o.node.Timeout = 10 * time.Second // that no check is decided without its owner on a busy machine
	serving := make(chan *served, 1)
	o.ready = func(s *served) { serving <- s }
	go func() { r.done <- runServe(ctx, t.Context(), o, slog.New(slog.DiscardHandler)) }()
	select {
	case r.served = <-serving:
	case err := <-r.done:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("it does not serve")
	}
	if addr := r.addrs["envoy"]; addr != nil {
		conn, err := grpc.NewClient(addr.String(), grpc.WithTransportCredentials(asking))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		r.rpc = rls.NewRateLimitServiceClient(conn)
	}
	return r
}

func (r *replica) left(t *testing.T) int {
	t.Helper()
	answer, err := r.rpc.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{
		{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "u"}}},
	}})
	require.NoError(t, err)
	return int(answer.Statuses[0].LimitRemaining)
}

func TestADeployOfReplicasResetsNothing(t *testing.T) {
	name := write(t, "domain: d\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 10}}]")
	shared := write(t, "secret: 000102030405060708090a0b0c0d0e0f\nseed: 000102030405060708090a0b0c0d0e0f\n")
	old := begin(t, insecure.NewCredentials(), "-envoy_config", name, "-shared", shared)
	require.Equal(t, 9, old.left(t))
	next := begin(t, insecure.NewCredentials(), "-envoy_config", name, "-shared", shared, "-join", old.node.Members()[0].Addr)
	require.Eventually(t, func() bool { return len(old.node.Members()) == 2 && old.node.Ready() && next.node.Ready() }, 30*time.Second, 10*time.Millisecond)
	require.LessOrEqual(t, next.left(t), 8)
	old.stop()
	require.NoError(t, <-old.done)
	require.LessOrEqual(t, next.left(t), 7, "what was used with the one that has gone stays used")
	next.stop()
	require.NoError(t, <-next.done)
}
