package admin

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/httplimit"
)

// forwardedAs is a request that a proxy describes. The zero value is GET / from 192.0.2.1.
type forwardedAs struct {
	uri, method, host, client string
	user, tier                string      // sent in fields that the parameters of the proxy name; not sent by Envoy
	parameters                string      // further parameters of the proxy
	fields                    http.Header // further header fields of the client
}

// askers returns, for each endpoint for proxies, a function that sends a request in the form of the endpoint's proxy.
func askers(api http.Handler) map[string]func(forwardedAs) *httptest.ResponseRecorder {
	asker := func(path, uriField, methodField string) func(forwardedAs) *httptest.ResponseRecorder {
		return func(of forwardedAs) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", path+"?user=X-User&tier=X-Tier"+of.parameters, nil)
			of.describe(r)
			r.Header[http.CanonicalHeaderKey(uriField)] = []string{of.orElse(of.uri, "/")}
			r.Header[http.CanonicalHeaderKey(methodField)] = []string{of.orElse(of.method, "GET")}
			r.Header.Set("X-Forwarded-Host", of.host)
			return answer(api, r)
		}
	}
	return map[string]func(forwardedAs) *httptest.ResponseRecorder{
		"forward_auth": asker("/v1/forward_auth", "X-Forwarded-Uri", "X-Forwarded-Method"),
		"auth_request": asker("/v1/auth_request", "X-Original-URI", "X-Original-Method"),
		"ext_authz": func(of forwardedAs) *httptest.ResponseRecorder {
			r := httptest.NewRequest(of.orElse(of.method, "GET"), "/", nil)
			r.URL, _ = url.ParseRequestURI("/v1/ext_authz" + of.orElse(of.uri, "/"))
			r.Host = of.host
			of.describe(r)
			return answer(api, r)
		},
	}
}

func (of *forwardedAs) describe(r *http.Request) {
	if of.fields != nil {
		r.Header = of.fields.Clone()
	}
	r.Header.Set("Authorization", "Bearer "+testToken)
	r.Header.Set("X-Forwarded-For", of.orElse(of.client, "192.0.2.1"))
	if of.user != "" {
		r.Header.Set("X-User", of.user)
	}
	if of.tier != "" {
		r.Header.Set("X-Tier", of.tier)
	}
}

func (*forwardedAs) orElse(text, or string) string {
	if text == "" {
		return or
	}
	return text
}

const forwardedRules = `
tiers: {free: {}, paid: {multiply: 2}}
default_tier: free
rules:
- {name: write, match: {path: /items/, method: POST}, key: ip, limit: {rate: 1, per: 1h}}
- {name: one, match: {path: "/one/{name}"}, key: ip, limit: {rate: 1, per: 1h}}
- {name: host, match: {host: api.example.com}, key: ip, limit: {rate: 1, per: 1h}}
- {name: plan, match: {header: {X-Plan: gold}}, key: ip, limit: {rate: 1, per: 1h}}
- {name: bearer, match: {path: /bearer}, key: "header:Authorization", missing_key: skip, limit: {rate: 1, per: 1h}}
- {name: user, match: {path: /user}, key: user, limit: {rate: 1, per: 1h}}
- {name: all, match: {path: /all}, key: ip, limit: {rate: 2, per: 1h}}
`

// statusOf returns the status for the client, which auth_request sends in a header field.
func statusOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	if of := w.Header().Get("X-Weir-Status"); of != "" {
		require.Equal(t, http.StatusForbidden, w.Code)
		return of
	}
	require.NotEqual(t, http.StatusForbidden, w.Code)
	return fmt.Sprint(w.Code)
}

func TestForwardedRequestUsesProxyFields(t *testing.T) {
	type steps []struct {
		of   forwardedAs
		want string
	}
	for name, c := range map[string]struct {
		steps
		parameters bool // Envoy has none
	}{
		"path and method": {steps: steps{
			{forwardedAs{uri: "/items/1?a=b", method: "POST"}, "200"},
			{forwardedAs{uri: "/items/2", method: "GET"}, "200"},
			{forwardedAs{uri: "/items//3", method: "POST"}, "429"},
			{forwardedAs{uri: "/items%2f3", method: "POST"}, "429"},
			{forwardedAs{uri: "/other", method: "POST"}, "200"},
		}},
		"a fragment, which servers leave out": {steps: steps{
			{forwardedAs{uri: "/items/#1", method: "POST"}, "200"},
			{forwardedAs{uri: "/items/1", method: "POST"}, "429"},
			{forwardedAs{uri: "/items#/../x", method: "POST"}, "429"},
			{forwardedAs{uri: "/items/#?x", method: "POST"}, "429"},
		}},
		"an escaped slash and an unescaped character": {steps: steps{
			{forwardedAs{uri: "/one/a%2F1|"}, "200"},
			{forwardedAs{uri: "/one/a%2F1"}, "429"},
			{forwardedAs{uri: "/one/a%2F\xc3\xa9"}, "429"},
			{forwardedAs{uri: `/one/"<{a%2f` + "`^"}, "429"},
		}},
		"host": {steps: steps{
			{forwardedAs{host: "api.example.com"}, "200"},
			{forwardedAs{host: "API.example.com.:8443"}, "429"},
			{forwardedAs{host: "example.com"}, "200"},
			{forwardedAs{}, "200"},
		}},
		"the client is the address that the proxy appended": {steps: steps{
			{forwardedAs{uri: "/all", client: "198.51.100.1, 192.0.2.7"}, "200"},
			{forwardedAs{uri: "/all", client: "198.51.100.2, 192.0.2.7"}, "200"},
			{forwardedAs{uri: "/all", client: "unknown, 192.0.2.7:443"}, "429"},
			{forwardedAs{uri: "/all", client: "192.0.2.8"}, "200"},
		}},
		"the client's fields": {steps: steps{
			{forwardedAs{fields: http.Header{"X-Plan": {"gold"}}}, "200"},
			{forwardedAs{fields: http.Header{"X-Plan": {"gold"}}}, "429"},
			{forwardedAs{}, "200"},
		}},
		"the proxy's token is not the client's": {steps: steps{
			{forwardedAs{uri: "/bearer"}, "200"}, {forwardedAs{uri: "/bearer"}, "200"},
		}},
		"proxies behind each other": {parameters: true, steps: steps{
			{forwardedAs{uri: "/all", client: "192.0.2.9, 10.0.0.1", parameters: "&hops=2"}, "200"},
			{forwardedAs{uri: "/all", client: "192.0.2.9, 10.0.0.2", parameters: "&hops=2"}, "200"},
			{forwardedAs{uri: "/all", client: "192.0.2.9, 10.0.0.3", parameters: "&hops=2"}, "429"},
			{forwardedAs{uri: "/all", client: "192.0.2.9", parameters: "&hops=2"}, "400"},
		}},
		"another field with the client": {parameters: true, steps: steps{
			{forwardedAs{uri: "/all", client: "unknown", parameters: "&client=x-real-ip", fields: http.Header{"X-Real-Ip": {"192.0.2.10"}}}, "200"},
			{forwardedAs{uri: "/all", parameters: "&client=x-real-ip"}, "400"},
			{forwardedAs{uri: "/all", parameters: "&client=Forwarded", fields: http.Header{"Forwarded": {`for="[2001:db8::1]:443"`}}}, "200"},
		}},
		"user and tier": {parameters: true, steps: steps{
			{forwardedAs{uri: "/user", user: "a"}, "200"},
			{forwardedAs{uri: "/user", user: "a"}, "429"},
			{forwardedAs{uri: "/user", user: "b", tier: "paid"}, "200"},
			{forwardedAs{uri: "/user", user: "b", tier: "paid"}, "200"},
			{forwardedAs{uri: "/user", user: "b", tier: "paid"}, "429"},
		}},
		"paths that servers read in several ways": {parameters: true, steps: steps{
			{forwardedAs{uri: "/items;x/1"}, "200"},
			{forwardedAs{uri: "/items;x/1", parameters: "&ambiguous_paths=refuse"}, "400"},
			{forwardedAs{uri: "/items/1?x=//", parameters: "&ambiguous_paths=refuse"}, "200"},
			{forwardedAs{uri: "/items/1#", parameters: "&ambiguous_paths=refuse"}, "400"},
			{forwardedAs{uri: "/one/group%2Fproject", parameters: "&ambiguous_paths=refuse"}, "400"},
			{forwardedAs{uri: "/items/group%2Fproject", parameters: "&ambiguous_paths=refuse"}, "200"},
		}},
	} {
		for proxy := range askers(nil) {
			if c.parameters && proxy == "ext_authz" {
				continue
			}
			ask := askers(startTestAPI(t, forwardedRules).api)[proxy]
			for i, s := range c.steps {
				w := ask(s.of)
				require.Equal(t, s.want, statusOf(t, w), "%s by %s, step %d: %s", name, proxy, i, w.Body)
			}
		}
	}
}

// The client of a proxy gets the same header fields as a client of the Middleware and, unless the proxy is
// nginx, the same status and body.
func TestForwardedRequestHasMiddlewareFields(t *testing.T) {
	for proxy := range askers(nil) {
		a, b := startTestAPI(t, forwardedRules), startTestAPI(t, forwardedRules)
		m, err := httplimit.New(b.node, b.book, httplimit.Options{})
		require.NoError(t, err)
		passes := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		ask := askers(a.api)[proxy]
		for i := range 3 {
			r := httptest.NewRequest("GET", "/all", nil)
			r.RemoteAddr = "192.0.2.1:1"
			r.Header.Set("Accept", "text/plain")
			seen := httptest.NewRecorder()
			passes.ServeHTTP(seen, r)
			w := ask(forwardedAs{uri: "/all", fields: http.Header{"Accept": {"text/plain"}}})
			for _, field := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "RateLimit-Policy"} {
				require.NotEmpty(t, seen.Header().Get(field))
				require.Equal(t, seen.Header().Get(field), w.Header().Get(field), "%s by %s", field, proxy)
			}
			for _, field := range []string{"RateLimit", "Retry-After", "X-RateLimit-Reset"} {
				require.Equal(t, seen.Header().Get(field) == "", w.Header().Get(field) == "", "%s by %s", field, proxy)
			}
			require.Equal(t, i == 2, w.Header().Get("Retry-After") != "")
			if proxy != "auth_request" {
				require.Equal(t, seen.Code, w.Code)
				require.Equal(t, seen.Header().Get("Content-Type"), w.Header().Get("Content-Type"))
				require.Equal(t, i == 2, strings.HasPrefix(w.Body.String(), "rate limit exceeded"))
			}
		}
	}
}

// Traefik can be configured to ask with the method and the body of the client.
func TestProxyMayUseAnyMethod(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "TRACE"} {
		a := startTestAPI(t, forwardedRules)
		for i, want := range []int{200, 200, 429} {
			r := httptest.NewRequest(method, "/v1/forward_auth", strings.NewReader("a body"))
			r.Header = http.Header{
				"Authorization": {"Bearer " + testToken}, "X-Forwarded-Uri": {"/all"}, "X-Forwarded-Method": {method}, "X-Forwarded-Host": {"h"},
				"X-Forwarded-For": {"192.0.2.1"}, "Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://other.example"},
			}
			w := answer(a.api, r)
			require.Equal(t, want, w.Code, "%s, request %d: %s", method, i, w.Body)
		}
	}
}

// Requests are refused, and spend nothing, if the proxy omits a field or passes on that of its client beside
// its own. To X-Forwarded-For the proxy may append.
func TestProxyWithoutRequiredFieldIsRefused(t *testing.T) {
	a := startTestAPI(t, forwardedRules)
	d := readAPI(t)
	for documented, length := range map[string]int{"/v1/forward_auth": 4, "/v1/auth_request": 4, "/v1/ext_authz/{path}": 1} {
		path := strings.Replace(documented, "{path}", "all", 1)
		var fields []string
		for _, p := range d.Paths[documented]["get"].Parameters {
			if p.In == "header" {
				require.True(t, p.Required)
				fields = append(fields, p.Name)
			}
		}
		require.Len(t, fields, length, path)
		good := http.Header{
			"Authorization": {"Bearer " + testToken}, "X-Forwarded-Uri": {"/all"}, "X-Forwarded-Method": {"GET"},
			"X-Original-Uri": {"/all"}, "X-Original-Method": {"GET"}, "X-Forwarded-Host": {"h"}, "X-Forwarded-For": {"192.0.2.1"},
		}
		ask := func(change func(http.Header)) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", path, nil)
			r.Header = good.Clone()
			change(r.Header)
			return answer(a.api, r)
		}
		for _, field := range fields {
			w := ask(func(h http.Header) { h.Del(field) })
			require.Equal(t, 400, w.Code, "%s without %s", path, field)
			require.Contains(t, w.Body.String(), field)
			if field == "X-Forwarded-For" {
				for _, bad := range []string{"", "unknown", "192.0.2.1,", "192.0.2", "unix:"} {
					require.Equal(t, 400, ask(func(h http.Header) { h.Set(field, bad) }).Code, "%s: %q", path, bad)
				}
				continue
			}
			require.Equal(t, 400, ask(func(h http.Header) { h.Add(field, h.Get(field)) }).Code, "%s: %s twice", path, field)
		}
		if len(fields) > 1 {
			for _, bad := range []string{"", "all", "a b", "/%zz", "mailto:a", "/\x00"} {
				require.Equal(t, 400, ask(func(h http.Header) { h.Set(fields[0], bad) }).Code, "%s: %q", path, bad)
			}
		}
		require.Equal(t, 401, ask(func(h http.Header) { h.Set("Authorization", "Bearer of the client") }).Code)
	}
	var status keyStatus
	a.get("GET", "/v1/status?ip=192.0.2.1&rule=all", "", 200, &status)
	require.EqualValues(t, 2, status.Limits[0].Remaining, "nothing is spent")
}

func TestUncountedForwardedRequestIsDenied(t *testing.T) {
	a := startTestAPI(t, forwardedRules)
	require.NoError(t, a.node.Close())
	for proxy, ask := range askers(a.api) {
		w := ask(forwardedAs{uri: "/all"})
		require.Equal(t, "503", statusOf(t, w), proxy)
		require.NotEmpty(t, w.Header().Get("Retry-After"))
	}
	none, err := CheckHandler(a.node, nil, CheckOptions{Open: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for proxy, ask := range askers(none) {
		require.Equal(t, 404, ask(forwardedAs{}).Code, "%s: there are no rules", proxy)
	}
}

// A proxy does not report the end of a request, so a hold would never be released, and a reservation never
// settled.
func TestForwardedRequestHoldsNothing(t *testing.T) {
	a := startTestAPI(t, `
rules:
- {name: hourly, match: {path: /}, key: ip, limit: {rate: 10, per: 1h}}
- {name: streams, match: {path: /streams}, key: ip, limit: {algorithm: in_flight, rate: 2}}
- {name: queued, match: {path: /queued}, key: ip, limit: {algorithm: in_flight, rate: 1}, queue: 1s}
- {name: tried, match: {path: /tried}, key: ip, shadow: true, limit: {algorithm: in_flight, rate: 1}}
- {name: failures, match: {path: /end}, key: ip, count: {status: [5xx]}, limit: {rate: 10, per: 1h}}
- {name: tokens, match: {path: /end}, key: ip, reserve: {from: 'header:X-Max', default: 2}, settle: {header: X-Total}, limit: {rate: 10, per: 1h}}
`)
	var log bytes.Buffer
	checks, err := CheckHandler(a.node, a.book, CheckOptions{Open: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	for proxy, ask := range askers(checks) {
		for _, uri := range []string{"/streams", "/streams", "/streams", "/queued"} {
			require.Equal(t, "503", statusOf(t, ask(forwardedAs{uri: uri})), "%s at %s", uri, proxy)
		}
		require.Equal(t, "200", statusOf(t, ask(forwardedAs{uri: "/tried"})), proxy)
		require.Equal(t, "200", statusOf(t, ask(forwardedAs{uri: "/end"})), proxy)
	}
	require.EqualValues(t, 4, a.remaining("hourly", "192.0.2.1"), "what is refused costs nothing")
	require.EqualValues(t, 7, a.remaining("failures", "192.0.2.1"), "all count, as no status is known")
	require.EqualValues(t, 4, a.remaining("tokens", "192.0.2.1"), "estimates stay spent")
	require.EqualValues(t, 2, a.remaining("streams", "192.0.2.1"))
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), "the line is paced")
	require.Contains(t, log.String(), "in_flight, and this call does not learn when the request ends, like a proxy's auth request")
}

// The request of a proxy may contain header fields that a browser sends for a page of a foreign origin.
func TestForwardedRequestMayHaveForeignOrigin(t *testing.T) {
	a := startTestAPI(t, forwardedRules)
	for proxy, ask := range askers(a.api) {
		w := ask(forwardedAs{method: "POST", host: "shop.example", fields: http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://other.example"}}})
		require.Equal(t, 200, w.Code, proxy)
	}
	for _, method := range []string{"GET", "POST", "OPTIONS"} {
		r := httptest.NewRequest(method, "/v1/ext_authz/all", nil)
		r.Header = http.Header{"Authorization": {"Bearer " + testToken}, "Origin": {"https://other.example"}, "Access-Control-Request-Headers": {"x-forwarded-for"}}
		w := answer(a.api, r)
		require.Equal(t, 400, w.Code, "a page cannot ask by itself: it may not send X-Forwarded-For")
	}
}

func TestRefundEndsDebtOfDebit(t *testing.T) {
	a := startTestAPI(t, fmt.Sprintf(endpointRules, true))
	var d Take
	h := a.get("POST", "/v1/debit", `{"limit":"hard","key":"u","units":2}`, 200, &d)
	require.True(t, d.Allowed)
	require.Zero(t, d.Remaining)
	require.Empty(t, h.Get("Retry-After"))
	require.Regexp(t, `^"hard";r=0;t=\d+$`, h.Get("RateLimit"))
	a.get("POST", "/v1/debit", `{"limit":"hard","key":"u","units":2}`, 200, &d)
	require.False(t, d.Allowed)
	require.NotZero(t, d.RetryAfterS)
	require.Equal(t, 204, a.ask("POST", "/v1/refund", `{"limit":"hard","key":"u","units":3}`).Code)
	a.get("POST", "/v1/take", `{"limit":"hard","key":"u"}`, 200, &d)
	require.True(t, d.Allowed)
	a.get("POST", "/v1/take", `{"limit":"hard","key":"u"}`, 200, &d)
	require.False(t, d.Allowed)

	a.get("POST", "/v1/debit", `{"limit":"shadow","key":"u","units":5}`, 200, &d)
	require.Equal(t, []bool{true, true}, []bool{d.Allowed, d.ShadowDenied}, "a shadow never denies")

	for range 3 {
		a.get("POST", "/v1/take", `{"limit":"soft","key":"u"}`, 200, &d)
	}
	require.True(t, d.Soft)
	require.Equal(t, 204, a.ask("POST", "/v1/refund", `{"limit":"soft","key":"u","soft":true}`).Code)
	a.get("POST", "/v1/take", `{"limit":"soft","key":"u"}`, 200, &d)
	require.True(t, d.Soft, "the overrun has its unit again")
	for _, body := range []string{
		`{"limit":"hard","key":"u","soft":true}`, `{"limit":"hard","key":"u","soft":1}`, `{"limit":"hard","key":"u","soft":null}`,
		`{"limit":"hard","key":"u","units":0}`, `{"limit":"hard"}`,
	} {
		require.Equal(t, 400, a.ask("POST", "/v1/refund", body).Code, body)
	}

	off := startTestAPI(t, fmt.Sprintf(endpointRules, false))
	h = off.get("POST", "/v1/debit", `{"limit":"hard","key":"u","units":100}`, 200, &d)
	require.Equal(t, []any{true, int64(2)}, []any{d.Allowed, d.Remaining}, "the rules are switched off")
	require.Empty(t, h.Get("RateLimit"))
	require.Equal(t, 204, off.ask("POST", "/v1/refund", `{"limit":"hard","key":"u"}`).Code)
}

// A request whose X-Forwarded-For has no address is never admitted.
func FuzzForwarded(f *testing.F) {
	a := startTestAPI(f, forwardedRules)
	f.Add("forward_auth", "/items/1?a=b", "POST", "api.example.com", "198.51.100.1, 192.0.2.1", "&hops=2")
	f.Add("auth_request", "*", "OPTIONS", "", "[::1]:80", "&ambiguous_paths=refuse")
	f.Add("ext_authz", "/a%2f..//b", "PUT", "h", "192.0.2.1", "")
	f.Fuzz(func(t *testing.T, proxy, uri, method, host, client, parameters string) {
		ask, known := askers(a.api)[proxy]
		_, parses := url.ParseRequestURI("/v1/ext_authz" + uri)
		if !known || parses != nil || strings.ContainsAny(parameters, " \x7f") || strings.ContainsFunc(parameters, func(r rune) bool { return r < ' ' }) {
			return
		}
		if _, err := http.NewRequest(method, "/", nil); err != nil {
			return // no server passes on such a request
		}
		of := forwardedAs{uri: uri, method: method, host: host, client: client, parameters: parameters}
		w, last := ask(of), httplimit.FromRight("X-Forwarded-For", 1)
		require.True(t, slices.Contains([]int{200, 400, 403, 404, 413, 429}, w.Code), "%d %s", w.Code, w.Body)
		if !strings.Contains(parameters, "client") && !last.FromFields(http.Header{"X-Forwarded-For": {client}}, "", false).IsValid() && client != "" && !strings.Contains(parameters, "hops") {
			require.NotEqual(t, 200, w.Code, "the client has no address")
		}
	})
}

// Proxies, and services that describe a request, get the texts of the rule for the client's tier.
func TestForwardedDenialHasTextsOfRule(t *testing.T) {
	const file = forwardedRules + `
- name: texts
  match: {path: /texts}
  key: ip
  multiply: true
  denied: {detail: "{tier}: {limit} per {window}", upgrade_url: /up, headers: {X-Up: "{rule}"}}
  limit: {rate: 1, per: 1h}
`
	for proxy := range askers(nil) {
		ask := askers(startTestAPI(t, file).api)[proxy]
		of := forwardedAs{uri: "/texts", fields: http.Header{"Accept": {"text/plain"}}}
		require.Empty(t, ask(of).Header()["X-Up"])
		w := ask(of)
		require.Equal(t, "429", statusOf(t, w))
		require.Equal(t, []string{"texts"}, w.Header()["X-Up"])
		if proxy != "auth_request" {
			require.Equal(t, "free: 1 per 1h\n/up\n", w.Body.String())
		}
	}
	a := startTestAPI(t, file)
	for _, want := range []*denialAnswer{nil, nil, {"application/json", `{"error":"rate_limit_exceeded","message":"paid: 2 per 1h","retry_after":3600,"upgrade_url":"/up"}` + "\n"}} {
		var d requestAnswer
		h := a.get("POST", "/v1/request", `{"path":"/texts","ip":"192.0.2.1","tier":"paid","headers":{"accept":"application/json"}}`, 200, &d)
		require.Equal(t, want, d.Denial)
		require.Equal(t, want != nil, h.Get("X-Up") == "texts")
	}
}
