package admin

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

const (
	testToken = "0123456789abcdef"
	testRules = `
version: 3
tiers: {free: {}, premium: {multiply: 10}}
default_tier: free
exempt: {user: monitoring}
rules:
- name: api
  match: {path: /v1/, header: {X-Plan: gold}}
  key: user
  limits:
  - {name: burst, algorithm: token_bucket, rate: 10, per: 1s, burst: 20}
  - {name: hourly, rate: 1000, per: 1h}
- name: address
  key: ip
  limit: {rate: 5, per: 1m}
  soft: {over: 40%, for: 10m}
- name: both
  key: [user, "header:X-Project"]
  limit: {rate: 7, per: 1m}
  shadow: true
- name: all
  match: {method: POST}
  key: global
  limit: {algorithm: fixed_window, rate: 100, calendar: day, zone: Europe/Berlin}
- name: paid
  match: {tier: premium}
  key: user
  limit: {algorithm: leaky_bucket, rate: 3, per: 1m}
  queue: 2s
`
)

// testAPI is the API of a node with rules.
type testAPI struct {
	t    testing.TB
	node *weir.Node
	book *rules.Book
	api  http.Handler
	log  *bytes.Buffer
}

func newTestAPI(t testing.TB) *testAPI {
	t.Helper()
	return startTestAPI(t, testRules)
}

// startTestAPI starts a node with these rules, and returns its API.
func startTestAPI(t testing.TB, text string) *testAPI {
	t.Helper()
	return newTestAPIOn(t, testnode.Start(t, weir.Config{}), text)
}

func newTestAPIOn(t testing.TB, node *weir.Node, text string) *testAPI {
	t.Helper()
	a := &testAPI{t: t, node: node, book: testnode.Book(t, node, text), log: new(bytes.Buffer)}
	var err error
	a.api, err = Handler(node, a.book, Options{Tokens: [][]byte{[]byte(testToken)}, Logger: slog.New(slog.NewTextHandler(a.log, nil))})
	require.NoError(t, err)
	return a
}

// quietly is a logger that discards.
var quietly = slog.New(slog.DiscardHandler)

func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// ask sends a request with the token. A body is sent as JSON.
func (a *testAPI) ask(method, path, body string) *httptest.ResponseRecorder {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, path, reader)
	r.Header.Set("Authorization", "Bearer "+testToken)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := answer(a.api, r)
	require.Equal(a.t, "no-store", w.Header().Get("Cache-Control"))
	requireNoGo(a.t, w)
	return w
}

// get sends a request, requires the status, and decodes the response.
func (a *testAPI) get(method, path, body string, status int, into any) http.Header {
	a.t.Helper()
	w := a.ask(method, path, body)
	require.Equal(a.t, status, w.Code, w.Body.String())
	require.NoError(a.t, json.Unmarshal(w.Body.Bytes(), into), w.Body.String())
	return w.Header()
}

func query(pairs ...string) string {
	q := make(url.Values)
	for i := 0; i < len(pairs); i += 2 {
		q.Add(pairs[i], pairs[i+1])
	}
	return "?" + q.Encode()
}

func TestHandlerRequiresCredentials(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	any := func(*x509.Certificate) bool { return true }
	for _, c := range []struct {
		about, want string
		o           Options
	}{
		{"neither", "weir: invalid Options: neither Tokens nor MutualTLS is set: add a token of 16 bytes or more, or set MutualTLS; the admin API is never open to every client", Options{}},
		{"an empty token", "weir: invalid Options: Tokens[0] has 0 bytes: use 16 or more, at random", Options{Tokens: [][]byte{nil}}},
		{"a short token beside a good one", "weir: invalid Options: Tokens[1] has 5 bytes: use 16 or more, at random", Options{Tokens: [][]byte{[]byte(testToken), []byte("12345")}}},
		{"a token that lacks a byte", "weir: invalid Options: Tokens[0] has 15 bytes: use 16 or more, at random", Options{Tokens: [][]byte{[]byte("0123456789abcde")}}},
		{"a condition on nothing", "weir: invalid Options: Certificate is set and MutualTLS is not: set MutualTLS too, or no client is asked for a certificate", Options{Tokens: [][]byte{[]byte(testToken)}, Certificate: any}},
	} {
		api, err := Handler(node, nil, c.o)
		require.ErrorIs(t, err, weir.ErrInvalid, c.about)
		require.EqualError(t, err, c.want, c.about)
		require.Nil(t, api, c.about)
	}
	_, err := Handler(nil, nil, Options{Tokens: [][]byte{[]byte(testToken)}})
	require.EqualError(t, err, "weir: invalid admin.Handler: node is nil: pass one that weir.Start returned")
}

func TestHandlerAcceptsOnlyItsTokens(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	const old = "the token of last month, which is longer"
	api, err := Handler(node, nil, Options{Tokens: [][]byte{[]byte(testToken), []byte(old)}})
	require.NoError(t, err)
	const howTo, which = "send one Authorization header: Bearer and a token", "the token is not allowed"
	for _, c := range []struct {
		about  string
		header []string
		detail string // empty if the request succeeds
	}{
		{"the first token", []string{"Bearer " + testToken}, ""},
		{"the second token", []string{"Bearer " + old}, ""},
		{"a scheme of other case", []string{"bEARER " + testToken}, ""},
		{"none", nil, howTo},
		{"an empty one", []string{""}, howTo},
		{"another scheme", []string{"Basic " + testToken}, howTo},
		{"no scheme", []string{testToken}, howTo},
		{"two headers", []string{"Bearer " + testToken, "Bearer " + testToken}, howTo},
		{"no token", []string{"Bearer"}, which},
		{"an empty token", []string{"Bearer "}, which},
		{"the start of a token", []string{"Bearer " + testToken[:15]}, which},
		{"a token and more", []string{"Bearer " + testToken + "0"}, which},
		{"two tokens", []string{"Bearer " + testToken + " " + old}, which},
		{"another of the same length", []string{"Bearer 0123456789abcdeF"}, which},
	} {
		for _, path := range []string{"/v1/members", "/openapi.json", "/nothing", "/v1/members/x"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header["Authorization"] = c.header
			w := answer(api, r)
			if c.detail == "" {
				require.NotEqual(t, http.StatusUnauthorized, w.Code, c.about)
				continue
			}
			require.Equal(t, http.StatusUnauthorized, w.Code, "%s: %s: the response without credentials reveals nothing", c.about, path)
			require.Equal(t, `Bearer realm="weir"`, w.Header().Get("WWW-Authenticate"), c.about)
			require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			require.Equal(t, `{"type":"about:blank","title":"Unauthorized","status":401,"detail":"`+c.detail+`"}`+"\n", w.Body.String(), c.about)
		}
	}
}

func TestHandlerAcceptsOnlyVerifiedCertificates(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	leaf := func(name string) *x509.Certificate { return &x509.Certificate{Subject: pkix.Name{CommonName: name}} }
	verified := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf("ops")}}}
	for _, c := range []struct {
		about  string
		o      Options
		tls    *tls.ConnectionState
		token  string
		status int
	}{
		{"verified", Options{MutualTLS: true}, verified, "", 200},
		{"no TLS", Options{MutualTLS: true}, nil, "", 403},
		{"no certificate", Options{MutualTLS: true}, &tls.ConnectionState{}, "", 403},
		{"one that was not verified", Options{MutualTLS: true}, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf("ops")}}, "", 403},
		{"an empty chain", Options{MutualTLS: true}, &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}, "", 403},
		{"a token in its place", Options{MutualTLS: true}, nil, testToken, 403},
		{"another's name", Options{MutualTLS: true, Certificate: func(c *x509.Certificate) bool { return c.Subject.CommonName == "root" }}, verified, "", 403},
		{"the right name", Options{MutualTLS: true, Certificate: func(c *x509.Certificate) bool { return c.Subject.CommonName == "ops" }}, verified, "", 200},
		{"both are asked for, and there", Options{MutualTLS: true, Tokens: [][]byte{[]byte(testToken)}}, verified, testToken, 200},
		{"both are asked for, one is there", Options{MutualTLS: true, Tokens: [][]byte{[]byte(testToken)}}, verified, "", 401},
	} {
		api, err := Handler(node, nil, c.o)
		require.NoError(t, err, c.about)
		r := httptest.NewRequest(http.MethodGet, "/v1/members", nil)
		r.TLS = c.tls
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := answer(api, r)
		require.Equal(t, c.status, w.Code, c.about)
	}
}

func TestInvalidRequestsAreRefusedWithReason(t *testing.T) {
	a := newTestAPI(t)
	long := strings.Repeat("k", 1025)
	for _, c := range []struct {
		about, method, path, body string
		status                    int
		detail                    string
	}{
		{"no such path", "GET", "/v2/status", "", 404, `there is nothing at this path: /openapi.json lists the paths`},
		{"a path with a slash more", "GET", "/v1//status", "", 404, `there is nothing at this path: /openapi.json lists the paths`},
		{"a member without a name", "DELETE", "/v1/members/", "", 404, `there is nothing at this path: /openapi.json lists the paths`},
		{"a method that is not there", "PUT", "/v1/overrides", "{}", 405, `this path answers DELETE, GET, HEAD, POST`},
		{"OPTIONS", "OPTIONS", "/v1/check", "", 405, `this path answers POST`},
		{"an unknown parameter", "GET", "/v1/status?kye=a&key=b", "", 400, `unknown parameter "kye": did you mean "key"?`},
		{"a parameter where none is", "GET", "/v1/ring?key=a", "", 400, `unknown parameter "key": there are none`},
		{"a parameter twice", "GET", "/v1/status?key=a&key=b", "", 400, `parameter "key" is set 2 times: send it once`},
		{"a broken query", "GET", "/v1/status?key=%zz", "", 400, `the query is not valid application/x-www-form-urlencoded: escape %, &, + and ;`},
		{"a status without a key", "GET", "/v1/status", "", 400, `name the key: send key, or the parts of keys (ip, user, api_key, header)`},
		{"a key and a part", "GET", "/v1/status?key=a&user=b", "", 400, `key is a whole key: send either key, or the parts of keys (ip, user, api_key, header)`},
		{"no address", "GET", "/v1/status?ip=localhost", "", 400, `ip is "localhost": use an IP address`},
		{"no header", "GET", "/v1/status?header=X", "", 400, `header is "X": write it like X-Plan: gold`},
		{"no such tier", "GET", "/v1/status?key=a&tier=premum", "", 400, `there is no tier "premum": did you mean "premium"?`},
		{"no such rule", "GET", "/v1/status?key=a&rule=adress", "", 404, `there is no rule "adress": did you mean "address"?`},
		{"no such limit to go on after", "GET", "/v1/status?key=a&after=x", "", 404, `there is no limit "x": known are api/burst, api/hourly, address, both, all, paid`},
		{"a key that is too long", "GET", "/v1/status?key=" + long, "", 400, `the key has 1025 bytes: use at most 1024`},

		{"an override of nothing", "POST", "/v1/overrides", `{}`, 400, `field "limit" is missing; field "key" is missing; field "rate" is missing`},
		{"an override of no limit", "POST", "/v1/overrides", `{"limit":"api","key":"a","rate":1}`, 404, `there is no limit "api": known are api/burst, api/hourly, address, both, all, paid`},
		{"a rate below 0", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":-1}`, 400, `rate is -1: use 0 to 1000000000000`},
		{"a block with a time", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":0,"per":"1h"}`, 400, `per or burst is set, and rate 0 blocks the key: leave per and burst out`},
		{"a block of nobody", "PUT", "/v1/blocks", `{}`, 400, `send one of ip, user, api_key, or rule with key`},
		{"a block of two", "PUT", "/v1/blocks", `{"ip":"192.0.2.1","user":"u"}`, 400, `send one of ip, user, api_key, or rule with key`},
		{"a block of a key without a rule", "PUT", "/v1/blocks", `{"key":"u"}`, 400, `send one of ip, user, api_key, or rule with key`},
		{"a block of no address", "PUT", "/v1/blocks", `{"ip":"192.0.2.1/33"}`, 400, `"192.0.2.1/33" is no address or network: use one like 192.0.2.1 or 10.0.0.0/8`},
		{"a block of no rule", "PUT", "/v1/blocks", `{"rule":"adress","key":"u"}`, 404, `there is no rule "adress": did you mean "address"?`},
		{"a block of a long key", "PUT", "/v1/blocks", `{"api_key":"` + long + `"}`, 400, `the api_key has 1025 bytes: use 1 to 1024`},
		{"a block in the past", "PUT", "/v1/blocks", `{"user":"u","until":"2001-01-01T00:00:00Z"}`, 400, `until is 2001-01-01T00:00:00Z, which is past: use a later time`},
		{"a block by its id and its client", "DELETE", "/v1/blocks?id=user/5&user=ada", "", 400, "id already names a block: send no other parameter"},
		{"a block that is none", "DELETE", "/v1/blocks?id=user/5", "", 400, `"user/5" is not the name of a block: use ip/NETWORK, user/ID, api_key/ID or key/RULE/ID`},
		{"a rate in quotes", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":"5"}`, 400, `rate is "5": use a number, without quotes`},
		{"half a rate", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":1.5}`, 400, `rate is 1.5: use a whole number`},
		{"a rate of null", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":null}`, 400, `rate is null: use a whole number`},
		{"a key that is a number", "POST", "/v1/overrides", `{"limit":"address","key":5,"rate":5}`, 400, `key is 5: use a text, in quotes`},
		{"a time of nothing", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":5,"per":"0s"}`, 400, `per is "0s": use a duration above 0, like 1m30s or 250ms`},
		{"a day", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":5,"per":"1d"}`, 400, `per is "1d": use a duration above 0, like 24h`},
		{"a day's name", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":5,"until":"Friday"}`, 400, `until is "Friday": use a time like 2006-01-02T15:04:05Z`},
		{"until the past", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":5,"until":"2001-02-03T04:05:06+01:00"}`, 400, `until is 2001-02-03T03:05:06Z, which is past: use a later time`},
		{"a burst of a window", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":5,"burst":6}`, 400, `burst is 6, and address is a sliding_window: leave burst out, because only token_bucket and leaky_bucket have a burst`},
		{"a Per beside the calendar", "POST", "/v1/overrides", `{"limit":"all","key":"","rate":5,"per":"1h"}`, 400, `per is 1h, and all has windows of a calendar day: leave per out`},
		{"a time too long", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":5,"per":"8785h"}`, 400, `per is 8785h: use 1ms to 8784h`},
		{"a burst of centuries", "POST", "/v1/overrides", `{"limit":"paid","key":"a","rate":1,"per":"24h","burst":1000000}`, 400, `burst is 1000000: at 1 per 24h it takes more than 100 years to refill; lower it`},
		{"too many of the top", "GET", "/v1/top?n=101", "", 400, `n is 101: use 1 to 100`},
		{"used units in proportion", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":5,"used":"scale"}`, 400, `used is "scale": use keep or reset`},
		{"an author without end", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":5,"by":"` + strings.Repeat("b", 129) + `"}`, 400, `by has 129 bytes: use at most 128`},
		{"several faults", "POST", "/v1/overrides", `{"limit":"address","key":"` + long + `","rate":-1,"until":"0001-01-01T00:00:00Z"}`, 400, `the key has 1025 bytes: use at most 1024; rate is -1: use 0 to 1000000000000; until is 0001-01-01T00:00:00Z, which is past: use a later time`},
		{"an unknown field", "POST", "/v1/overrides", `{"limit":"address","key":"a","rate":5,"untill":"x"}`, 400, `unknown field "untill": did you mean "until"?`},
		{"a field of other case", "POST", "/v1/overrides", `{"Limit":"address","key":"a","rate":5}`, 400, `unknown field "Limit": did you mean "limit"?; field "limit" is missing`},
		{"a field twice", "POST", "/v1/overrides", `{"limit":"address","limit":"all","key":"a","rate":5}`, 400, `field "limit" is set twice: remove one`},
		{"a query and a body", "POST", "/v1/overrides?limit=address", `{"key":"a","rate":5}`, 400, `send the fields in the body: this path takes no query`},
		{"no body", "POST", "/v1/overrides", ` `, 400, `the body is empty: send a JSON object`},
		{"a list", "POST", "/v1/overrides", `[]`, 400, `the body is not a JSON object`},
		{"half an object", "POST", "/v1/overrides", `{"limit":`, 400, `the body is not JSON: at byte 9: unexpected end of JSON input`},
		{"two objects", "POST", "/v1/overrides", `{} {}`, 400, `the body is not JSON: at byte 4: invalid character '{' after top-level value`},
		{"no UTF-8", "POST", "/v1/overrides", "{\"key\":\"\xff\"}", 400, `the body is not UTF-8`},
		{"a body without end", "POST", "/v1/overrides", `{"key":"` + strings.Repeat("a", 64<<10) + `"}`, 413, `the body is larger than 65536 bytes`},

		{"a deletion without an override", "DELETE", "/v1/overrides?limit=address", "", 400, `name the override: send key, or the id from the list`},
		{"a key and an id", "DELETE", "/v1/overrides?limit=address&key=a&id=" + strings.Repeat("0b", 16), "", 400, `name the override: send key, or the id from the list`},
		{"a short id", "DELETE", "/v1/overrides?limit=address&id=abcd", "", 400, `id is "abcd": use the 32 hexadecimal digits from the list`},
		{"a count without a limit", "DELETE", "/v1/counts?limit=", "", 400, `limit is empty; parameter "key" is missing`},
		{"no count's limit", "DELETE", "/v1/counts?limit=api/hurly&key=a", "", 404, `there is no limit "api/hurly": did you mean "api/hourly"?`},
		{"no such member", "DELETE", "/v1/members/a%2Fb%20c", "", 404, `there is no member "a/b c": known are ` + a.node.Members()[0].Name},
		{"a member that lives", "DELETE", "/v1/members/" + a.node.Members()[0].Name, "", 409, `"` + a.node.Members()[0].Name + `" is serving: only a dead member can be forgotten`},

		{"a request with headers that are a text", "POST", "/v1/request", `{"path":"/","headers":"a"}`, 400, `headers is "a": use an object of texts, in quotes`},
		{"a request of less than nothing", "POST", "/v1/request", `{"path":"/","length":-1}`, 400, `length is -1: use 0 to 1000000000000`},
		{"a check of nothing", "POST", "/v1/check", `{}`, 400, `field "key" is missing; field "limit" is missing; field "window_ms" is missing`},
		{"a check with a misspelt field", "POST", "/v1/check", `{"key":"a","limit":1,"window":5}`, 400, `unknown field "window": known are key, limit, window_ms, weight, name; field "window_ms" is missing`},
		{"a check of wrong numbers", "POST", "/v1/check", `{"key":"a","limit":0,"window_ms":-1,"weight":-1}`, 400, `limit is 0: use 1 to 1000000000000; window_ms is -1: use 1 to 31622400000; weight is -1: use 0 to 1000000000000`},
		{"a check beyond all numbers", "POST", "/v1/check", `{"key":"a","limit":99999999999999999999,"window_ms":1000}`, 400, `limit is 99999999999999999999: use a whole number`},
		{"a check of a long key", "POST", "/v1/check", `{"key":"` + long + `","limit":1,"window_ms":1000}`, 400, `the key has 1025 bytes: use at most 1024`},
		{"a check of a long name", "POST", "/v1/check", `{"key":"a","limit":1,"window_ms":1000,"name":"` + long[:129] + `"}`, 400, `name has 129 bytes: use at most 128`},
		{"a check above its limit", "POST", "/v1/check", `{"key":"a","limit":5,"window_ms":1000,"weight":6}`, 413, `weight is 6: more than the limit of 5 can ever grant`},
	} {
		w := a.ask(c.method, c.path, c.body)
		want, err := json.Marshal(httplimit.Problem{Type: "about:blank", Title: http.StatusText(c.status), Status: c.status, Detail: c.detail})
		require.NoError(t, err)
		require.Equal(t, string(want)+"\n", w.Body.String(), c.about)
		require.Equal(t, c.status, w.Code, c.about)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), c.about)
	}
	require.Equal(t, "DELETE, GET, HEAD, POST", a.ask("PUT", "/v1/overrides", "").Header().Get("Allow"))
	require.Empty(t, a.log.String(), "nothing has changed")
	require.Zero(t, a.node.Stats().Keys, "nothing was counted")
}

func TestBodyRequiresJSONContentType(t *testing.T) {
	a := newTestAPI(t)
	const body = `{"key":"a","limit":5,"window_ms":1000}`
	for kind, status := range map[string]int{
		"application/json": 200, "Application/JSON; charset=UTF-8": 200, "": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415,
		"application/json; charset=latin1": 415, "application/jsonp": 415, "garbage;;": 415,
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+testToken)
		r.Header.Set("Content-Type", kind)
		w := answer(a.api, r)
		require.Equal(t, status, w.Code, kind)
		if status == 415 {
			require.Equal(t, `{"type":"about:blank","title":"Unsupported Media Type","status":415,"detail":"send application/json"}`+"\n", w.Body.String())
		}
	}
}

func TestForeignOriginChangesNothing(t *testing.T) {
	a := newTestAPI(t)
	r := httptest.NewRequest(http.MethodDelete, "/v1/counts?limit=address&key=a", nil)
	r.Header.Set("Authorization", "Bearer "+testToken)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := answer(a.api, r)
	require.Equal(t, `{"type":"about:blank","title":"Forbidden","status":403,"detail":"the request comes from a page of another origin"}`+"\n", w.Body.String())
	require.Equal(t, http.StatusForbidden, w.Code)
}

func TestClosedNodeIsReported(t *testing.T) {
	a := newTestAPI(t)
	require.NoError(t, a.node.Close())
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/status?key=a", ""}, {"DELETE", "/v1/counts?limit=address&key=a", ""},
		{"POST", "/v1/check", `{"key":"a","limit":5,"window_ms":1000}`}, {"POST", "/v1/overrides", `{"limit":"address","key":"a","rate":5}`},
	} {
		w := a.ask(c.method, c.path, c.body)
		require.Equal(t, `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the node is closed: ask another node"}`+"\n", w.Body.String(), c.path)
		require.Equal(t, http.StatusServiceUnavailable, w.Code, c.path)
	}
}

func TestNodeWithoutBookHasNoRules(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	api, err := Handler(node, nil, Options{Tokens: [][]byte{[]byte(testToken)}})
	require.NoError(t, err)
	a := &testAPI{t: t, node: node, api: api}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/status?key=a", ""}, {"GET", "/v1/rules", ""}, {"GET", "/v1/overrides", ""}, {"POST", "/v1/overrides", `{}`},
		{"DELETE", "/v1/overrides?limit=a&key=b", ""}, {"DELETE", "/v1/counts?limit=a&key=b", ""},
	} {
		w := a.ask(c.method, c.path, c.body)
		require.Equal(t, `{"type":"about:blank","title":"Not Found","status":404,"detail":"this node has no rules"}`+"\n", w.Body.String(), c.path)
	}
	require.NotContains(t, a.ask("GET", "/v1/stats", "").Body.String(), `"rules"`)
	var d checkAnswer
	a.get("POST", "/v1/check", `{"key":"a","limit":5,"window_ms":1000}`, 200, &d)
	require.True(t, d.Allowed)
	var reset resetAnswer
	a.get("DELETE", "/v1/counts"+query("limit", "/check/5/1000", "key", "a"), "", 200, &reset)
}

func TestCheckServesOtherServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestAPI(t)
		check := func(body string) (d checkAnswer) {
			t.Helper()
			a.get("POST", "/v1/check", body, 200, &d)
			return d
		}
		const window = `"limit":10,"window_ms":3600000`
		d := check(`{"key":"a",` + window + `}`)
		require.True(t, d.Allowed)
		require.EqualValues(t, 9, d.Remaining)
		require.EqualValues(t, 0, d.RetryAfterS)
		require.EqualValues(t, 3600*1000, d.ResetMS)
		require.EqualValues(t, 2, check(`{"key":"a",`+window+`,"weight":7}`).Remaining)
		require.Equal(t, checkAnswer{Allowed: true, Remaining: 2, ResetMS: check(`{"key":"a",` + window + `,"weight":0}`).ResetMS}, check(`{"key":"a",`+window+`,"weight":0}`), "a weight of 0 spends nothing")
		d = check(`{"key":"a",` + window + `,"weight":3}`)
		require.False(t, d.Allowed)
		require.EqualValues(t, 2, d.Remaining)
		require.Positive(t, d.RetryAfterS)
		check(`{"key":"a",` + window + `,"weight":2}`)
		d = check(`{"key":"a",` + window + `,"weight":0}`)
		require.Equal(t, checkAnswer{Allowed: true, ResetMS: d.ResetMS}, d, "a weight of 0 is allowed also where nothing is left")
		require.EqualValues(t, 9, check(`{"key":"b",`+window+`}`).Remaining, "another key")
		require.EqualValues(t, 19, check(`{"key":"a","limit":20,"window_ms":3600000}`).Remaining, "other numbers are another limit")

		require.EqualValues(t, 9, check(`{"key":"a",`+window+`,"name":"n"}`).Remaining)
		require.EqualValues(t, 18, check(`{"key":"a","limit":20,"window_ms":3600000,"name":"n"}`).Remaining, "with a name the count goes on")
		var reset resetAnswer
		a.get("DELETE", "/v1/counts"+query("limit", "/check/n", "key", "a"), "", 200, &reset)
		require.EqualValues(t, 20, check(`{"key":"a","limit":20,"window_ms":3600000,"name":"n","weight":0}`).Remaining)

		require.EqualValues(t, 4, check(`{"key":"","limit":5,"window_ms":1}`).Remaining, "the empty key is one")
	})
}

func TestRequestTimeIsBounded(t *testing.T) {
	a := newTestAPI(t)
	h := a.api.(*api)
	h.stepTimeout = 10 * time.Millisecond
	h.routes["/v1/slow"] = map[string]route{http.MethodGet: {serve: func(_ *api, r *request) (int, any, error) {
		select {
		case <-r.Context().Done():
			return 0, nil, r.Context().Err()
		case <-time.After(10 * time.Second):
			return http.StatusOK, nil, nil
		}
	}}}
	w := a.ask("GET", "/v1/slow", "")
	require.Equal(t, http.StatusGatewayTimeout, w.Code)
	require.Contains(t, w.Body.String(), "ask again")
}

func TestNoKeyIsLogged(t *testing.T) {
	a := newTestAPI(t)
	const key = "alice@example.com"
	var set overrideAnswer
	a.get("POST", "/v1/overrides", `{"limit":"api/hourly","key":"`+key+`","rate":5000}`, 200, &set)
	require.Equal(t, "token 1", set.By)
	require.Equal(t, http.StatusNoContent, a.ask("DELETE", "/v1/overrides"+query("limit", "api/hourly", "key", key), "").Code)
	require.Equal(t, http.StatusOK, a.ask("DELETE", "/v1/counts"+query("limit", "api/hourly", "key", key), "").Code)
	require.Equal(t, http.StatusOK, a.ask("GET", "/v1/status"+query("key", key), "").Code)
	require.Equal(t, http.StatusBadRequest, a.ask("GET", "/v1/status"+query("key", key, "kye", key), "").Code)
	require.Equal(t, 3, strings.Count(a.log.String(), "\n"), a.log)
	require.Equal(t, 3, strings.Count(a.log.String(), set.ID), "each change is logged with what stands for the key")
	require.Equal(t, 3, strings.Count(a.log.String(), `client="token 1"`))
	require.Regexp(t, `msg="an operator set an override".* rate=5000 until=forever by="token 1" `, a.log)
	require.NotContains(t, a.log.String(), "alice")
	require.NotContains(t, a.log.String(), testToken)
}

func TestOverrideIsSetListedAndDeleted(t *testing.T) {
	a := newTestAPI(t)
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	body, err := json.Marshal(map[string]any{"limit": "api/burst", "key": "u", "rate": 50, "per": "2s", "burst": 500, "until": until.In(time.FixedZone("", 7200)).Format(time.RFC3339), "by": "ops", "reason": "a sale"})
	require.NoError(t, err)
	var set overrideAnswer
	before := time.Now()
	a.get("POST", "/v1/overrides", string(body), 200, &set)
	after := time.Now()
	utc, id := until.UTC(), a.limiter("api/burst").ID("u")
	require.Contains(t, a.log.String(), " until="+utc.Format(time.RFC3339)+" ")
	require.Equal(t, overrideAnswer{Limit: "api/burst", ID: hex.EncodeToString(id[:]), Rate: 50, Per: "2s", Burst: 500, controlAnswer: controlAnswer{Until: &utc, By: "ops", Reason: "a sale", At: set.At}}, set)
	require.Contains(t, a.log.String(), ` by=ops reason="a sale" `)
	require.False(t, set.At.Before(before.Truncate(time.Second)) || set.At.After(after), "%v is not between %v and %v, in whole seconds", set.At, before, after)

	var all overridesAnswer
	a.get("GET", "/v1/overrides", "", 200, &all)
	require.Equal(t, []*overrideAnswer{&set}, all.Overrides)
	status := a.statusOf("key", "u", "rule", "api")
	require.Equal(t, &set, status.Limits[0].Override)
	require.EqualValues(t, 500, status.Limits[0].Limit)
	require.Nil(t, status.Limits[1].Override, "of another limit of the rule")

	w := a.ask("DELETE", "/v1/overrides"+query("limit", "api/burst", "key", "u"), "")
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Empty(t, w.Body.String())
	require.Equal(t, http.StatusNoContent, a.ask("DELETE", "/v1/overrides"+query("limit", "api/burst", "key", "u"), "").Code, "again")
	a.get("GET", "/v1/overrides", "", 200, &all)
	require.Empty(t, all.Overrides)
	require.EqualValues(t, 20, a.statusOf("key", "u", "rule", "api").Limits[0].Limit)

	a.get("POST", "/v1/overrides", `{"limit":"address","key":"192.0.2.1","rate":50}`, 200, &set)
	require.Equal(t, http.StatusNoContent, a.ask("DELETE", "/v1/overrides"+query("limit", "address", "id", set.ID), "").Code, "who sets it may not be who takes it back")
	a.get("GET", "/v1/overrides", "", 200, &all)
	require.Empty(t, all.Overrides)
}

func (a *testAPI) limiter(name string) *weir.Limiter {
	l, _, ok := a.book.Current().Limit(name)
	require.True(a.t, ok, name)
	return a.book.Current().Limiter(l, "", "")
}

func TestRulesAnswerHasTextAndLastError(t *testing.T) {
	a, path := newTestAPI(t), filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(path, []byte(testRules), 0o600))
	var err error
	a.book, err = rules.Open(t.Context(), a.node, path, rules.BookOptions{Logger: slog.New(slog.DiscardHandler), Poll: 20 * time.Millisecond})
	require.NoError(t, err)
	defer a.book.Close()
	a.api, err = Handler(a.node, a.book, Options{Tokens: [][]byte{[]byte(testToken)}})
	require.NoError(t, err)
	var now rulesAnswer
	a.get("GET", "/v1/rules", "", 200, &now)
	require.Equal(t, path, now.Source)
	require.EqualValues(t, 3, now.Version)
	require.Empty(t, now.LastError)
	require.Equal(t, []string{"free", "premium"}, now.Tiers)
	require.Equal(t, ruleAnswer{
		Name: "api", Match: matchAnswer{Path: "/v1/", Headers: map[string][]string{"X-Plan": {"gold"}}}, Key: "user", Cost: "1", Mode: "enforce",
		Limits: []limitAnswer{
			{Name: "api/burst", Policy: "10 per 1s, burst 20, token_bucket, majority_share", Tiers: map[string]string{"premium": "100 per 1s, burst 200, token_bucket, majority_share"}},
			{Name: "api/hourly", Policy: "1000 per 1h, sliding_window, majority_share", Tiers: map[string]string{"premium": "10000 per 1h, sliding_window, majority_share"}},
		},
	}, now.Rules[0])
	require.Equal(t, &softAnswer{0.4, "10m"}, now.Rules[1].Soft)
	require.Equal(t, "shadow", now.Rules[2].Mode)
	require.Equal(t, matchAnswer{Methods: []string{"POST"}, Path: "/"}, now.Rules[3].Match)
	require.Equal(t, "2s", now.Rules[4].Queue)
	require.Equal(t, []string{}, now.Times)
	require.NotContains(t, a.ask("GET", "/v1/rules", "").Body.String(), "monitoring", "who is exempt is nobody's affair")

	var stats Stats
	a.get("GET", "/v1/stats", "", 200, &stats)
	require.Equal(t, []RuleOutcomes{
		{Rule: "api", Limit: "api/burst", Mode: "enforce"}, {Rule: "api", Limit: "api/hourly", Mode: "enforce"}, {Rule: "address", Limit: "address", Mode: "enforce"},
		{Rule: "both", Limit: "both", Mode: "shadow"}, {Rule: now.Rules[3].Name, Limit: now.Rules[3].Name, Mode: "enforce"}, {Rule: now.Rules[4].Name, Limit: now.Rules[4].Name, Mode: "enforce"},
	}, stats.Rules.Outcomes)
	stats.Rules.Outcomes = nil
	require.Equal(t, &Rules{
		rulesState: rulesState{Version: 3, Hash: now.Hash, Serial: now.Serial, LoadedAt: now.LoadedAt, Loads: 1}, InForce: true, Rules: 5, Limits: 6,
		Blocked: map[string]uint64{"ip": 0, "user": 0, "api_key": 0, "key": 0}, Factors: []Factor{},
	}, stats.Rules)

	hash := now.Hash
	require.NoError(t, os.WriteFile(path+".new", []byte("rules: [{name: r, key: ip, limit: {rate: 0, per: 1s}}]"), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	for deadline := time.Now().Add(10 * time.Second); now.LastError == ""; time.Sleep(5 * time.Millisecond) {
		require.Less(t, time.Now(), deadline)
		a.get("GET", "/v1/rules", "", 200, &now)
	}
	require.Equal(t, path+":1:42: rate is 0: use 1 to 1000000000000", now.LastError)
	require.Equal(t, hash, now.Hash, "the last good version is in force")
	require.EqualValues(t, 1, now.Refused)
	require.Len(t, now.Rules, 5)
	a.get("GET", "/v1/stats", "", 200, &stats)
	require.Equal(t, []any{uint64(3), hash, uint64(1), false, false}, []any{stats.Rules.Version, stats.Rules.Hash, stats.Rules.Refused, stats.Rules.InForce, stats.Rules.Missing})
	require.NoError(t, os.Remove(path))
	require.Eventually(t, func() bool {
		a.get("GET", "/v1/stats", "", 200, &stats)
		return stats.Rules.Missing
	}, 10*time.Second, 5*time.Millisecond)
}

func TestStatsHaveShadowDenials(t *testing.T) {
	a := startTestAPI(t, `
rules:
- {name: real, key: user, limit: {rate: 1, per: 1h}}
- {name: trial, key: user, shadow: true, limit: {rate: 2, per: 1h}}
`)
	for range 4 {
		a.ask("POST", "/v1/request", `{"method":"GET","path":"/","user":"u"}`)
	}
	var stats Stats
	a.get("GET", "/v1/stats", "", 200, &stats)
	require.Equal(t, []RuleOutcomes{
		{Rule: "real", Limit: "real", Mode: "enforce", Enforced: Outcomes{Allowed: 1, Denied: 3}},
		{Rule: "trial", Limit: "trial", Mode: "shadow", Shadowed: stats.Trials["trial"]},
	}, stats.Rules.Outcomes)
	require.Positive(t, stats.Trials["trial"].Allowed)
	require.Positive(t, stats.Decisions["owner"].Allowed)
	require.Len(t, stats.Trials, 1)
	a.ask("POST", "/v1/take", `{"limit":"trial","key":"v","units":3}`)
	a.get("GET", "/v1/stats", "", 200, &stats)
	require.EqualValues(t, 1, stats.Trials["trial"].Denied)
}

func TestStatsHaveLatencyInMicroseconds(t *testing.T) {
	bounds := weir.LatencyBounds()
	require.Equal(t, 250*time.Nanosecond, bounds[0])
	require.Equal(t, map[string]Latency{"owner": {
		Count: 4, SumUS: 1.5, Buckets: []LatencyBucket{{UpToUS: 0.25, Count: 2}, {UpToUS: float64(bounds[1].Nanoseconds()) / 1000, Count: 3}},
	}}, showMap(map[weir.Source]weir.Latency{weir.Owner: {Count: 4, Sum: 1500 * time.Nanosecond, Buckets: []uint64{2, 3}}}, showLatency))
}

func TestResetDeletesOverrun(t *testing.T) {
	a := newTestAPI(t)
	l, _, _ := a.book.Current().Limit("address")
	hard, soft := a.book.Current().Limiter(l, "", "192.0.2.1"), a.book.Current().Count(l, "", "192.0.2.1").Soft
	for _, l := range []*weir.Limiter{hard, soft} {
		_, err := l.AllowN(t.Context(), "192.0.2.1", 2)
		require.NoError(t, err)
	}
	before := a.statusOf("ip", "192.0.2.1", "rule", "address").Limits[0]
	require.EqualValues(t, 3, before.Remaining)
	require.EqualValues(t, 2, before.Soft.Limit)
	require.EqualValues(t, 0, before.Soft.Remaining)
	var reset resetAnswer
	a.get("DELETE", "/v1/counts"+query("limit", "address", "key", "192.0.2.1"), "", 200, &reset)
	require.Equal(t, resetAnswer{[]string{}}, reset)
	after := a.statusOf("ip", "192.0.2.1", "rule", "address").Limits[0]
	require.EqualValues(t, 5, after.Remaining)
	require.EqualValues(t, 2, after.Soft.Remaining)
}

func TestStalledBodyEndsRequest(t *testing.T) {
	a := newTestAPI(t)
	a.api.(*api).stepTimeout = 100 * time.Millisecond
	server := httptest.NewServer(a.api)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(conn, "POST /v1/check HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "+testToken+"\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{\"key\":")
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, `{"type":"about:blank","title":"Request Timeout","status":408,"detail":"the body did not arrive within 100ms"}`+"\n", string(body))
	require.Equal(t, http.StatusRequestTimeout, response.StatusCode)
}

// No request causes a panic, an internal error, or a response that is not JSON.
func FuzzAdminAnswersEveryRequest(f *testing.F) {
	f.Add("POST", "/v1/overrides", "", `{"limit":"address","key":"a","rate":5,"per":"1s","burst":1,"until":"2999-01-01T00:00:00Z","by":"b"}`)
	f.Add("POST", "/v1/check", "", `{"key":"a","limit":5,"window_ms":1000,"weight":2,"name":"n"}`)
	f.Add("GET", "/v1/status", "user=a&ip=::1&header=X:%20y&tier=free&rule=api&after=all", "")
	f.Add("DELETE", "/v1/overrides", "limit=address&id=00", "")
	f.Add("DELETE", "/v1/counts", "limit=/check/x&key=%00", "")
	f.Add("DELETE", "/v1/members/%2F", "", "")
	f.Add("POST", "/v1/take", "", `{"limit":"address","key":"1","units":2,"tier":"premium"}`)
	f.Add("POST", "/v1/peek", "", `{"limit":"address","key":"1","tier":"premium"}`)
	f.Add("POST", "/v1/take_all", "", `{"takes":[{"limit":"address","key":"1","units":2,"tier":"premium"},{"limit":"api/burst","key":"u"}]}`)
	f.Add("POST", "/v1/request", "", `{"method":"POST","path":"/v1/a%2fb","host":"h","ip":"::1","user":"u","api_key":"k","length":1,"headers":{"X-Plan":"gold"},"ttl":"30s"}`)
	f.Add("POST", "/v1/debit", "", `{"limit":"address","key":"1","units":2,"tier":"premium"}`)
	f.Add("POST", "/v1/refund", "", `{"limit":"address","key":"1","units":2,"soft":true}`)
	f.Add("POST", "/v1/hold", "", `{"limit":"address","key":"1","units":2,"tier":"premium","ttl":"30s"}`)
	f.Add("POST", "/v1/renew", "", `{"limit":"address","key":"1","hold":"x","ttl":"1h"}`)
	f.Add("POST", "/v1/release", "", `{"limit":"address","key":"1","hold":"x"}`)
	f.Add("POST", "/v1/reserve", "", `{"limit":"address","key":"1","units":2}`)
	f.Add("POST", "/v1/settle", "", `{"limit":"address","key":"1","reservation":"x","units":0}`)
	a := newTestAPI(f)
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(body))
		r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
		r.Header.Set("Authorization", "Bearer "+testToken)
		r.Header.Set("Content-Type", "application/json")
		w := answer(a.api, r)
		if w.Code == http.StatusInternalServerError || w.Code != http.StatusNoContent && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %s?%s %s: %d %s", method, path, query, body, w.Code, w.Body)
		}
	})
}

func TestAdminErrorsAreLoggedAtLimitedRate(t *testing.T) {
	a := newTestAPI(t)
	a.api.(*api).routes["/v1/broken"] = map[string]route{http.MethodGet: {serve: func(*api, *request) (int, any, error) {
		return 0, nil, errors.New("broken")
	}}}
	for range 50 {
		require.Equal(t, http.StatusInternalServerError, a.ask("GET", "/v1/broken", "").Code)
	}
	require.Equal(t, 1, strings.Count(a.log.String(), "\n"), a.log)
	require.Contains(t, a.log.String(), "url_path=/v1/broken error=broken unlogged=0")
}
