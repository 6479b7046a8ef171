package main

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	weirnode "github.com/weir-go/weir"
)

func TestANodeThatIsAliveSaysSoAndNothingElseDoes(t *testing.T) {
	status := http.StatusOK
	routes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/live" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
	})
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "health")
	unix, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := &http.Server{Handler: routes}
	t.Cleanup(func() { server.Close() })
	go server.Serve(tcp)
	go server.Serve(unix)
	_, port, _ := net.SplitHostPort(tcp.Addr().String())
	for _, addr := range []string{"127.0.0.1:" + port, "0.0.0.0:" + port, ":" + port, "unix:" + path} {
		var out, complaints bytes.Buffer
		require.Equal(t, ok, run([]string{"live", "-health", addr}, &out, &complaints), complaints.String())
		require.Equal(t, "alive\n", out.String())
	}
	status = http.StatusServiceUnavailable
	var out, complaints bytes.Buffer
	require.Equal(t, bad, run([]string{"live", "-health", "127.0.0.1:" + port}, &out, &complaints))
	require.Contains(t, complaints.String(), "503")
	server.Close()
	require.Equal(t, bad, run([]string{"live", "-health", "127.0.0.1:" + port}, &out, &complaints))
	require.Equal(t, usage, run([]string{"live", "now"}, &out, &complaints))

	text, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	require.Contains(t, string(text), `CMD ["/weir", "live"]`)
}

func TestANodeThatWasToldToLeaveIsNotReadyThoughItHasNotLeft(t *testing.T) {
	node, err := weirnode.Start(t.Context(), weirnode.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	s := &served{node: node, addrs: make(map[string]net.Addr), failed: make(chan error, 8)}
	t.Cleanup(func() { s.end(t.Context()) })
	require.NoError(t, s.http(&serveOptions{health: "127.0.0.1:0"}, nil, slog.New(slog.DiscardHandler)))
	ready := func() int {
		a, err := http.Get("http://" + s.addrs["health"].String() + "/ready")
		require.NoError(t, err)
		a.Body.Close()
		return a.StatusCode
	}
	require.Equal(t, http.StatusOK, ready())
	s.leaving.Store(true)
	require.Equal(t, http.StatusServiceUnavailable, ready())
	require.True(t, node.Ready())
}

func TestASecondSignalEndsANodeAtOnce(t *testing.T) {
	p := start(t, folder(t), "-leave_within", "10m")
	// A request that is not over keeps it from ending in order.
	conn, err := net.Dial("tcp", p.addrs["checks"])
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("POST /v1/take HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + checksToken + "\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"))
	require.NoError(t, err)
	var ended atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Wait()
		ended.Store(true)
	}()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return bytes.Contains([]byte(p.out.String()), []byte("msg=leaving")) }, 30*time.Second, 5*time.Millisecond)
	require.Eventually(t, func() bool { return ended.Load() || p.Process.Signal(syscall.SIGTERM) == nil && ended.Load() }, 30*time.Second, 20*time.Millisecond)
	<-done
}
