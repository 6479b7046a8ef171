package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testnode"
)

const usageRules = `
tiers: {free: {}, paid: {multiply: 10}}
default_tier: free
exempt: {user: root}
deny: {user: mallory}
rules:
- {name: api, match: {path: /v1/}, key: user, limits: [{name: hourly, algorithm: fixed_window, rate: 100, per: 1h}, {name: open, algorithm: in_flight, rate: 5}]}
- {name: login, match: {path: /login, method: POST}, key: ip, multiply: true, limit: {algorithm: fixed_window, rate: 2, calendar: day}}
- {name: paid, match: {tier: paid}, key: [user, ip], missing_key: skip, limit: {algorithm: fixed_window, rate: 7, per: 1h}}
- {name: token, key: api_key, missing_key: shared, limit: {algorithm: fixed_window, rate: 8, per: 1h}}
- {name: everyone, key: global, limit: {algorithm: fixed_window, rate: 9, per: 1h}}
- {name: named, key: header:X-Name, limit: {algorithm: fixed_window, rate: 9, per: 1h}}
- {name: tried, key: ip, shadow: true, limit: {rate: 9, per: 1h}}
- {name: old, key: ip, enabled: false, limit: {rate: 9, per: 1h}}
- {name: not me, match: {not: {user: ann}}, key: ip, multiply: true, limit: {algorithm: fixed_window, rate: 6, per: 1h}}
`

func usageOf(t *testing.T, h http.Handler, r *http.Request) (u Usage, text string) {
	t.Helper()
	w := answer(h, r)
	require.Equal(t, 200, w.Code, w.Body)
	require.Equal(t, []string{"application/json", "no-store"}, []string{w.Header().Get("Content-Type"), w.Header().Get("Cache-Control")})
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &u))
	var names []string
	for _, l := range u.Limits {
		require.Equal(t, l.Limit, l.Used+l.Remaining)
		names = append(names, fmt.Sprintf("%s %d/%d", l.Name, l.Used, l.Limit))
	}
	return u, strings.Join(names, ", ")
}

func newUsage(t *testing.T) *Middleware {
	m := newLimiter(t, usageRules, Options{User: HeaderValue("X-User"), APIKey: HeaderValue("X-Key"), Tier: HeaderValue("X-Tier")}, weir.Config{Now: func() time.Time { return noon }})
	m.now = func() time.Time { return noon }
	return m
}

func TestUsageShowsLimitsOfCaller(t *testing.T) {
	m := newUsage(t)
	h := m.Handler(hello)
	for range 3 {
		answer(h, get("/v1/x", "192.0.2.1", "X-User", "bob", "X-Key", "k", "X-Tier", "paid"))
		answer(h, get("/v1/x", "192.0.2.2", "X-User", "ann"))
		login := get("/login", "192.0.2.1")
		login.Method = "POST"
		answer(h, login)
	}
	for _, c := range []struct {
		query  string
		fields []string
		tier   string
		want   string
	}{
		{"", []string{"X-User", "bob", "X-Key", "k", "X-Tier", "paid"}, "paid", "api/hourly 3/1000, api/open 0/50, login 2/20, paid 3/70, token 3/80, not me 5/60"},
		{"", []string{"X-User", "bob"}, "free", "api/hourly 3/100, api/open 0/5, login 2/2, not me 5/6"},
		{"", []string{"X-User", "ann"}, "free", "api/hourly 3/100, api/open 0/5, login 2/2"},
		{"", nil, "free", "api/hourly 0/100, api/open 0/5, login 2/2, not me 5/6"},
		{"?path=/v1/x", []string{"X-User", "ann"}, "free", "api/hourly 3/100, api/open 0/5"},
		{"?path=/login%3Fa=b&method=POST", []string{"X-User", "ann"}, "free", "login 2/2"},
		{"?path=/login", []string{"X-User", "ann"}, "free", ""},
		{"?user=bob&key=bob&ip=192.0.2.2&tier=paid", []string{"X-User", "ann", "X-Name", "bob"}, "free", "api/hourly 3/100, api/open 0/5, login 2/2"},
		{"", []string{"X-User", "root"}, "free", ""},
	} {
		r := get("/usage"+c.query, "192.0.2.1", c.fields...)
		for range 2 { // the second response equals the first, because Usage spends nothing
			u, text := usageOf(t, m.Usage(), r)
			require.Equal(t, c.want, text, c)
			require.Equal(t, c.tier, u.Tier)
			require.Equal(t, len(c.fields) == 2 && c.fields[1] == "root", u.Exempt)
		}
	}
	u, _ := usageOf(t, m.Usage(), get("/usage?path=/login&method=POST", "192.0.2.1"))
	reset := noon.Add(12 * time.Hour).Unix()
	require.Equal(t, []LimitUsage{
		{Rule: "login", Name: "login", Limit: 2, Used: 2, Remaining: 0, Window: "day", Reset: reset, RetryAfter: 43200},
		{Rule: "not me", Name: "not me", Limit: 6, Used: 5, Remaining: 1, Window: "1h", Reset: noon.Unix() + 3600},
	}, u.Limits)
}

func TestUsageRefusesBadRequests(t *testing.T) {
	m := newUsage(t)
	for _, c := range []struct {
		method, query, user string
		status              int
		detail              string
	}{
		{"POST", "", "ann", 405, "use GET"},
		{"GET", "?path=v1", "ann", 400, `path is \"v1\": use a path with its escapes, like /v1/items`},
		{"GET", "?path=", "ann", 400, `path is \"\"`},
		{"GET", "?path=/%25zz", "ann", 400, "path is"},
		{"GET", "?method=GET", "ann", 400, "the parameter method needs the parameter path"},
		{"GET", "", "mallory", 403, "denied"},
	} {
		r := httptest.NewRequest(c.method, "/usage"+c.query, nil)
		r.Header.Set("X-User", c.user)
		w := answer(m.Usage(), r)
		require.Equal(t, c.status, w.Code, c)
		require.Contains(t, w.Body.String(), c.detail)
	}
	require.NoError(t, m.node.Close())
	require.Equal(t, 503, answer(m.Usage(), get("/usage", "192.0.2.1")).Code)
}

func TestUsageAsksBoundedNumberOfLimits(t *testing.T) {
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, "- {name: r%d, match: {path: /%d}, key: ip, limit: {rate: 1, per: 1h}}\n", i, i)
	}
	m := newLimiter(t, "rules:\n"+b.String(), Options{}, weir.Config{})
	u, _ := usageOf(t, m.Usage(), get("/usage", "192.0.2.1"))
	require.Len(t, u.Limits, 255)
}

func TestUsageOfLimiterShowsItsOnlyLimit(t *testing.T) {
	l := testnode.Limiter(t, testnode.Start(t, weir.Config{}), weir.Limit{Name: "one", Algorithm: weir.FixedWindow, Rate: 3, Per: time.Hour})
	m, err := ByLimiter(l, Options{Key: HeaderValue("X-Tenant")})
	require.NoError(t, err)
	answer(m.Handler(hello), get("/", "192.0.2.1", "X-Tenant", "a"))
	for tenant, want := range map[string]string{"a": "one 1/3", "b": "one 0/3"} {
		_, text := usageOf(t, m.Usage(), get("/usage?path=/x", "192.0.2.1", "X-Tenant", tenant))
		require.Equal(t, want, text)
	}
}
