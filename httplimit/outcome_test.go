package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// byPath is a handler whose response depends on the path.
var byPath = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	switch last := strings.TrimPrefix(r.URL.Path, "/"); last {
	case "nothing":
	case "panic":
		panic(http.ErrAbortHandler)
	case "body":
		w.Write([]byte("hello"))
	case "early":
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusUnauthorized)
	case "401 and panic":
		w.WriteHeader(http.StatusUnauthorized)
		panic(http.ErrAbortHandler)
	case "gone and 502": // like a reverse proxy after the client has left
		r.Context().Value(leaves{}).(context.CancelFunc)()
		w.WriteHeader(http.StatusBadGateway)
	case "gone":
		r.Context().Value(leaves{}).(context.CancelFunc)()
	default:
		status, err := strconv.Atoi(last)
		if err != nil {
			panic(err)
		}
		w.WriteHeader(status)
	}
})

// leaves is the context key of the function that disconnects the client.
type leaves struct{}

// statusOf returns the status of the response for a path.
func statusOf(t *testing.T, h http.Handler, path string) int {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := get("/", "192.0.2.1").WithContext(context.WithValue(ctx, leaves{}, cancel))
	r.URL.Path = path
	w := httptest.NewRecorder()
	defer func() { _ = recover() }()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestStatusDeterminesCharge(t *testing.T) {
	for _, c := range []struct {
		rule      string
		path      string
		wantUnits int64
	}{
		{"count: {status: 401}", "/401", 1},
		{"count: {status: [403, 401]}", "/401", 1},
		{"count: {status: 401}", "/200", 0},
		{"count: {status: 401}", "/early", 1},
		{"count: {status: 401}", "/401 and panic", 1},
		{"count: {status: 401}", "/nothing", 0},
		{"count: {status: 2xx}", "/nothing", 1},
		{"count: {status: 2xx}", "/body", 1},
		{"count: {status: 5xx}", "/503", 1},
		{"count: {status: 5xx}", "/panic", 1},
		{"count: {status: 401}", "/panic", 0},
		{"count: {status: 401}", "/gone", 1},
		{"count: {status: 401}", "/gone and 502", 1},
		{"refund_on: {status: 5xx}", "/200", 1},
		{"refund_on: {status: 5xx}", "/599", 0},
		{"refund_on: {status: 5xx}", "/panic", 0},
		{"refund_on: {status: 5xx}", "/gone and 502", 1},
		{"cost: 3, refund_on: {status: [404, 5xx]}", "/404", 0},
		{"cost: 3, refund_on: {status: [404, 5xx]}", "/403", 3},
	} {
		t.Run(c.rule+c.path, func(t *testing.T) {
			m := newLimiter(t, "rules:\n- {name: r, key: ip, "+c.rule+", limit: {algorithm: fixed_window, rate: 9, per: 1h}}\n", Options{}, weir.Config{})
			statusOf(t, m.Handler(byPath), c.path)
			require.Equal(t, 9-c.wantUnits, remaining(t, m, "r", "192.0.2.1"))
		})
	}
}

func TestSettleDoesNotApplyToRulesWithoutSettle(t *testing.T) {
	settle := func(*http.Request, *rules.Rule, *Ended) (int64, bool) { return 5, true }
	m := newLimiter(t, "rules:\n- {name: r, key: ip, count: {status: [200, 401]}, limit: {algorithm: fixed_window, rate: 9, per: 1h}}\n", Options{Settle: settle}, weir.Config{})
	statusOf(t, m.Handler(byPath), "/401")
	statusOf(t, m.Handler(byPath), "/200")
	require.Equal(t, int64(7), remaining(t, m, "r", "192.0.2.1"))
	require.Zero(t, m.Unsettled())
}

// The function decides for a Limiter, and for rules that count by the status, but not for other rules.
func TestCountFunctionDeterminesCharge(t *testing.T) {
	o := Options{Count: func(r *http.Request, rule *rules.Rule, e *Ended) bool {
		return rule.Name == "r" && r.URL.Path == "/401" && e.Status == 401
	}}
	m := newLimiter(t, `
rules:
- {name: r, key: ip, count: {status: 200}, limit: {algorithm: fixed_window, rate: 9, per: 1h}}
- {name: settled, key: ip, settle: {header: X-Cost, on_error: keep}, limit: {algorithm: fixed_window, rate: 9, per: 1h}}
`, o, weir.Config{})
	l := byLimiter(t, weir.Limit{Name: "r", Algorithm: weir.FixedWindow, Rate: 9, Per: time.Hour}, o, weir.Config{})
	for _, path := range []string{"/200", "/401"} {
		statusOf(t, m.Handler(byPath), path)
		statusOf(t, l.Handler(byPath), path)
	}
	require.Equal(t, []int64{8, 7}, []int64{remaining(t, m, "r", "192.0.2.1"), remaining(t, m, "settled", "192.0.2.1")})
	d, err := l.one.limiter.Peek(t.Context(), "192.0.2.1")
	require.NoError(t, err)
	require.EqualValues(t, 8, d.Remaining)
}

func TestHijackedConnectionHasStatus101(t *testing.T) {
	m := newLimiter(t, "rules:\n- {name: r, key: 'header:X-Who', count: {status: 101}, limit: {algorithm: fixed_window, rate: 9, per: 1h}}\n"+
		"- {name: s, key: 'header:X-Who', refund_on: {status: 101}, limit: {algorithm: fixed_window, rate: 9, per: 1h}}\n", Options{}, weir.Config{})
	done := make(chan struct{})
	hijack(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			require.NoError(t, err)
			conn.Close()
		})).ServeHTTP(w, r)
		close(done)
	}))
	<-done
	require.Equal(t, int64(8), remaining(t, m, "r", "192.0.2.1"))
	require.Equal(t, int64(9), remaining(t, m, "s", "192.0.2.1"))
}

func TestDenialCancelsReservations(t *testing.T) {
	m := newLimiter(t, `
rules:
- {name: failures, key: ip, count: {status: 401}, limit: {algorithm: fixed_window, rate: 5, per: 1h}}
- {name: all, key: ip, limit: {algorithm: fixed_window, rate: 2, per: 1h}}
`, Options{}, weir.Config{})
	h := m.Handler(byPath)
	for range 2 {
		require.Equal(t, 401, statusOf(t, h, "/401"))
	}
	w := answer(h, get("/200", "192.0.2.1"))
	require.Equal(t, 429, w.Code)
	require.Contains(t, w.Header().Get("RateLimit"), `"failures";r=3`)
	require.Equal(t, int64(3), remaining(t, m, "failures", "192.0.2.1"))
}
