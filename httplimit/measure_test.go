package httplimit

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/adapt"
	"github.com/weir-go/weir/rules"
)

const adapting = `
rules:
- {name: a, key: ip, limit: {algorithm: fixed_window, rate: 1, per: 1m}, adapt: {latency: 200ms}}
- {name: b, key: ip, limits: [{algorithm: fixed_window, rate: 100, per: 1m}, {rate: 100, per: 1s}], adapt: {latency: 5s}}
- {name: c, key: ip, limit: {rate: 100, per: 1m}}
`

// adaptingLimiter returns a Middleware whose clock is noon plus the nanoseconds in clock.
func adaptingLimiter(t testing.TB) (m *Middleware, clock *atomic.Int64) {
	m = newLimiter(t, adapting, Options{}, weir.Config{})
	require.NoError(t, m.book.Close()) // otherwise the Book takes the measurements out of the meter
	clock = new(atomic.Int64)
	m.now = func() time.Time { return noon.Add(time.Duration(clock.Load())) }
	return m, clock
}

// measured returns the measurements of the rules a and b since the last call.
func measured(m *Middleware) []adapt.Sample {
	s := m.book.Current()
	return []adapt.Sample{s.Meter(s.Rules()[0]).TakeSample(m.now()), s.Meter(s.Rules()[1]).TakeSample(m.now())}
}

func TestRequestIsMeasuredUntilItsResponseBegins(t *testing.T) {
	for path, want := range map[string]adapt.Sample{
		"/nothing":       {Busy: 500 * time.Millisecond, Slow: 1},
		"/body":          {Busy: 300 * time.Millisecond, Slow: 1},
		"/503":           {Busy: 300 * time.Millisecond, Slow: 1, Failed: 1},
		"/501":           {Busy: 300 * time.Millisecond, Slow: 1},
		"/early":         {Busy: 300 * time.Millisecond, Slow: 1},
		"/panic":         {Busy: 300 * time.Millisecond, Slow: 1, Failed: 1},
		"/401 and panic": {Busy: 300 * time.Millisecond, Slow: 1, Failed: 1},
		"/gone":          {Busy: 500 * time.Millisecond, Slow: 1},
		"/gone and 502":  {Busy: 500 * time.Millisecond, Slow: 1},
	} {
		m, clock := adaptingLimiter(t)
		statusOf(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			clock.Add(int64(300 * time.Millisecond))
			byPath(w, r)
			clock.Add(int64(200 * time.Millisecond))
		})), path)
		want.Started, want.Done = 1, 1
		got := measured(m)
		require.Equal(t, want, got[0], path)
		want.Slow = 0
		require.Equal(t, want, got[1], path)
	}
}

func TestDeniedRequestCountsAsDemand(t *testing.T) {
	m, _ := adaptingLimiter(t)
	for _, status := range []int{200, 429, 429} {
		require.Equal(t, status, answer(m.Handler(hello), get("/", "192.0.2.1")).Code)
	}
	require.Equal(t, []adapt.Sample{{Started: 1, Done: 1, Denied: 2}, {Started: 1, Done: 1}}, measured(m))
	require.Zero(t, m.Check(t.Context(), &rules.Request{Path: "/"}).Status, "a request without an end")
	require.Equal(t, []adapt.Sample{{}, {}}, measured(m))
}

func TestHijackedConnectionIsMeasuredUntilHijack(t *testing.T) {
	m, clock := adaptingLimiter(t)
	server := httptest.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clock.Add(int64(100 * time.Millisecond))
		conn, _, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
		clock.Add(int64(time.Hour))
		conn.Close()
	})))
	defer server.Close()
	_, err := http.Get(server.URL)
	require.Error(t, err)
	server.Close()
	require.Equal(t, adapt.Sample{Started: 1, Done: 1, Busy: 100 * time.Millisecond}, measured(m)[0])
}

func TestEventIsMeasuredUntilItsEnd(t *testing.T) {
	m, clock := adaptingLimiter(t)
	end := func(client string, status int, before func(*Admission)) {
		o, a := m.BeginCheck(t.Context(), &rules.Request{Path: "/", Client: netip.MustParseAddr(client)})
		require.Zero(t, o.Status)
		clock.Add(int64(time.Minute))
		before(a)
		a.End(Ended{Status: status})
		a.End(Ended{Status: http.StatusBadGateway})
	}
	end("192.0.2.3", 200, func(*Admission) {})
	require.Equal(t, adapt.Sample{Started: 1, Done: 1, Slow: 1, Busy: time.Minute}, measured(m)[0], "a second End has no effect")
	end("192.0.2.1", 503, func(*Admission) {})
	require.Equal(t, adapt.Sample{Started: 1, Done: 1, Slow: 1, Failed: 1, Busy: time.Minute}, measured(m)[0])
	end("192.0.2.2", 503, func(a *Admission) { a.RecordResponse(200); clock.Add(int64(time.Minute)) })
	require.Equal(t, adapt.Sample{Started: 1, Done: 1, Slow: 1, Failed: 1, Busy: time.Minute}, measured(m)[0])
	(*Admission)(nil).RecordResponse(200)
}
