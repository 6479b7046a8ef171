package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLiveSucceedsOnlyForLiveNode(t *testing.T) {
	t.Parallel()
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
