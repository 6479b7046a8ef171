package httplimit

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/adminapi"
)

func TestTakeSpendsOfALimitOfTheRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmin(t)
		var took adminapi.Take
		a.get("POST", "/v1/take", `{"limit":"api/burst","key":"u","units":15}`, 200, &took)
		require.Equal(t, "api/burst", took.Name)
		require.Equal(t, "owner", took.Source)
		require.True(t, took.Allowed)
		require.LessOrEqual(t, took.Remaining, int64(6))
		a.get("POST", "/v1/take", `{"limit":"api/burst","key":"u","units":15}`, 200, &took)
		require.False(t, took.Allowed)
		require.NotZero(t, took.RetryAfterS)
		a.get("POST", "/v1/take", `{"limit":"api/burst","key":"u","units":150,"tier":"premium"}`, 200, &took)
		require.EqualValues(t, 200, took.Limit, "the tier's numbers, over the same units")
		require.True(t, took.Allowed)
		a.get("POST", "/v1/take", `{"limit":"both","key":"u"}`, 200, &took)
		require.True(t, took.Shadow)
	})
}

func TestARequestThatIsDescribedIsDecidedAsOneThatIsSeen(t *testing.T) {
	a := newAdmin(t)
	describe := func(body string) (d requestAnswer) {
		t.Helper()
		a.get("POST", "/v1/request", body, 200, &d)
		return d
	}
	d := describe(`{"path":"/v1/items","user":"u","ip":"192.0.2.1","headers":{"x-plan":"gold"}}`)
	require.True(t, d.Allowed)
	require.Equal(t, 200, d.Status)
	var names []string
	for _, l := range d.Limits {
		names = append(names, l.Name)
	}
	require.Equal(t, []string{"api/burst", "api/hourly", "address", "both"}, names)
	for range 4 {
		require.True(t, describe(`{"path":"/","ip":"192.0.2.1"}`).Allowed)
	}
	require.True(t, describe(`{"path":"/","ip":"192.0.2.1"}`).Soft)
	require.True(t, describe(`{"path":"/","ip":"192.0.2.1"}`).Soft)
	d = describe(`{"path":"/","ip":"192.0.2.1"}`)
	require.False(t, d.Allowed)
	require.Equal(t, http.StatusTooManyRequests, d.Status)
	require.NotZero(t, d.RetryAfterS)
	require.False(t, d.Limits[0].Allowed)
	require.Empty(t, describe(`{"path":"/","ip":"192.0.2.1","user":"monitoring"}`).Limits, "it is exempt")
	require.True(t, describe(`{"method":"POST","path":"/","length":10}`).Allowed)
	for _, body := range []string{
		`{"path":"items"}`, `{"path":""}`, `{"path":"/","ip":"1"}`, `{"path":"/","headers":{"a":1}}`, `{"path":"/","headers":"a"}`,
		`{"path":"/","length":-1}`,
	} {
		require.Equal(t, 400, a.ask("POST", "/v1/request", body).Code, body)
	}
}

func TestChecksAnswerToWhomTheyAreToldAndChangeNothing(t *testing.T) {
	a := newAdmin(t)
	ask := func(h http.Handler, method, path, token string) int {
		r := httptest.NewRequest(method, path, strings.NewReader(`{"limit":"address","key":"1"}`))
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	quiet := slog.New(slog.DiscardHandler)
	guarded, err := Checks(a.node, a.book, CheckOptions{Tokens: [][]byte{[]byte(adminToken)}, Logger: quiet})
	require.NoError(t, err)
	require.Equal(t, 200, ask(guarded, "POST", "/v1/take", adminToken))
	require.Equal(t, 401, ask(guarded, "POST", "/v1/take", ""))
	require.Equal(t, 401, ask(guarded, "POST", "/v1/take", adminToken+"0"))
	open, err := Checks(a.node, a.book, CheckOptions{Open: true, Logger: quiet})
	require.NoError(t, err)
	require.Equal(t, 200, ask(open, "POST", "/v1/take", ""))
	for _, r := range adminRoutes {
		switch r.path {
		case "/v1/take", "/v1/peek", "/v1/take_all", "/v1/check", "/v1/request", "/v1/debit", "/v1/refund",
			"/v1/hold", "/v1/renew", "/v1/release", "/v1/reserve", "/v1/settle",
			"/v1/forward_auth", "/v1/auth_request", extAuthzPath, "/openapi.json":
			continue
		}
		require.Equal(t, 404, ask(open, r.method, r.path, ""), r.path)
	}
	none, err := Checks(a.node, nil, CheckOptions{Open: true, Logger: quiet})
	require.NoError(t, err)
	require.Equal(t, 404, ask(none, "POST", "/v1/take", ""), "there are no rules")
	for _, o := range []CheckOptions{{}, {Open: true, MutualTLS: true}, {Open: true, Tokens: [][]byte{[]byte(adminToken)}}, {Tokens: [][]byte{[]byte("short")}}} {
		_, err := Checks(a.node, a.book, o)
		require.ErrorIs(t, err, weir.ErrInvalid)
	}
	_, err = Checks(nil, nil, CheckOptions{Open: true})
	require.ErrorIs(t, err, weir.ErrInvalid)
}

// Whatever is sent, an open API answers with a status that the document has.
func FuzzChecks(f *testing.F) {
	a := newAdmin(f)
	open, err := Checks(a.node, a.book, CheckOptions{Open: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(f, err)
	f.Add("/v1/take", `{"limit":"address","key":"1","units":2,"tier":"premium"}`)
	f.Add("/v1/peek", `{"limit":"address","key":"1","tier":"premium"}`)
	f.Add("/v1/take_all", `{"takes":[{"limit":"address","key":"1","units":2,"tier":"premium"},{"limit":"api/burst","key":"u"}]}`)
	f.Add("/v1/request", `{"method":"POST","path":"/v1/a%2fb","host":"h","ip":"::1","user":"u","api_key":"k","length":1,"headers":{"X-Plan":"gold"},"ttl":"30s"}`)
	f.Add("/v1/debit", `{"limit":"address","key":"1","units":2,"tier":"premium"}`)
	f.Add("/v1/refund", `{"limit":"address","key":"1","units":2,"soft":true}`)
	f.Add("/v1/hold", `{"limit":"address","key":"1","units":2,"tier":"premium","ttl":"30s"}`)
	f.Add("/v1/renew", `{"limit":"address","key":"1","hold":"x","ttl":"1h"}`)
	f.Add("/v1/release", `{"limit":"address","key":"1","hold":"x"}`)
	f.Add("/v1/reserve", `{"limit":"address","key":"1","units":2}`)
	f.Add("/v1/settle", `{"limit":"address","key":"1","reservation":"x","units":0}`)
	f.Add("/v1/check", `{"key":"a","limit":1,"window_ms":60000}`)
	f.Fuzz(func(t *testing.T, path, body string) {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.URL.Path = path
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		open.ServeHTTP(w, r)
		require.Contains(t, []int{200, 204, 400, 404, 405, 409, 410, 413}, w.Code, w.Body.String())
		require.Equal(t, w.Code != 204, json.Valid(w.Body.Bytes()))
	})
}

// What answers a check can be handed on to a client as it is: the fields are those that
// the middleware sets.
func TestACheckSaysInItsHeaderWhatIsLeftAndWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmin(t)
		open, err := Checks(a.node, a.book, CheckOptions{Open: true, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		ask := func(path, body string) http.Header {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			open.ServeHTTP(w, r)
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
