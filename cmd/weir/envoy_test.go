package main

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
)

func write(t *testing.T, text string) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "file.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func parsed(t *testing.T, args ...string) *serveOptions {
	t.Helper()
	o, err := parseServe(args)
	require.NoError(t, err)
	return o
}

func TestEnvoyCheckStartsNoServer(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, ok, run([]string{"envoy", "check", "../../contrib/envoy/testdata"}, &out, &errs))
	require.Equal(t, "../../contrib/envoy/testdata is good: messaging\n", out.String())
	name := write(t, "domain: d\nrules: []")
	require.Equal(t, bad, run([]string{"envoy", "check", name}, &out, &errs))
	require.Equal(t, name+":2:1: unknown field \"rules\": known are domain, descriptors\n", errs.String())
}

func TestFilesOfOneDomainAreCheckedTogether(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "b.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("domain: d\ndescriptors: [{key: "+name+"}]"), 0o600))
	}
	var out, errs bytes.Buffer
	require.Equal(t, bad, run([]string{"envoy", "check", dir}, &out, &errs))
	require.Contains(t, errs.String(), "-envoy_options=merge_domains")
	require.Equal(t, ok, run([]string{"envoy", "check", "-merge_domains", dir}, &out, &errs))
	require.Equal(t, dir+" is good: d\n", out.String())
	errs.Reset()
	require.Equal(t, usage, run([]string{"envoy", "check"}, &out, &errs))
	require.Equal(t, "weir envoy check: expected \"<path>\"\nusage: weir envoy check <path> [flags]\nweir envoy check --help lists the flags\n", errs.String())
	require.True(t, parsed(t, "-envoy", ":0", "-envoy_config", dir, "-envoy_options", "merge_domains").limits(nil).MergeDomains)
}

func TestSharedFileWithoutSecretIsRefused(t *testing.T) {
	_, _, err := readShared(write(t, "seed: 00"))
	require.ErrorContains(t, err, `has no line that begins with "secret:"`)
}

// replica is a running node in this process.
type replica struct {
	reached
	node *weir.Node
	rpc  rls.RateLimitServiceClient // nil if the node does not serve Envoy
	stop context.CancelFunc         // starts the leave
	done chan error                 // the result of runServe
}

// begin starts a node with all ports, with the files of a folder.
func begin(t *testing.T, asking credentials.TransportCredentials, dir string, args ...string) *replica {
	t.Helper()
	r := beginWith(t, asking, serving(dir, args...)...)
	r.dir = dir
	return r
}

// beginWith starts a node with only the given flags.
func beginWith(t *testing.T, asking credentials.TransportCredentials, args ...string) *replica {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &replica{reached: reached{addrs: make(map[string]string)}, stop: stop, done: make(chan error, 1)}
	o := parsed(t, args...)
	o.Timeout = 10 * time.Second // so that the owner decides each check, even on a busy machine
	serving, ended := make(chan *served, 1), make(chan struct{})
	o.ready = func(s *served) { serving <- s }
	var log lab.Text
	go func() {
		defer close(ended)
		r.done <- runServe(ctx, t.Context(), o, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		if t.Failed() {
			t.Logf("%q:\n%s", args, &log)
		}
	})
	select {
	case s := <-serving:
		r.node = s.node
		maps.Copy(r.addrs, s.addrs)
	case <-ended:
		require.NoError(t, <-r.done)
	case <-time.After(eventually):
		t.Fatal("it does not serve")
	}
	if addr := r.addrs["envoy"]; addr != "" {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(asking))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		r.rpc = rls.NewRateLimitServiceClient(conn)
	}
	return r
}

// envoyRequest returns a request of Envoy for the limit of a user.
func envoyRequest(user string) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{
		{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: user}}},
	}}
}

func (r *replica) remaining(t *testing.T) int {
	t.Helper()
	answer, err := r.rpc.ShouldRateLimit(t.Context(), envoyRequest("u"))
	require.NoError(t, err)
	return int(answer.Statuses[0].LimitRemaining)
}
