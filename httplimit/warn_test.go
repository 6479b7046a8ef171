package httplimit

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// Each case has the value of X-RateLimit-Warning after each request of a client. A ! before the value shows
// that OnWarn was called as well, and a - stands for a denial.
func TestAdmittedRequestIsWarned(t *testing.T) {
	for rule, want := range map[string][]string{
		"warn: 80%, limit: {algorithm: fixed_window, rate: 5, per: 1h}":                             {"", "", "", `!"r";used=80`, `"r";used=100`, "-", "-"},
		"warn: 80%, limit: {rate: 5, per: 1h, warn: 50%}":                                           {"", "", `!"r";used=60`, `"r";used=80`},
		"warn: 70%, limit: {algorithm: sliding_log, rate: 10, per: 1h}, cost: 7":                    {`!"r";used=70`, "-"},
		"warn: 100%, limit: {algorithm: token_bucket, rate: 1, per: 1h, burst: 2}":                  {"", `!"r";used=100`, "-"},
		"limits: [{rate: 9, per: 1m, name: a, warn: 20%}, {rate: 3, per: 1h}], warn: 50%":           {"", `!!"r/a";used=22, "r/2";used=66`, `"r/a";used=33, "r/2";used=100`, "-"},
		"limits: [{rate: 9, per: 1m, name: a}, {rate: 4, per: 1h, warn: 50%}]":                      {"", `!"r/2";used=50`},
		"limits: [{rate: 2, per: 1m}, {rate: 9, per: 1h}, {rate: 3, per: 24h}], warn: 50%":          {`!"r/1";used=50`, `!"r/1";used=100, "r/3";used=66`, "-"},
		"warn: 90%, limit: {rate: 2, per: 1h, tiers: {paid: {rate: 1}}}":                            {`!"r";used=100`, "-"},
		"warn: 80%, limit: {algorithm: fixed_window, rate: 2, per: 1h}, soft: {over: 50%, for: 1h}": {"", `!"r";used=100`, `"r";used=100`, "-"},
		"warn: 80%, limit: {algorithm: fixed_window, rate: 2, per: 1h}, refund_on: {status: 200}":   {"", ""},
		"warn: 80%, limit: {algorithm: fixed_window, rate: 1, per: 1h}, count: {status: 200}":       {`!"r";used=100`, "-"},
		"warn: 50%, limit: {algorithm: in_flight, rate: 2}":                                         {`!"r";used=50`, `"r";used=50`},
		"enabled: false, warn: 50%, limit: {rate: 1, per: 1h}":                                      {"", ""},
		"enforce: 0.0001%, warn: 50%, limit: {rate: 1, per: 1h}":                                    {"", ""},
		"limit: {rate: 2, per: 1h, warn: 50%}, match: {path: /other}":                               {"", ""},
		"limit: {rate: 1, per: 1h}":                     {"", "-"},
		"warn: 50%, limit: {rate: 2, per: 1h}, cost: 0": {"", ""},
	} {
		events := 0
		o := Options{Tier: HeaderValue("X-Tier"), OnWarn: func(v *Verdict) {
			require.Equal(t, "192.0.2.1", v.Key)
			events++
		}}
		m := newLimiter(t, "tiers: {paid: {}}\nrules:\n- {name: r, key: ip, "+rule+"}\n", o, weir.Config{Now: func() time.Time { return noon }})
		m.now = func() time.Time { return noon }
		warned := uint64(0)
		for i, header := range want {
			w := answer(m.Handler(hello), get("/", "192.0.2.1", "X-Tier", "paid"))
			got := w.Header().Get("X-RateLimit-Warning")
			if got != "" {
				warned++
			}
			if w.Code == http.StatusTooManyRequests {
				got += "-"
			}
			got = strings.Repeat("!", events) + got
			events = 0
			require.Equal(t, header, got, "%s, request %d", rule, i)
		}
		require.Equal(t, warned, m.book.Stats().Warnings["r"], rule)
	}
}

func TestWarningIsReportedOnceInWindow(t *testing.T) {
	var events []string
	var passed atomic.Int64 // goroutines of the node read it too
	now := func() time.Time { return noon.Add(time.Duration(passed.Load())) }
	m := newLimiter(t, `
rules:
- {name: fixed, match: {path: /fixed}, key: ip, warn: 20%, limit: {algorithm: fixed_window, rate: 100, per: 1m}}
- {name: sliding, match: {path: /sliding}, key: ip, warn: 20%, limit: {rate: 100, per: 1m}}
- {name: open, match: {path: /open}, key: ip, warn: 1%, limit: {algorithm: in_flight, rate: 10}}
`, Options{OnWarn: func(v *Verdict) { events = append(events, v.Rule.Name+" "+v.Key) }}, weir.Config{Now: now})
	m.now = now
	h := m.Handler(hello)
	for range 2 {
		for range 50 { // 50 requests in 30 seconds
			passed.Add(int64(600 * time.Millisecond))
			for _, path := range []string{"/fixed", "/sliding", "/open"} {
				answer(h, get(path, "192.0.2.1"))
				answer(h, get(path, "192.0.2.2"))
			}
		}
	}
	count := make(map[string]int)
	for _, e := range events {
		count[e]++
	}
	require.Equal(t, map[string]int{"fixed 192.0.2.1": 1, "fixed 192.0.2.2": 1, "sliding 192.0.2.1": 1, "sliding 192.0.2.2": 1, "open 192.0.2.1": 1, "open 192.0.2.2": 1}, count)
	passed.Add(int64(time.Minute))
	events = nil
	for range 30 {
		answer(h, get("/fixed", "192.0.2.1"))
	}
	require.Equal(t, []string{"fixed 192.0.2.1"}, events, "in the next window again")
}

// An earlier Middleware has warned of another limit.
func TestWarningsOfSeveralMiddlewaresAreJoined(t *testing.T) {
	h := hello
	var outer http.Handler = h
	for _, name := range []string{"a", "b"} {
		outer = newLimiter(t, "rules: [{name: "+name+", key: ip, warn: 1%, limit: {rate: 4, per: 1h}}]", Options{}, weir.Config{}).Handler(outer)
	}
	require.Equal(t, `"b";used=25, "a";used=25`, answer(outer, get("/", "192.0.2.1")).Header().Get("X-RateLimit-Warning"))
}
