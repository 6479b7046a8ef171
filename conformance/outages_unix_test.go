//go:build unix

package conformance

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

const outageRules = `
denied: {detail: "Come back in {retry_after} seconds."}
rules:
- {name: few, match: {path: /api/few}, key: ip, limit: {rate: 1, per: 1h}}
- {name: login, match: {path: /login}, key: ip, limit: {rate: 100000, per: 1h}}
`

// clientOf is a client of a service behind a proxy.
type clientOf struct {
	*proxiedService
	t *testing.T
}

// got is the response to a client.
type got struct {
	*http.Response
	body string
	took time.Duration
}

func (c *clientOf) ask(method, path, accept string) got {
	r, err := http.NewRequest(method, c.url+path, nil)
	require.NoError(c.t, err)
	if method == "POST" {
		r, err = http.NewRequest(method, c.url+path, strings.NewReader(strings.Repeat("x", 100_000)))
		require.NoError(c.t, err)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	since := time.Now()
	answer, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(c.t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, answer.Body.Close())
	return got{answer, string(body), time.Since(since)}
}

// awaitStatus sends requests until a response has the given status: a busy machine can be
// slower than the timeouts of the proxy, and a process stops some time after its signal.
func (c *clientOf) awaitStatus(path, accept string, status int) (answer got) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		answer = c.ask("GET", path, accept)
		return answer.StatusCode == status
	}, time.Minute, time.Millisecond, "%s: %d", path, status)
	return answer
}

// requireDenied checks that clients get a denial with the given status, each in the form
// that the client accepts.
func (c *clientOf) requireDenied(path string, status int) {
	c.t.Helper()
	for accept, form := range map[string]string{
		"": "application/problem+json", "application/problem+json, application/json": "application/problem+json",
		"application/json": "application/json", "text/html,application/xhtml+xml": "text/html",
	} {
		answer := c.awaitStatus(path, accept, status)
		media, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
		require.Equal(c.t, form, media, accept)
		require.NotEmpty(c.t, answer.Header.Get("Retry-After"))
		if form == "text/html" {
			require.NotEmpty(c.t, answer.body)
			continue
		}
		var fields map[string]any
		require.NoError(c.t, json.Unmarshal([]byte(answer.body), &fields), answer.body)
		if form == "application/problem+json" {
			require.EqualValues(c.t, status, fields["status"])
		} else {
			require.NotEmpty(c.t, fields["error"])
		}
	}
}

// requireOutage checks the responses to clients while no node can be reached.
func (c *clientOf) requireOutage(name string) {
	c.t.Helper()
	c.awaitStatus("/login", "", 503)
	served := c.served.Load()
	c.requireDenied("/login", 503)
	require.Equal(c.t, served, c.served.Load())
	for _, method := range []string{"GET", "POST"} {
		served := c.served.Load()
		require.Equal(c.t, 200, c.ask(method, "/api/few", "").StatusCode)
		require.Equal(c.t, served+1, c.served.Load())
		if method == "POST" {
			require.Equal(c.t, "POST /api/few 100000 bytes", *c.last.Load())
		}
	}
	for _, path := range []string{"/login", "/api/few"} {
		var all []time.Duration
		for range 5 {
			all = append(all, c.ask("GET", path, "").took)
		}
		slices.Sort(all)
		c.t.Logf("%s: %s: median %v, maximum %v", name, path, all[2], all[4])
		require.Less(c.t, all[0], 5*time.Second, "an answer within the timeouts of the proxy")
	}
}

// TestProxiesAnswerWithoutANode runs the documented proxies while weir serve is stopped, paused or broken.
func TestProxiesAnswerWithoutANode(t *testing.T) {
	weir, rules := filepath.Join(t.TempDir(), "weir"), filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(outageRules), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", weir, "github.com/weir-go/weir/cmd/weir").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"nginx", "Caddy, longer form"} {
		t.Run(name, func(t *testing.T) {
			c := &clientOf{new(proxiedService), t}
			checks, addr := lab.FreeAddr(t), lab.FreeAddr(t)
			c.url = "http://" + addr
			proxies[name](t, func(site string) string { return site }, addr, checks, c.service(t))
			serve := func() *os.Process {
				p := begin(t, checks, weir, "serve", "-rules", rules, "-checks", checks, "-health", "")
				c.awaitStatus("/login", "", 200)
				return p
			}

			node := serve()
			c.requireDenied("/api/few", 429)
			for path, status := range map[string]int{"/api/fails": 500, "/api/crashes": 502} {
				served := c.served.Load()
				answer := c.ask("POST", path, "")
				require.Equal(t, status, answer.StatusCode, "the service fails")
				require.Equal(t, served+1, c.served.Load(), "it is asked once")
			}

			require.NoError(t, node.Signal(syscall.SIGSTOP))
			c.requireOutage("frozen")
			require.NoError(t, node.Signal(syscall.SIGCONT))
			c.awaitStatus("/login", "", 200)

			require.NoError(t, node.Kill())
			require.Eventually(t, func() bool {
				conn, err := net.Dial("tcp", checks)
				if err == nil {
					_ = conn.Close()
				}
				return err != nil
			}, time.Minute, time.Millisecond)
			c.requireOutage("killed")

			for _, status := range []int{500, 503} {
				l, err := net.Listen("tcp", checks)
				require.NoError(t, err)
				broken := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
				require.NoError(t, broken.Listener.Close())
				broken.Listener = l
				broken.Start()
				c.requireOutage(http.StatusText(status))
				broken.Close()
			}

			serve()
			c.requireDenied("/api/few", 429)
		})
	}
}
