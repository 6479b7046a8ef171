package httplimit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/freeport"
	"github.com/weir-go/weir/internal/lab"
)

const (
	// Addresses in docs/proxies.md.
	documentedWeir, documentedService = "127.0.0.1:8080", "127.0.0.1:9000"

	proxyRules = `
rules:
- {name: api, match: {path: /api/}, key: ip, limit: {rate: 3, per: 1h}}
- {name: uploads, match: {path: /uploads, method: POST}, key: ip, limit: {rate: 2, per: 1h}}
- {name: down, match: {path: /down}, key: ip, partition: fail_closed, limit: {rate: 1, per: 1h}}
- {name: free, match: {path: /free}, key: ip, limit: {rate: 1000000000, per: 1h}}
`
)

// documented returns the fences of a kind in docs/proxies.md.
func documented(t testing.TB, kind string) (fences []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/proxies.md")
	require.NoError(t, err)
	for _, part := range strings.Split(string(text), "```"+kind+"\n")[1:] {
		fence, _, ok := strings.Cut(part, "\n```")
		require.True(t, ok)
		fences = append(fences, fence)
	}
	require.NotEmpty(t, fences, kind)
	return fences
}

// proxied is a real proxy in front of a service, which asks a node.
type proxied struct {
	*adminOf
	url     string
	service *httptest.Server
	served  atomic.Int64 // requests that came to the service
	last    atomic.Pointer[string]
}

// setUp has a service and a node that answers proxies.
func setUp(t testing.TB) *proxied {
	p := &proxied{adminOf: adminOfRules(t, proxyRules)}
	p.service = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		seen := fmt.Sprintf("%s %s %d bytes", r.Method, r.RequestURI, n)
		p.last.Store(&seen)
		p.served.Add(1)
		if r.URL.Path == "/forbidden" {
			http.Error(w, "the service's own", http.StatusForbidden)
		}
	}))
	t.Cleanup(p.service.Close)
	return p
}

// begin starts a program of Debian's and waits until it serves at addr.
func (p *proxied) begin(addr string, program string, args ...string) {
	t := p.t
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed: apt-get install %s", program, program)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var out bytes.Buffer // to be read once it has ended
	c := exec.CommandContext(ctx, path, args...)
	c.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir(), "XDG_DATA_HOME="+t.TempDir())
	c.Stdout, c.Stderr = &out, &out
	lab.TieToParent(c)
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // which the system takes for the parent
		err := c.Start()
		started <- err
		if err == nil {
			_ = c.Wait() // which reports that it was killed
		}
	}()
	stop := func() { cancel(); <-ended }
	t.Cleanup(stop)
	require.NoError(t, <-started)
	p.url = "http://" + addr
	late := time.After(time.Minute)
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
			continue
		case <-ended:
		case <-late:
			stop()
		}
		t.Fatalf("%s does not serve at %s: %v\n%s", program, addr, err, &out)
	}
}

// nginx starts nginx with the documented configuration; without asks nobody.
func (p *proxied) nginx(weir string, without bool) {
	addr := freeport.Addr(p.t)
	site := documented(p.t, "nginx")[0]
	if without {
		site = strings.Replace(site, "auth_request /weir;", "auth_request off;", 1)
	}
	site = strings.NewReplacer(documentedWeir, weir, documentedService, strings.TrimPrefix(p.service.URL, "http://"), "listen 8000", "listen "+addr).Replace(site)
	dir := p.t.TempDir()
	text := "daemon off; master_process off; error_log stderr; pid " + dir + "/pid;\nevents {}\nhttp {\naccess_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		text += kind + "_temp_path " + filepath.Join(dir, kind) + ";\n"
	}
	name := filepath.Join(dir, "nginx.conf")
	require.NoError(p.t, os.WriteFile(name, []byte(text+site+"}\n"), 0o600))
	p.begin(addr, "nginx", "-e", "stderr", "-p", dir, "-c", name)
}

// caddy starts Caddy with a documented configuration; without asks nobody.
func (p *proxied) caddy(form int, weir string, without bool) {
	addr := freeport.Addr(p.t)
	site := documented(p.t, "caddyfile")[form]
	if without {
		before, _, _ := strings.Cut(site, "\tforward_auth")
		_, after, _ := strings.Cut(site, "\n\t}\n")
		site = before + after
	}
	host, port, err := net.SplitHostPort(addr)
	require.NoError(p.t, err)
	site = strings.NewReplacer(documentedWeir, weir, documentedService, strings.TrimPrefix(p.service.URL, "http://"), ":8000 {\n", ":"+port+" {\n\tbind "+host+"\n").Replace(site)
	name := filepath.Join(p.t.TempDir(), "Caddyfile")
	require.NoError(p.t, os.WriteFile(name, []byte("{\n\tadmin off\n\tauto_https off\n}\n"+site+"\n"), 0o600))
	p.begin(addr, "caddy", "run", "--adapter", "caddyfile", "--config", name)
}

// ask sends a request through the proxy.
func (p *proxied) ask(method, path string, body string, fields ...string) *http.Response {
	r, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	require.NoError(p.t, err)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(p.t, err)
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(p.t, err)
	require.NoError(p.t, answer.Body.Close())
	return answer
}

func TestProxiesAskAndDeny(t *testing.T) {
	for name, c := range map[string]struct {
		begin  func(p *proxied, weir string)
		fields bool // shown to clients that are allowed
		unable int  // what clients get where the node cannot be asked
	}{
		"nginx":              {func(p *proxied, weir string) { p.nginx(weir, false) }, true, 500},
		"Caddy":              {func(p *proxied, weir string) { p.caddy(0, weir, false) }, false, 502},
		"Caddy, longer form": {func(p *proxied, weir string) { p.caddy(1, weir, false) }, true, 502},
	} {
		t.Run(name, func(t *testing.T) {
			p := setUp(t)
			checks, err := Checks(p.node, p.book, CheckOptions{Open: true, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			weir := httptest.NewServer(checks)
			t.Cleanup(weir.Close)
			c.begin(p, strings.TrimPrefix(weir.URL, "http://"))

			// What a client tells of itself changes nothing.
			lies := []string{"X-Forwarded-For", "198.51.100.1", "X-Forwarded-Uri", "/free", "X-Forwarded-Method", "PUT", "X-Forwarded-Host", "h",
				"X-Original-URI", "/free", "X-Original-Method", "PUT", "X-Real-Ip", "198.51.100.2", "Authorization", "Bearer x"}
			for i := range 3 {
				lies[1] = fmt.Sprintf("198.51.100.%d", i)
				answer := p.ask("GET", "/api/%69tems?a=b", "", lies...)
				require.Equal(t, 200, answer.StatusCode)
				require.Equal(t, "GET /api/%69tems?a=b 0 bytes", *p.last.Load())
				if c.fields {
					require.Equal(t, "3", answer.Header.Get("X-RateLimit-Limit"))
					require.Equal(t, fmt.Sprint(2-i), answer.Header.Get("X-RateLimit-Remaining"))
					require.Regexp(t, fmt.Sprintf(`^"api";r=%d;t=\d+$`, 2-i), answer.Header.Get("RateLimit"))
					require.Empty(t, answer.Header.Get("Retry-After"))
				}
			}
			for _, method := range []string{"GET", "HEAD", "DELETE"} {
				answer := p.ask(method, "/api/items", "", lies...)
				require.Equal(t, 429, answer.StatusCode)
				require.Regexp(t, `^[1-9]\d*$`, answer.Header.Get("Retry-After"))
				require.Regexp(t, `^"api";r=0;t=\d+$`, answer.Header.Get("RateLimit"))
				require.Equal(t, `"api";q=3;w=3600`, answer.Header.Get("RateLimit-Policy"))
				require.Equal(t, "0", answer.Header.Get("X-RateLimit-Remaining"))
				require.Equal(t, "3", answer.Header.Get("X-RateLimit-Limit"))
				require.NotEmpty(t, answer.Header.Get("X-RateLimit-Reset"))
			}
			require.EqualValues(t, 3, p.served.Load(), "what is denied does not come to the service")

			const size = 100_000
			for range 2 {
				require.Equal(t, 200, p.ask("POST", "/uploads", strings.Repeat("x", size)).StatusCode)
				require.Equal(t, fmt.Sprintf("POST /uploads %d bytes", size), *p.last.Load())
			}
			require.Equal(t, 429, p.ask("POST", "/uploads", strings.Repeat("x", size)).StatusCode)
			require.Equal(t, 200, p.ask("PUT", "/uploads", "x").StatusCode, "another method")

			answer := p.ask("GET", "/other", "")
			require.Equal(t, 200, answer.StatusCode)
			require.Equal(t, "GET /other 0 bytes", *p.last.Load())
			require.NotContains(t, answer.Header, "X-Ratelimit-Limit", "no rule is about it")
			require.Equal(t, 403, p.ask("GET", "/forbidden", "").StatusCode, "of the service")
			require.Equal(t, 400, p.ask("GET", "/a;b/c", "").StatusCode, "an ambiguous path")

			served := p.served.Load()
			require.NoError(t, p.node.Close())
			answer = p.ask("GET", "/down", "")
			require.Equal(t, 503, answer.StatusCode)
			require.NotEmpty(t, answer.Header.Get("Retry-After"))
			weir.Close()
			require.Equal(t, c.unable, p.ask("GET", "/other", "").StatusCode, "nobody can be asked")
			require.Equal(t, served, p.served.Load())
		})
	}
}

// BenchmarkProxies is a request through a proxy that asks a node first, beside one through
// the same proxy that asks nobody. All of them share the machine.
func BenchmarkProxies(b *testing.B) {
	for name, begin := range map[string]func(p *proxied, weir string, without bool){
		"nginx": (*proxied).nginx,
		"caddy": func(p *proxied, weir string, without bool) { p.caddy(0, weir, without) },
	} {
		for _, without := range []bool{true, false} {
			b.Run(fmt.Sprintf("proxy=%s/asks=%v", name, !without), func(b *testing.B) {
				p := setUp(b)
				checks, err := Checks(p.node, p.book, CheckOptions{Open: true, Logger: slog.New(slog.DiscardHandler)})
				require.NoError(b, err)
				weir := httptest.NewServer(checks)
				b.Cleanup(weir.Close)
				begin(p, strings.TrimPrefix(weir.URL, "http://"), without)
				transport := &http.Transport{MaxIdleConnsPerHost: 64}
				b.Cleanup(transport.CloseIdleConnections)
				b.SetParallelism(max(1, 16/runtime.GOMAXPROCS(0)))
				b.ResetTimer()
				b.RunParallel(func(each *testing.PB) {
					for each.Next() {
						r, _ := http.NewRequest("GET", p.url+"/free", nil)
						answer, err := transport.RoundTrip(r)
						if err != nil || answer.StatusCode != 200 {
							b.Errorf("%v %v", answer, err)
							return
						}
						_, _ = io.Copy(io.Discard, answer.Body)
						_ = answer.Body.Close()
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			})
		}
	}
}
