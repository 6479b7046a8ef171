package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"log/slog"
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
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/freeport"
	"github.com/weir-go/weir/internal/lab"
)

var proxied = flag.Int("proxied", 300, "how many targets go through each proxy")

// answers records, for one request at a time, the rules that the check API has named and the
// handlers that were reached behind the proxy.
type answers struct {
	sync.Mutex
	met, handlers []string
}

var policy = regexp.MustCompile(`"([a-z]+)";q=`)

// checks answers a proxy by the rules of the routes.
func (a *answers) checks(t *testing.T) *httptest.Server {
	node, book := limited(t)
	h, err := httplimit.Checks(node, book, httplimit.CheckOptions{Open: true, Logger: slog.New(slog.DiscardHandler)})
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

// service has several routers read each request: two of Go's, one that decodes first, and one
// that ends the path at a #, as those of Node do.
func (a *answers) service(t *testing.T) *httptest.Server {
	reached := func(r *route) http.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) { a.handlers = append(a.handlers, r.name) }
	}
	mux, split := muxOf(reached), chiOf(t, reached)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		a.Lock()
		defer a.Unlock()
		serve := func(h http.Handler, u url.URL) {
			asked := new(http.Request)
			*asked = *r
			asked.URL = &u
			h.ServeHTTP(void{}, asked)
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

// documented returns the first fence of a kind in docs/proxies.md, without what refuses paths.
func documented(t *testing.T, kind string) string {
	text, err := os.ReadFile("../docs/proxies.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "```"+kind+"\n")
	require.True(t, found)
	fence, _, found := strings.Cut(after, "\n```")
	require.True(t, found)
	return strings.Replace(fence, "?ambiguous_paths=refuse", "", 1)
}

// begin starts a proxy, and waits until it serves at addr.
func begin(t *testing.T, addr, program string, args ...string) {
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed: apt-get install %s", program, program)
	}
	var out bytes.Buffer
	c := exec.CommandContext(t.Context(), path, args...)
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
			_ = c.Wait() // the error reports that the process was killed
		}
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() { _ = c.Process.Kill(); <-ended })
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, time.Minute, 5*time.Millisecond, "%s does not serve", program)
}

func beginNginx(t *testing.T, addr, checks, service string) {
	site := strings.NewReplacer("127.0.0.1:8080", checks, "127.0.0.1:9000", service, "listen 8000", "listen "+addr).Replace(documented(t, "nginx"))
	dir := t.TempDir()
	text := "daemon off; master_process off; error_log stderr crit; pid " + dir + "/pid;\nevents {}\nhttp {\naccess_log off;\nkeepalive_requests 1000000;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		text += kind + "_temp_path " + filepath.Join(dir, kind) + ";\n"
	}
	name := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(name, []byte(text+site+"}\n"), 0o600))
	begin(t, addr, "nginx", "-e", "stderr", "-p", dir, "-c", name)
}

func beginCaddy(t *testing.T, addr, checks, service string) {
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	site := strings.NewReplacer("127.0.0.1:8080", checks, "127.0.0.1:9000", service, ":8000 {\n", ":"+port+" {\n\tbind "+host+"\n").Replace(documented(t, "caddyfile"))
	name := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(name, []byte("{\n\tadmin off\n\tauto_https off\n}\n"+site+"\n"), 0o600))
	begin(t, addr, "caddy", "run", "--adapter", "caddyfile", "--config", name)
}

// rawClient sends targets as they are, one after the other.
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
	for name, start := range map[string]func(t *testing.T, addr, checks, service string){"nginx": beginNginx, "Caddy": beginCaddy} {
		t.Run(name, func(t *testing.T) {
			a := new(answers)
			c := &rawClient{addr: freeport.Addr(t)}
			start(t, c.addr, strings.TrimPrefix(a.checks(t).URL, "http://"), strings.TrimPrefix(a.service(t).URL, "http://"))
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
