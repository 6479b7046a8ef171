package httplimit

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

// quietly is a logger that discards all lines.
var quietly = slog.New(slog.DiscardHandler)

// newLimiter returns a Middleware on a new node, with rules that do not change.
func newLimiter(t testing.TB, file string, o Options, cfg weir.Config) *Middleware {
	t.Helper()
	n := testnode.Start(t, cfg)
	o.Logger = quietly
	m, err := New(n, testnode.Book(t, n, file), o)
	require.NoError(t, err)
	return m
}

// noon is the time of nodes and Middlewares whose clock does not advance.
var noon = time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)

// get returns a request from an address, with pairs of field names and values.
func get(path, from string, fields ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = from + ":1234"
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return r
}

// hello is the limited handler.
var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Write([]byte("hello"))
})

func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const threeLimits = `
rules:
- {name: per address, key: ip, limit: {algorithm: token_bucket, rate: 1000000000, per: 1s}}
- name: per user
  key: user
  limits:
  - {name: second, algorithm: token_bucket, rate: 1000000000, per: 1s}
  - {name: hour, rate: 1000000000000, per: 1h}
`

var byUser = Options{User: HeaderValue("X-User")}

// room is a ResponseWriter that can be reused.
type room struct{ header http.Header }

func (r *room) Header() http.Header         { return r.header }
func (r *room) Write(p []byte) (int, error) { return len(p), nil }
func (r *room) WriteHeader(int)             {}

// Rules receive the path with its escapes, and do not read an unknown length as 0.
func TestRulesReceiveUnchangedRequest(t *testing.T) {
	m := newLimiter(t, `
rules:
- {name: item, match: {path: "/v1/{id}"}, key: ip, limit: {algorithm: fixed_window, rate: 9, per: 1h}}
- {name: upload, match: {method: PUT}, key: ip, cost: {from: content_length, default: 5}, limit: {algorithm: fixed_window, rate: 9, per: 1h}}
`, Options{}, weir.Config{})
	h := m.Handler(hello)
	answer(h, get("/v1/a%2Fb", "192.0.2.1"))
	require.EqualValues(t, 8, remaining(t, m, "item", "192.0.2.1"), "one segment")
	r := httptest.NewRequest(http.MethodPut, "/", nil)
	r.RemoteAddr, r.ContentLength = "192.0.2.1:1", -1
	answer(h, r)
	require.EqualValues(t, 4, remaining(t, m, "upload", "192.0.2.1"))
	r.ContentLength = 0
	answer(h, r)
	require.EqualValues(t, 4, remaining(t, m, "upload", "192.0.2.1"), "nothing is known to be nothing")
}

// Requests to a closed node do not fill its log, and a client that left is not an error.
func TestErrorsAreLoggedAtLimitedRate(t *testing.T) {
	var log bytes.Buffer
	m := newLimiter(t, threeLimits, Options{}, weir.Config{})
	m.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	now := noon
	m.now = func() time.Time { return now }
	h := m.Handler(hello)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	answer(h, get("/", "192.0.2.1").WithContext(gone))
	require.Empty(t, log.String())
	require.NoError(t, m.node.Close())
	for range 3 {
		for range 100 {
			require.Equal(t, 503, answer(h, get("/", "192.0.2.1")).Code)
		}
		now = now.Add(10 * time.Second)
	}
	require.Equal(t, 3, strings.Count(log.String(), "\n"), log.String())
	require.Equal(t, 2, strings.Count(log.String(), "unlogged=99"), log.String())
	require.NotContains(t, log.String(), "192.0.2.1")
}

// The fields that the next request could read have no data of a request: no Verdict, and no old version of
// the rules.
func TestScratchKeepsNoRequestData(t *testing.T) {
	m := newLimiter(t, threeLimits, byUser, weir.Config{})
	s := new(scratch)
	m.read(&s.request, get("/", "192.0.2.1", "X-User", "ada"))
	m.decide(t.Context(), s)
	require.Len(t, s.outcome.Verdicts, 3)
	s.forget()
	require.Equal(t, Outcome{Verdicts: s.outcome.Verdicts}, s.outcome)
	require.Equal(t, make([]Verdict, 3), s.outcome.Verdicts[:3])
	require.Equal(t, make([]weir.Ask, 3), s.asks[:3])
	require.Equal(t, make([]*rules.Rule, 2), s.rules[:2])
	require.Equal(t, rules.Request{}, s.request)
	require.Nil(t, s.http)
	require.Zero(t, s.web)
}

// There are three allocations: the keys, the values of the header fields, and the slice of these
// values.
func TestHandlerAddsThreeAllocations(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector makes sync.Pool drop what it holds")
	}
	large := perMinute
	large.Rate = 1e12
	for about, m := range map[string]*Middleware{
		"three of rules": newLimiter(t, threeLimits, byUser, weir.Config{}), "one Limiter": byLimiter(t, large, Options{}, weir.Config{}),
	} {
		w, r := &room{make(http.Header)}, get("/v1/items", "192.0.2.1", "X-User", "ada")
		run := func(h http.Handler) float64 {
			return testing.AllocsPerRun(1000, func() {
				clear(w.header)
				h.ServeHTTP(w, r)
			})
		}
		bare := run(hello)
		require.LessOrEqual(t, run(m.Handler(hello))-bare, 3.0, about)
		require.Len(t, w.header, 6)
	}
}
