package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestCheckTokensCannotChangeLimits(t *testing.T) {
	a := newTestAPI(t)
	ask := func(h http.Handler, method, path, token string) int {
		r := httptest.NewRequest(method, path, strings.NewReader(`{"limit":"address","key":"1"}`))
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := answer(h, r)
		return w.Code
	}
	quiet := slog.New(slog.DiscardHandler)
	guarded, err := CheckHandler(a.node, a.book, CheckOptions{Tokens: [][]byte{[]byte(testToken)}, Logger: quiet})
	require.NoError(t, err)
	require.Equal(t, 200, ask(guarded, "POST", "/v1/take", testToken))
	require.Equal(t, 401, ask(guarded, "POST", "/v1/take", ""))
	require.Equal(t, 401, ask(guarded, "POST", "/v1/take", testToken+"0"))
	open, err := CheckHandler(a.node, a.book, CheckOptions{Open: true, Logger: quiet})
	require.NoError(t, err)
	require.Equal(t, 200, ask(open, "POST", "/v1/take", ""))
	for _, r := range routes {
		switch r.path {
		case "/v1/take", "/v1/peek", "/v1/take_all", "/v1/check", "/v1/request", "/v1/debit", "/v1/refund",
			"/v1/hold", "/v1/renew", "/v1/release", "/v1/reserve", "/v1/settle", "/v1/usage",
			"/v1/forward_auth", "/v1/auth_request", extAuthzPath, "/openapi.json":
			continue
		}
		require.Equal(t, 404, ask(open, r.method, r.path, ""), r.path)
	}
	none, err := CheckHandler(a.node, nil, CheckOptions{Open: true, Logger: quiet})
	require.NoError(t, err)
	require.Equal(t, 404, ask(none, "POST", "/v1/take", ""), "there are no rules")
	for _, o := range []CheckOptions{{}, {Open: true, MutualTLS: true}, {Open: true, Tokens: [][]byte{[]byte(testToken)}}, {Tokens: [][]byte{[]byte("short")}}, {Open: true, Usage: &UsageFields{Hops: 17}}} {
		_, err := CheckHandler(a.node, a.book, o)
		require.ErrorIs(t, err, weir.ErrInvalid)
	}
	_, err = CheckHandler(nil, nil, CheckOptions{Open: true})
	require.ErrorIs(t, err, weir.ErrInvalid)
}

func TestTakeAtMostAnswersGrantedUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startTestAPI(t, carriedRules)
		take := func(limit string, units int) (got Take) {
			a.get(http.MethodPost, "/v1/take", fmt.Sprintf(`{"limit":%q,"key":"u","units":%d,"at_most":true}`, limit, units), http.StatusOK, &got)
			return got
		}
		for _, c := range []struct {
			limit   string
			units   int
			granted int64
			soft    bool
		}{
			{"points", 70, 70, false}, {"points", 1000, 30, false}, {"points", 1, 0, false},
			{"soft", 5, 2, false}, {"soft", 5, 1, true}, {"soft", 5, 0, false},
		} {
			got := take(c.limit, c.units)
			require.Equal(t, c.granted, got.Granted, c)
			require.Equal(t, c.granted > 0, got.Allowed, c)
			require.Equal(t, c.soft, got.Soft, c)
			require.Equal(t, c.granted == 0, got.RetryAfterS > 0, c)
		}
		require.NotContains(t, a.post("/v1/take", 200, `{"limit":"tokens","key":"u"}`).Body.String(), "granted")
		a.post("/v1/take", 413, `{"limit":"tokens","key":"u","units":1000}`)
		require.Contains(t, a.post("/v1/take", 400, `{"limit":"streams","key":"u","at_most":true}`).Body.String(), "/v1/hold")
		require.Equal(t, 200, a.ask(http.MethodPut, "/v1/switches", `{"rule":"points","mode":"off"}`).Code)
		require.EqualValues(t, 7, take("points", 7).Granted)
	})
}

// Callers can forward the header of a response to their client, because its fields are those that the
// middleware sets.
func TestCheckResponseHasHeaderFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestAPI(t)
		open, err := CheckHandler(a.node, a.book, CheckOptions{Open: true, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		ask := func(path, body string) http.Header {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := answer(open, r)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			return w.Header()
		}
		const take = `{"limit":"api/burst","key":"u","units":15}`
		h := ask("/v1/take", take)
		require.Empty(t, h.Get("Retry-After"))
		require.Regexp(t, `^"api/burst";r=[0-6];t=\d+$`, h.Get("RateLimit"))
		require.Regexp(t, `^"api/burst";q=20;w=\d+$`, h.Get("RateLimit-Policy"))
		h = ask("/v1/take", take)
		require.Regexp(t, `^[1-9]\d*$`, h.Get("Retry-After"))

		const request = `{"path":"/v1/items","user":"v","ip":"192.0.2.1","headers":{"X-Plan":"gold"}}`
		names := func(h http.Header) (names []string) {
			for name := range h {
				names = append(names, name)
			}
			slices.Sort(names)
			return names
		}
		require.Equal(t, names(ask("/v1/take", `{"limit":"api/burst","key":"v"}`)), names(ask("/v1/request", request)))
		for range 20 {
			h = ask("/v1/request", request)
		}
		require.Regexp(t, `^"api/burst";r=\d+;t=\d+, "api/hourly";r=\d+;t=\d+, "address";r=0;t=\d+$`, h.Get("RateLimit"))
		require.Regexp(t, `^[1-9]\d*$`, h.Get("Retry-After"))
		require.Equal(t, "5", h.Get("X-RateLimit-Limit"), "of the strictest limit")

		const check = `{"key":"u","limit":1,"window_ms":60000}`
		require.Empty(t, ask("/v1/check", check).Get("Retry-After"))
		require.Regexp(t, `^[1-9]\d*$`, ask("/v1/check", check).Get("Retry-After"))
	})
}

func TestClosedNodeAPIDecidesByPartitionPolicy(t *testing.T) {
	a := startTestAPI(t, "rules:\n- {name: open, match: {path: /open}, key: ip, partition: fail_open, limit: {rate: 9, per: 1h}}\n- {name: share, match: {path: /share}, key: ip, limit: {rate: 9, per: 1h}}\n")
	require.NoError(t, a.node.Close())
	for limit, want := range map[string]int{"open": 200, "share": 503} {
		require.Equal(t, want, a.ask("POST", "/v1/take", fmt.Sprintf(`{"limit":%q,"key":"k"}`, limit)).Code)
		require.Equal(t, want, a.ask("POST", "/v1/take_all", fmt.Sprintf(`{"takes":[{"limit":%q,"key":"k"}]}`, limit)).Code)
		require.Equal(t, want, a.ask("POST", "/v1/request", fmt.Sprintf(`{"path":%q,"ip":"::1"}`, "/"+limit)).Code)
	}
	var took Take
	a.get("POST", "/v1/take", `{"limit":"open","key":"k"}`, 200, &took)
	require.True(t, took.Allowed)
	require.Equal(t, "failed_open", took.Source)
}

func TestChecksRefuseBlockedClients(t *testing.T) {
	a := startTestAPI(t, `
deny: {ip: 192.0.2.1, user: mallory, key: {login: 192.0.2.7}, until: 2999-01-01T00:00:00Z}
rules:
- {name: login, match: {path: /login}, key: ip, limit: {rate: 5, per: 1h}}
- {name: tasks, match: {path: /tasks}, key: user, limits: [{algorithm: in_flight, rate: 5}]}
- {name: api, match: {path: /api}, key: user, limit: {rate: 5, per: 1h}}
`)
	for _, of := range []string{`"ip":"192.0.2.1"`, `"user":"mallory"`, `"ip":"192.0.2.7"`} {
		var d requestAnswer
		a.get(http.MethodPost, "/v1/request", `{"path":"/login",`+of+`}`, http.StatusOK, &d)
		require.Equal(t, []any{false, 403}, []any{d.Allowed, d.Status}, of)
		require.Positive(t, d.RetryAfterS)
	}
	for path, bodies := range map[string][]string{
		"/v1/take":    {`{"limit":"login","key":"192.0.2.1"}`, `{"limit":"login","key":"192.0.2.7"}`, `{"limit":"api","key":"mallory"}`},
		"/v1/peek":    {`{"limit":"api","key":"mallory"}`},
		"/v1/reserve": {`{"limit":"api","key":"mallory"}`},
		"/v1/hold":    {`{"limit":"tasks","key":"mallory"}`},
		"/v1/take_all": {
			`{"takes":[{"limit":"api","key":"ada"},{"limit":"login","key":"192.0.2.1"}]}`,
		},
	} {
		for _, body := range bodies {
			var take Take
			a.get(http.MethodPost, path, body, http.StatusOK, &take)
			require.False(t, take.Allowed, body)
			require.Positive(t, take.RetryAfterS, body)
		}
	}
	require.EqualValues(t, 5, a.remaining("api", "ada"))
	require.Equal(t, map[string]uint64{"ip": 3, "user": 5, "api_key": 0, "key": 2}, a.book.Stats().Blocked)

	for about, ask := range askers(a.api) {
		w := ask(forwardedAs{client: "192.0.2.1"})
		require.Equal(t, http.StatusForbidden, w.Code, about)
		if about == "auth_request" {
			require.Equal(t, "403", w.Header().Get("X-Weir-Status"))
		}
		require.NotEmpty(t, w.Header().Get("Retry-After"), about)
	}
}

// A take spends kept units only if the request has the field critical.
func TestCriticalTakesSpendKeptUnits(t *testing.T) {
	a := startTestAPI(t, "rules:\n- {name: r, key: ip, limit: {rate: 8, per: 1h, keep: 4}}\n")
	const count = `"limit":"r","key":"192.0.2.1"`
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/v1/take", `{` + count + `,"units":5}`, 413}, {"/v1/take", `{` + count + `,"units":4}`, 200},
		{"/v1/take", `{` + count + `}`, 200}, // denied
		{"/v1/peek", `{` + count + `,"critical":true}`, 200},
		{"/v1/take", `{` + count + `,"critical":true}`, 200},
		{"/v1/reserve", `{` + count + `,"critical":true}`, 200},
		{"/v1/request", `{"path":"/","ip":"192.0.2.1","critical":true}`, 200},
		{"/v1/take", `{` + count + `,"critical":"yes"}`, 400},
		{"/v1/refund", `{` + count + `,"critical":true}`, 400},
	} {
		w := a.ask("POST", c.path, c.body)
		require.Equal(t, c.status, w.Code, "%s %s: %s", c.path, c.body, w.Body)
	}
	l := a.limiter("r")
	remaining := func() int64 {
		d, err := l.Critical().Peek(t.Context(), "192.0.2.1")
		require.NoError(t, err)
		return d.Remaining
	}
	require.EqualValues(t, 1, remaining())
	var all takeAllAnswer
	a.get("POST", "/v1/take_all", `{"takes":[{`+count+`}]}`, 200, &all)
	require.False(t, all.Allowed)
	forward := askers(a.api)["forward_auth"]
	field := http.Header{"X-Internal": {"true"}}
	require.Equal(t, 429, forward(forwardedAs{fields: field}).Code)
	require.Equal(t, 200, forward(forwardedAs{fields: field, parameters: "&critical=X-Internal"}).Code)
	require.Zero(t, remaining())
}
