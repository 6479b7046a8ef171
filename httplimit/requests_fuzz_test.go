package httplimit

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// wire is a connection of a client that sends some bytes, hangs up, and takes what it is
// answered.
type wire struct {
	sent   *bytes.Reader
	answer bytes.Buffer
	closed chan struct{}
	close  func() // of closed, once
}

func (w *wire) Read(p []byte) (int, error)  { return w.sent.Read(p) }
func (w *wire) Write(p []byte) (int, error) { return w.answer.Write(p) }
func (w *wire) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:80"))
}
func (w *wire) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:5000"))
}
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
func (w *wire) Close() error {
	w.close() // a server that is closed closes what a handler has closed
	return nil
}

// wires is a listener that accepts what it is sent.
type wires chan net.Conn

func (l wires) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l wires) Close() error   { close(l); return nil }
func (l wires) Addr() net.Addr { return (*wire)(nil).LocalAddr() }

// oneReading reports whether servers of several kinds read one path: those that decode a
// segment, the whole, or the whole once more; that resolve dots and doubled slashes or
// do not; that end names at a NUL, take off parameters, or turn backslashes.
func oneReading(escaped string) bool {
	var segments []string
	for s := range strings.SplitSeq(escaped, "/") {
		plain, err := url.PathUnescape(s)
		if err != nil {
			return false
		}
		segments = append(segments, plain)
	}
	bySegments := strings.Join(segments, "/")
	whole, _ := url.PathUnescape(escaped)
	again, err := url.PathUnescape(whole)
	if err != nil {
		again = whole
	}
	resolved := path.Clean(whole)
	if strings.HasSuffix(whole, "/") && resolved != "/" {
		resolved += "/"
	}
	until, _, _ := strings.Cut(whole, "\x00")
	bare, _, _ := strings.Cut(whole, ";")
	return escaped == "*" || escaped == "" || !strings.Contains(escaped, "#") && bySegments == whole && sameRules(escaped, whole) &&
		again == whole && resolved == whole && until == whole && bare == whole && strings.ReplaceAll(whole, `\`, "/") == whole
}

// sameRules reports whether the paths of FuzzRequests' rules match both a path with escapes and
// the decoded path, or neither of them.
func sameRules(escaped, decoded string) bool {
	for _, pattern := range []string{"/a/", "/{x}/{rest...}"} {
		mux := http.NewServeMux()
		mux.Handle(pattern, hello)
		_, split := mux.Handler(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: decoded, RawPath: escaped}})
		_, whole := mux.Handler(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: decoded}})
		if split != whole {
			return false
		}
	}
	return true
}

// FuzzRequests sends bytes to a server with the middleware: whatever they are, it
// answers, the handler runs for what was admitted alone, no path that is let through
// could be read in another way, and the next request is served.
func FuzzRequests(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /public/..;/admin/x HTTP/1.1\r\nHost: api.example.com.:1\r\n\r\n",
		"POST //a/%2e%2e/b%252f HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.2.3.4, ::1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.0\r\n\r\n",
		"POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-User: u\r\n\r\n1\r\na\r\n0\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\nAccept: text/*;q=0.1, */*;q=2\r\n\r\n",
		"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
		"GET http://[::1]:x/%zz HTTP/1.1\r\nHost:\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01\x00\xff",
		"GET /\x00\xff HTTP/1.1\r\nX-Cost: 9999999999999999999999\r\nX-Cost: -1\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	const file = `
tiers: {free: {}, paid: {multiply: 2}}
default_tier: free
rules:
- {name: all, key: global, limit: {rate: 1000000, per: 1s}}
- {name: address, match: {path: /a/}, key: ip, limit: {rate: 3, per: 1m}}
- {name: user, match: {path: "/{x}/{rest...}", method: [GET, POST]}, key: [user, "header:X-Tenant"], missing_key: ip, limit: {rate: 5, per: 1m}}
- {name: cost, match: {header: {X-Cost: "*"}}, key: ip, cost: header:X-Cost, limit: {rate: 100, per: 1s}}
- {name: bytes, match: {host: api.example.com}, key: ip, cost: {from: content_length, unit: 1}, limit: {rate: 10, per: 1s}}
- {name: queue, match: {path: /slow}, key: ip, limit: {algorithm: leaky_bucket, rate: 1000000, per: 1s, burst: 1}, queue: 1ms}
`
	n, err := weir.Start(f.Context(), weir.Config{Logger: quietly})
	require.NoError(f, err)
	f.Cleanup(func() { n.Close() })
	set, err := rules.Parse("rules.yaml", []byte(file))
	require.NoError(f, err)
	book, err := rules.Static(n, set)
	require.NoError(f, err)
	f.Cleanup(func() { book.Close() })
	var wrong atomic.Pointer[string] // a path that was served and should not have been
	serve := func(refuse bool) wires {
		m, err := New(n, book, Options{
			Client: RightmostUntrusted("X-Forwarded-For", netip.MustParsePrefix("192.0.2.0/24")), User: HeaderValue("X-User"), APIKey: BearerToken, Tier: HeaderValue("X-Tier"),
			RefuseAmbiguousPaths: refuse, Logger: quietly,
		})
		require.NoError(f, err)
		s := http.Server{
			Handler: m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if path := cmp.Or(r.URL.RawPath, r.URL.EscapedPath()); refuse && r.Method != http.MethodConnect && !oneReading(path) {
					wrong.Store(&path)
				}
				w.Header().Set("X-Served", "yes")
				io.Copy(w, r.Body)
			})),
			ErrorLog: slog.NewLogLogger(quietly.Handler(), slog.LevelError),
		}
		l := make(wires)
		go s.Serve(l)
		f.Cleanup(func() { s.Close() })
		return l
	}
	servers := []wires{serve(false), serve(true)}
	f.Fuzz(func(t *testing.T, sent []byte) {
		for _, server := range servers {
			w := &wire{sent: bytes.NewReader(sent), closed: make(chan struct{})}
			w.close = sync.OnceFunc(func() { close(w.closed) })
			server <- w
			select {
			case <-w.closed:
			case <-time.After(10 * time.Second):
				t.Fatal("the server has not hung up after 10 s")
			}
			if path := wrong.Swap(nil); path != nil {
				t.Fatalf("served %q", *path)
			}
			for answers := bufio.NewReader(&w.answer); ; {
				a, err := http.ReadResponse(answers, nil)
				if err != nil {
					break // the end, or what follows a HEAD's
				}
				io.Copy(io.Discard, a.Body)
				switch served := a.Header.Get("X-Served") != ""; {
				case served:
					require.Equal(t, http.StatusOK, a.StatusCode)
				case a.StatusCode == http.StatusOK:
					require.Zero(t, a.ContentLength, "net/http's own answer to OPTIONS *")
				default:
					require.Contains(t, refusals, a.StatusCode)
				}
			}
		}
	})
}

// refusals are the statuses of the middleware and of net/http.
var refusals = []int{100, 400, 408, 413, 414, 417, 429, 431, StatusClientGone, 501, 503, 505}
