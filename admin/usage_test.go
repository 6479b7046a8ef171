package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/httplimit"
)

// A caller may have written the query, so nothing in the query selects the caller.
func TestUsageShowsCallerThatProxyDescribes(t *testing.T) {
	a := startTestAPI(t, forwardedRules+"- {name: gone, match: {path: /gone}, key: api_key, limit: {rate: 1, per: 1h}}\ndeny: {user: mallory}\n")
	api, err := CheckHandler(a.node, a.book, CheckOptions{Tokens: [][]byte{[]byte(testToken)}, Usage: &UsageFields{User: "X-User", APIKey: "Authorization", Hops: 2}, Logger: quietly})
	require.NoError(t, err)
	for range 2 {
		a.ask("POST", "/v1/request", `{"path":"/user","user":"ann"}`)
		a.ask("POST", "/v1/request", `{"path":"/all","ip":"192.0.2.7"}`)
	}
	ask := func(query string, fields ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/v1/usage"+query, nil)
		r.Header.Set("Authorization", "Bearer "+testToken)
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		return answer(api, r)
	}
	for _, c := range []struct {
		query, user, client string
		status              int
		want                map[string]int64 // used units by limit
	}{
		{"", "ann", "192.0.2.7, 10.0.0.1", 200, map[string]int64{"write": 0, "one": 0, "host": 0, "plan": 0, "user": 1, "all": 2, "gone": 0}},
		{"?path=/user", "ann", "192.0.2.9, 10.0.0.1", 200, map[string]int64{"user": 1}},
		{"?path=/user", "bob", "192.0.2.9, 10.0.0.1", 200, map[string]int64{"user": 0}},
		{"?path=/items/1&method=POST", "bob", "192.0.2.9, 10.0.0.1", 200, map[string]int64{"write": 0}},
		{"?user=ann", "bob", "192.0.2.9, 10.0.0.1", 400, nil},
		{"?path=x", "bob", "192.0.2.9, 10.0.0.1", 400, nil},
		{"", "bob", "192.0.2.9", 400, nil},
		{"", "mallory", "192.0.2.9, 10.0.0.1", 403, nil},
	} {
		w := ask(c.query, "X-User", c.user, "X-Forwarded-For", c.client)
		require.Equal(t, c.status, w.Code, "%v: %s", c, w.Body)
		if c.status != 200 {
			continue
		}
		var u httplimit.Usage
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &u))
		got := make(map[string]int64)
		for _, l := range u.Limits {
			got[l.Name] = l.Used
		}
		require.Equal(t, c.want, got, "%v", c)
		require.NoError(t, readAPI(t).Components.Schemas["Usage"].Check(decoded(t, w.Body.Bytes()), readAPI(t).Components.Schemas))
	}
	off, err := CheckHandler(a.node, a.book, CheckOptions{Open: true, Logger: quietly})
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, answer(off, httptest.NewRequest("GET", "/v1/usage", nil)).Code)
}

func decoded(t *testing.T, text []byte) (v any) {
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}
