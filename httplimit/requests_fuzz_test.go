package httplimit

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

// oneReading reports whether different servers read the path in the same way: servers that
// decode a segment, the whole path, or the whole path twice; that do or do not resolve dots and
// double slashes; that end names at a NUL, remove parameters, or replace backslashes.
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

// FuzzRequests passes each request that net/http reads from the bytes to the Middleware. The Middleware
// always answers, the handler runs only for admitted requests, and with RefuseAmbiguousPaths each admitted
// path has oneReading, except with the method CONNECT.
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
	n := testnode.Start(f, weir.Config{})
	book := testnode.Book(f, n, file)
	handlers := make(map[bool]http.Handler) // keyed by Options.RefuseAmbiguousPaths
	for _, refuse := range []bool{false, true} {
		m, err := New(n, book, Options{
			Client: RightmostUntrusted("X-Forwarded-For", netip.MustParsePrefix("192.0.2.0/24")), User: HeaderValue("X-User"), APIKey: BearerToken, Tier: HeaderValue("X-Tier"),
			RefuseAmbiguousPaths: refuse, Logger: quietly,
		})
		require.NoError(f, err)
		handlers[refuse] = m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Served", "yes")
			io.Copy(w, r.Body)
		}))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		for refuse, h := range handlers {
			for requests := bufio.NewReader(bytes.NewReader(sent)); ; {
				r, err := http.ReadRequest(requests)
				if err != nil {
					break // end of the bytes, or bytes that net/http refuses
				}
				r.RemoteAddr = "192.0.2.1:5000"
				w := answer(h, r)
				if w.Header().Get("X-Served") == "" {
					require.Contains(t, []int{400, 413, 429, StatusClientGone, 503}, w.Code)
				} else {
					require.Equal(t, http.StatusOK, w.Code)
					path := cmp.Or(r.URL.RawPath, r.URL.EscapedPath())
					require.True(t, !refuse || r.Method == http.MethodConnect || oneReading(path), "served %q", path)
				}
				io.Copy(io.Discard, r.Body)
			}
		}
	})
}
