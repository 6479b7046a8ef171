package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/httplimit"
)

// Names that differ only in case are lines of the same field, in the order of the text, as in net/http.
func TestHeaderSpellingsAreLinesOfOneField(t *testing.T) {
	const file = `
rules:
- {name: tenant, match: {header: {X-Tenant: "*"}}, key: "header:X-Tenant", limit: {rate: 90, per: 1h}}
- {name: gold, match: {header: {X-Plan: gold}}, key: global, limit: {rate: 90, per: 1h}}
- {name: cost, match: {path: /cost}, key: global, cost: {from: "header:X-Cost", default: 7}, limit: {rate: 90, per: 1h}}
`
	a := startTestAPI(t, file)
	keys := func(body string) (keys []string) {
		for range 20 { // a map's order differs from time to time
			var names []string
			o := a.requestOf(body)
			for i := range o.Verdicts {
				names = append(names, o.Verdicts[i].Rule.Name+"="+o.Verdicts[i].Key+fmt.Sprint("/", o.Verdicts[i].Units))
			}
			if keys != nil {
				require.Equal(t, keys, names, body)
			}
			keys = names
		}
		return keys
	}
	for body, want := range map[string][]string{
		`{"path":"/","headers":{"X-Tenant":"a"}}`:                               {"tenant=a/1"},
		`{"path":"/","headers":{"X-Tenant":"a","x-tenant":"b"}}`:                {"tenant=a,b/1"},
		`{"path":"/","headers":{"x-tenant":"b","X-Tenant":"a"}}`:                {"tenant=b,a/1"},
		`{"path":"/","headers":{"X-TENANT":"c","x-Tenant":"b","X-tenant":"a"}}`: {"tenant=c,b,a/1"},
		`{"path":"/","headers":{"X-Tenant":"a","X-Tenant":"b"}}`:                {"tenant=a,b/1"},
		`{"path":"/","headers":{"x-plan":"free","X-Plan":"gold"}}`:              {"gold=/1"},
		`{"path":"/","headers":{"X-Plan":"gold","x-plan":"free"}}`:              {"gold=/1"},
		`{"path":"/cost","headers":{"X-Cost":"2"}}`:                             {"cost=/2"},
		`{"path":"/cost","headers":{"X-Cost":"2","x-cost":"1"}}`:                {"cost=/7"},
	} {
		require.Equal(t, want, keys(body), body)
	}
	a = startTestAPI(t, file)
	for i := range int64(10) {
		var d requestAnswer
		a.get("POST", "/v1/request", `{"path":"/cost","headers":{"X-Cost":"2","x-cost":"1"}}`, 200, &d)
		require.Equal(t, 90-7*(i+1), d.Limits[0].Remaining, "two lines say no cost")
	}
}

// requestOf returns the Outcome of the request that a body describes.
func (a *testAPI) requestOf(body string) (o httplimit.Outcome) {
	a.t.Helper()
	header := make(http.Header)
	var path string
	var wrong faults
	require.NoError(a.t, wrong.readObject("the body", []byte(body), []field{{name: "path", into: &path}, {name: "headers", into: header}}))
	require.Empty(a.t, wrong)
	m, err := httplimit.New(a.node, a.book, httplimit.Options{Logger: quietly})
	require.NoError(a.t, err)
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header = header
	of := m.Request(r)
	return m.Check(a.t.Context(), &of)
}

// Half of a surrogate pair is not a character. Without the refusal, all such keys would be equal.
func TestHalfASurrogatePairIsRefused(t *testing.T) {
	a := newTestAPI(t)
	for _, c := range []struct{ path, body, field string }{
		{"/v1/take", `{"limit":"address","key":"%s"}`, "key"},
		{"/v1/take", `{"limit":"%s","key":"k"}`, "limit"},
		{"/v1/peek", `{"limit":"address","key":"%s"}`, "key"},
		{"/v1/take_all", `{"takes":[{"limit":"address","key":"a"},{"limit":"address","key":"%s"}]}`, "takes[1]: key"},
		{"/v1/check", `{"key":"%s","limit":1,"window_ms":1000}`, "key"},
		{"/v1/check", `{"key":"k","limit":1,"window_ms":1000,"name":"%s"}`, "name"},
		{"/v1/request", `{"path":"/","user":"%s"}`, "user"},
		{"/v1/request", `{"path":"/","api_key":"%s"}`, "api_key"},
		{"/v1/request", `{"path":"/%s"}`, "path"},
		{"/v1/request", `{"path":"/","headers":{"X-A":"%s"}}`, "headers"},
		{"/v1/request", `{"path":"/","headers":{"X-%s":"a"}}`, "headers"},
		{"/v1/overrides", `{"limit":"address","key":"%s","rate":3}`, "key"},
	} {
		for text, half := range map[string]string{
			`\ud800`: `\ud800`, `\uDFFF`: `\uDFFF`, `a\udc00b`: `\udc00`, `\ud83d\ude00\ud83d`: `\ud83d`, `\ud83d\ud83d\ude00`: `\ud83d`,
			`\ude00\ud83d`: `\ude00`, `\\\ud800`: `\ud800`, `\ud800\n`: `\ud800`, `\ud800\u0041`: `\ud800`, `\ud800ude00`: `\ud800`,
		} {
			w := a.ask("POST", c.path, fmt.Sprintf(c.body, text))
			require.Equal(t, 400, w.Code, "%s %s: %s", c.path, text, w.Body)
			require.Contains(t, w.Body.String(), c.field+` has \`+half+`, half of a surrogate pair`, "%s %s", c.path, text)
		}
	}
	for _, text := range []string{`\ud83d\ude00`, `😀`, `\ufffd`, `\\ud800`, `\\\\ud800`, `\u0000`, `a\"\ud83d\ude00\"`, `\u00e9\ud83d\ude00`} {
		require.Equal(t, 200, a.ask("POST", "/v1/take", fmt.Sprintf(`{"limit":"address","key":"%s"}`, text)).Code, text)
	}
}
