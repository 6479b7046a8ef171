package conformance

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/admin"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testnode"
)

var proxied = flag.Int("proxied", 300, "how many targets go through each proxy")

// answers records, for a single request at a time, the rules that the check API has
// matched and the handlers that were reached behind the proxy.
type answers struct {
	sync.Mutex
	met, handlers []string
}

var policy = regexp.MustCompile(`"([a-z]+)";q=`)

// checks starts a check API that answers a proxy by the rules of the routes.
func (a *answers) checks(t *testing.T) *httptest.Server {
	node := testnode.Start(t, weir.Config{})
	h, err := admin.CheckHandler(node, testnode.Book(t, node, ruleFile()), admin.CheckOptions{Open: true, Logger: quiet})
	require.NoError(t, err)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		a.Lock()
		defer a.Unlock()
		for _, name := range policy.FindAllStringSubmatch(w.Header().Get("RateLimit-Policy"), -1) {
			a.met = append(a.met, name[1])
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// service starts a service in which several routers read each request: two routers of Go,
// a router that decodes first, and a router that ends the path at a #, like those of
// Node.
func (a *answers) service(t *testing.T) *httptest.Server {
	handlers := make(map[string]http.Handler)
	for i := range routes {
		handlers[routes[i].path] = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { a.handlers = append(a.handlers, routes[i].name) })
	}
	mux, split := newMux(handlers), newChi(handlers)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		a.Lock()
		defer a.Unlock()
		serve := func(h http.Handler, u url.URL) {
			asked := new(http.Request)
			*asked = *r
			asked.URL = &u
			h.ServeHTTP(httptest.NewRecorder(), asked)
		}
		serve(mux, *r.URL)
		serve(split, *r.URL)
		serve(split, url.URL{Path: r.URL.Path})
		raw, _, _ := strings.Cut(cmp.Or(r.URL.RawPath, r.URL.EscapedPath()), "#")
		serve(split, url.URL{Path: raw, RawPath: raw})
	}))
	t.Cleanup(s.Close)
	return s
}

// documented returns a configuration of docs/proxies.md, by the name of its file.
func documented(t testing.TB, name string) string {
	text, err := os.ReadFile(filepath.Join("../examples/proxies", name))
	require.NoError(t, err)
	return strings.TrimSuffix(string(text), "\n")
}

// proxy starts a proxy with a documented configuration, which change may modify.
type proxy func(t testing.TB, change func(string) string, addr, checks, service string)

var proxies = map[string]proxy{"nginx": beginNginx, "Caddy": beginCaddy("Caddyfile"), "Caddy, longer form": beginCaddy("fields.Caddyfile")}

// admitAmbiguous changes a configuration so that ambiguous paths pass.
func admitAmbiguous(site string) string {
	return strings.Replace(waitLong(site), "?ambiguous_paths=refuse", "", 1)
}

// waitLong changes a configuration so that a node on a busy machine has more time for an
// answer.
func waitLong(site string) string {
	return strings.NewReplacer("250ms", "250s", "500ms", "500s").Replace(site)
}

// begin starts a program, and waits until it serves at addr.
func begin(t testing.TB, addr, program string, args ...string) *os.Process {
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed: apt-get install %s", program, program)
	}
	var out lab.Text
	c := exec.CommandContext(t.Context(), path, args...)
	c.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir(), "XDG_DATA_HOME="+t.TempDir())
	c.Stdout, c.Stderr = &out, &out
	lab.TieToParent(c)
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the system treats the thread as the parent
		err := c.Start()
		started <- err
		if err == nil {
			_ = c.Wait() // the error reports that the process was killed
		}
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s:\n%s", program, &out)
		}
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, time.Minute, 5*time.Millisecond, "%s does not serve", program)
	return c.Process
}

func beginNginx(t testing.TB, change func(string) string, addr, checks, service string) {
	site := strings.NewReplacer("127.0.0.1:8080", checks, "127.0.0.1:9000", service, "listen 8000", "listen "+addr).Replace(change(documented(t, "nginx.conf")))
	dir := t.TempDir()
	text := "daemon off; master_process off; error_log stderr crit; pid " + dir + "/pid;\nevents {}\nhttp {\naccess_log off;\nkeepalive_requests 1000000;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		text += kind + "_temp_path " + filepath.Join(dir, kind) + ";\n"
	}
	name := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(name, []byte(text+site+"}\n"), 0o600))
	begin(t, addr, "nginx", "-e", "stderr", "-p", dir, "-c", name)
}

func beginCaddy(form string) proxy {
	return func(t testing.TB, change func(string) string, addr, checks, service string) {
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		site := strings.NewReplacer("127.0.0.1:8080", checks, "127.0.0.1:9000", service, ":8000 {\n", ":"+port+" {\n\tbind "+host+"\n").Replace(change(documented(t, form)))
		name := filepath.Join(t.TempDir(), "Caddyfile")
		require.NoError(t, os.WriteFile(name, []byte("{\n\tadmin off\n\tauto_https off\n}\n"+site+"\n"), 0o600))
		begin(t, addr, "caddy", "run", "--adapter", "caddyfile", "--config", name)
	}
}

// rawClient sends unmodified targets sequentially.
type rawClient struct {
	addr  string
	conn  net.Conn
	reads *bufio.Reader
}

func (c *rawClient) ask(t *testing.T, target string) (status int) {
	for fresh := false; ; {
		if c.conn == nil {
			var err error
			c.conn, err = net.Dial("tcp", c.addr)
			require.NoError(t, err)
			c.reads, fresh = bufio.NewReader(c.conn), true
		}
		require.NoError(t, c.conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", target)
		var answer *http.Response
		if err == nil {
			answer, err = http.ReadResponse(c.reads, nil)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
		}
		if err != nil || answer.Close {
			_ = c.conn.Close()
			c.conn = nil
		}
		if err == nil {
			return answer.StatusCode
		}
		require.False(t, fresh, "%q: %v", target, err)
	}
}

func TestServicesBehindProxiesGetOnlyJudgedTargets(t *testing.T) {
	for _, name := range []string{"nginx", "Caddy"} {
		t.Run(name, func(t *testing.T) {
			a := new(answers)
			c := &rawClient{addr: lab.FreeAddr(t)}
			proxies[name](t, admitAmbiguous, c.addr, strings.TrimPrefix(a.checks(t).URL, "http://"), strings.TrimPrefix(a.service(t).URL, "http://"))
			g := grammar{rand.New(rand.NewPCG(*seed, 1))}
			var reached, refused, failed int
			for range *proxied {
				_, target := g.target()
				a.Lock()
				a.met, a.handlers = a.met[:0], a.handlers[:0]
				a.Unlock()
				status := c.ask(t, target)
				a.Lock()
				met, handlers := slices.Clone(a.met), slices.Clone(a.handlers)
				a.Unlock()
				if status >= 400 && len(handlers) == 0 {
					refused++
				}
				if len(handlers) > 0 {
					reached++
				}
				for _, h := range handlers {
					if !slices.Contains(met, h) {
						t.Errorf("%q reached %q, and met the rules %q", target, handlers, met)
						if failed++; failed == 10 {
							t.FailNow()
						}
						break
					}
				}
			}
			t.Logf("%d targets: %d reached a handler and were judged by its rule, %d were refused", *proxied, reached, refused)
			require.Greater(t, reached, *proxied*3/10)
		})
	}
}

const proxyRules = `
rules:
- {name: api, match: {path: /api/}, key: ip, limit: {rate: 3, per: 1h}}
- {name: uploads, match: {path: /uploads, method: POST}, key: ip, limit: {rate: 2, per: 1h}}
- {name: down, match: {path: /down}, key: ip, partition: fail_closed, limit: {rate: 1, per: 1h}}
- {name: r, match: {path: /free}, key: ip, limit: {rate: 1000, per: 1h}}
`

// proxiedService is a proxy in front of a service. The proxy uses the check API of a
// node.
type proxiedService struct {
	url    string
	node   *weir.Node
	checks *httptest.Server
	served atomic.Int64 // requests that reached the service
	last   atomic.Pointer[string]
}

// service starts the service.
func (p *proxiedService) service(t testing.TB) (addr string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		p.last.Store(new(fmt.Sprintf("%s %s %d bytes", r.Method, r.RequestURI, n)))
		p.served.Add(1)
		switch r.URL.Path {
		case "/forbidden":
			http.Error(w, "the service's own", http.StatusForbidden)
		case "/api/fails":
			http.Error(w, "the service's own", http.StatusInternalServerError)
		case "/api/crashes":
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func serveBehind(t testing.TB, start proxy) *proxiedService {
	p := new(proxiedService)
	service := p.service(t)
	by, _ := ruled(t, proxyRules, options{})
	h, err := admin.CheckHandler(by.node, by.book, admin.CheckOptions{Open: true, Logger: quiet})
	require.NoError(t, err)
	p.node, p.checks = by.node, httptest.NewServer(h)
	t.Cleanup(p.checks.Close)
	addr := lab.FreeAddr(t)
	p.url = "http://" + addr
	start(t, waitLong, addr, strings.TrimPrefix(p.checks.URL, "http://"), service)
	return p
}

func TestProxiesEnforceLimits(t *testing.T) {
	for name, c := range map[string]struct {
		hidden bool // responses to allowed clients have no rate-limit fields
		unable int  // the status for a client if the node does not respond
	}{"nginx": {false, 503}, "Caddy": {true, 502}, "Caddy, longer form": {false, 503}} {
		t.Run(name, func(t *testing.T) {
			p := serveBehind(t, proxies[name])
			ask := func(method, path, body string, fields ...string) *http.Response {
				r, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
				require.NoError(t, err)
				for i := 0; i < len(fields); i += 2 {
					r.Header.Set(fields[i], fields[i+1])
				}
				answer, err := http.DefaultTransport.RoundTrip(r)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, answer.Body)
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				return answer
			}

			// Fields in which a client describes itself have no effect.
			lies := []string{"X-Forwarded-For", "198.51.100.1", "X-Forwarded-Uri", "/free", "X-Forwarded-Method", "PUT", "X-Forwarded-Host", "h",
				"X-Original-URI", "/free", "X-Original-Method", "PUT", "X-Real-Ip", "198.51.100.2", "Authorization", "Bearer x"}
			for i := range 3 {
				lies[1] = fmt.Sprintf("198.51.100.%d", i)
				answer := ask("GET", "/api/%69tems?a=b", "", lies...)
				require.Equal(t, 200, answer.StatusCode)
				require.Equal(t, "GET /api/%69tems?a=b 0 bytes", *p.last.Load())
				if !c.hidden {
					require.Equal(t, "3", answer.Header.Get("X-RateLimit-Limit"))
					require.Equal(t, fmt.Sprint(2-i), answer.Header.Get("X-RateLimit-Remaining"))
					require.Regexp(t, fmt.Sprintf(`^"api";r=%d;t=\d+$`, 2-i), answer.Header.Get("RateLimit"))
					require.Empty(t, answer.Header.Get("Retry-After"))
				}
			}
			for _, method := range []string{"GET", "HEAD", "DELETE"} {
				answer := ask(method, "/api/items", "", lies...)
				require.Equal(t, 429, answer.StatusCode)
				require.Regexp(t, `^[1-9]\d*$`, answer.Header.Get("Retry-After"))
				require.Regexp(t, `^"api";r=0;t=\d+$`, answer.Header.Get("RateLimit"))
				require.Equal(t, `"api";q=3;w=3600`, answer.Header.Get("RateLimit-Policy"))
				require.Equal(t, "0", answer.Header.Get("X-RateLimit-Remaining"))
				require.NotEmpty(t, answer.Header.Get("X-RateLimit-Reset"))
			}
			require.EqualValues(t, 3, p.served.Load(), "denied requests do not reach the service")

			const size = 100_000
			for range 2 {
				require.Equal(t, 200, ask("POST", "/uploads", strings.Repeat("x", size)).StatusCode)
				require.Equal(t, fmt.Sprintf("POST /uploads %d bytes", size), *p.last.Load())
			}
			require.Equal(t, 429, ask("POST", "/uploads", strings.Repeat("x", size)).StatusCode)
			require.Equal(t, 200, ask("PUT", "/uploads", "x").StatusCode, "another method")

			answer := ask("GET", "/other", "")
			require.Equal(t, 200, answer.StatusCode)
			require.NotContains(t, answer.Header, "X-Ratelimit-Limit", "no rule matches it")
			require.Equal(t, 403, ask("GET", "/forbidden", "").StatusCode, "of the service")
			require.Equal(t, 400, ask("GET", "/a;b/c", "").StatusCode, "an ambiguous path")

			served := p.served.Load()
			require.NoError(t, p.node.Close())
			answer = ask("GET", "/down", "")
			require.Equal(t, 503, answer.StatusCode)
			require.NotEmpty(t, answer.Header.Get("Retry-After"))
			p.checks.Close()
			require.Equal(t, c.unable, ask("GET", "/other", "").StatusCode, "no node answers")
			require.Equal(t, served, p.served.Load())
		})
	}
}
