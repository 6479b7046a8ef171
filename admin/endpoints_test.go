package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/rules"
)

const endpointRules = `
enabled: %v
tiers: {free: {}, paid: {multiply: 3}}
default_tier: free
rules:
- {name: hard, match: {path: /hard}, key: user, limit: {rate: 2, per: 1h}}
- {name: shadow, match: {path: /shadow}, key: user, limit: {rate: 2, per: 1h}, shadow: true}
- {name: soft, match: {path: /soft}, key: user, limit: {rate: 2, per: 1h}, soft: {over: 50%%, for: 10m}}
`

// endpoints returns functions that ask a limit for a unit of a user: for four of the endpoints, and for the
// middleware.
func endpoints(a *testAPI) map[string]func(limit, user string) (allowed, soft, shadowDenied bool) {
	post := func(path string) func(limit, user string) (bool, bool, bool) {
		return func(limit, user string) (bool, bool, bool) {
			var took Take
			h := a.get("POST", path, fmt.Sprintf(`{"limit":%q,"key":%q}`, limit, user), 200, &took)
			require.Equal(a.t, !took.Allowed, h.Get("Retry-After") != "")
			require.Equal(a.t, !took.Allowed, took.RetryAfterS > 0)
			require.Equal(a.t, took.Soft, h.Get("X-RateLimit-Soft") != "")
			return took.Allowed, took.Soft, took.ShadowDenied
		}
	}
	return map[string]func(string, string) (bool, bool, bool){
		"take":    post("/v1/take"),
		"reserve": post("/v1/reserve"),
		"take_all": func(limit, user string) (bool, bool, bool) {
			var took takeAllAnswer
			h := a.get("POST", "/v1/take_all", fmt.Sprintf(`{"takes":[{"limit":%q,"key":%q}]}`, limit, user), 200, &took)
			require.Equal(a.t, !took.Allowed, h.Get("Retry-After") != "")
			require.Equal(a.t, !took.Allowed, took.RetryAfterS > 0)
			return took.Allowed, took.Takes[0].Soft, took.Takes[0].ShadowDenied
		},
		"request": func(limit, user string) (bool, bool, bool) {
			var d requestAnswer
			a.get("POST", "/v1/request", fmt.Sprintf(`{"path":%q,"user":%q}`, "/"+limit, user), 200, &d)
			return d.Allowed, d.Soft, len(d.Limits) > 0 && d.Limits[0].ShadowDenied
		},
		"middleware": func(limit, user string) (bool, bool, bool) {
			shadowDenied := false
			m, err := httplimit.New(a.node, a.book, httplimit.Options{User: httplimit.HeaderValue("X-User"), OnDecision: func(_ *http.Request, o *httplimit.Outcome) {
				shadowDenied = len(o.Verdicts) > 0 && o.Verdicts[0].Mode == rules.Shadow && !o.Verdicts[0].Decision.Allowed
			}})
			require.NoError(a.t, err)
			r := httptest.NewRequest("GET", "/"+limit, nil)
			r.Header.Set("X-User", user)
			w := httptest.NewRecorder()
			m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
			return w.Code == 200, w.Header().Get("X-RateLimit-Soft") != "", shadowDenied
		},
	}
}

func TestRuleHasSameEffectOnEveryEndpoint(t *testing.T) {
	type answer struct{ allowed, soft, shadowDenied bool }
	yes, trial := answer{allowed: true}, answer{true, false, true}
	open, denied, tried := [5]answer{yes, yes, yes, yes, yes}, [5]answer{yes, yes}, [5]answer{yes, yes, trial, trial, trial}
	for _, c := range []struct {
		enabled bool
		limit   string
		want    [5]answer // answers to five requests of one unit each, under a limit of two units
		rule    string    // a rule that is switched
		mode    rules.Mode
	}{
		{true, "hard", denied, "", 0},
		{true, "shadow", tried, "", 0},
		{true, "soft", [5]answer{yes, yes, {true, true, false}, {}, {}}, "", 0},
		{false, "hard", open, "", 0},
		{false, "shadow", open, "", 0},
		{false, "soft", open, "", 0},
		{true, "hard", tried, "hard", rules.Shadow},
		{true, "hard", open, "hard", rules.Off},
		{true, "hard", tried, rules.AllRules, rules.Shadow},
		{true, "shadow", denied, "shadow", rules.Enforce},
		{true, "soft", tried, "soft", rules.Shadow},
		{true, "soft", open, rules.AllRules, rules.Off},
		{false, "hard", denied, "hard", rules.Enforce},
	} {
		a := startTestAPI(t, fmt.Sprintf(endpointRules, c.enabled))
		if c.rule != "" {
			require.NoError(t, a.book.Switch(c.rule, rules.Switch{Mode: c.mode}))
		}
		for name, ask := range endpoints(a) {
			for i, want := range c.want {
				var got answer
				got.allowed, got.soft, got.shadowDenied = ask(c.limit, name)
				require.Equal(t, want, got, "%s by %s, unit %d, enabled: %v, %s is %v", c.limit, name, i+1, c.enabled, c.rule, c.mode)
			}
		}
	}
}

func TestDisabledRulesSpendNothing(t *testing.T) {
	a := startTestAPI(t, fmt.Sprintf(endpointRules, false))
	for path, units := range map[string]string{"/v1/take": `,"units":100`, "/v1/peek": ""} {
		var took Take
		h := a.get("POST", path, `{"limit":"hard","key":"u","tier":"paid"`+units+`}`, 200, &took)
		require.Equal(t, []any{true, "none", int64(6), int64(6)}, []any{took.Allowed, took.Source, took.Limit, took.Remaining}, "more than it could grant, and of the tier's numbers")
		require.Empty(t, h.Get("RateLimit"), "nothing is enforced")
	}
	var status keyStatus
	a.get("GET", "/v1/status?user=u&tier=paid", "", 200, &status)
	require.EqualValues(t, 6, status.Limits[0].Remaining)
}

// A limit can never grant takes of a key whose sum exceeds the limit.
func TestUnitsAboveCapacityAreRefused(t *testing.T) {
	a := startTestAPI(t, fmt.Sprintf(endpointRules, true))
	for takes, want := range map[string]int{
		`{"limit":"hard","key":"a","units":3}`:                                                              413,
		`{"limit":"hard","key":"b","units":2},{"limit":"hard","key":"b"}`:                                   413,
		`{"limit":"hard","key":"c"},{"limit":"soft","key":"c"},{"limit":"hard","key":"c","units":2}`:        413,
		`{"limit":"soft","key":"d","units":2},{"limit":"soft","key":"d","units":2}`:                         413,
		`{"limit":"hard","key":"e","units":1000000000000},{"limit":"hard","key":"e","units":1000000000000}`: 413,
		`{"limit":"hard","key":"f","units":2},{"limit":"hard","key":"g","units":2}`:                         200,
		`{"limit":"hard","key":"h"},{"limit":"hard","key":"h"}`:                                             200,
		`{"limit":"shadow","key":"i","units":2},{"limit":"shadow","key":"i","units":2}`:                     200,
		`{"limit":"hard","key":"j","units":6,"tier":"paid"}`:                                                200,
	} {
		w := a.ask("POST", "/v1/take_all", `{"takes":[`+takes+`]}`)
		require.Equal(t, want, w.Code, "%s: %s", takes, w.Body)
		if want == 413 {
			require.Contains(t, w.Body.String(), "can ever grant", takes)
		}
	}
	require.Equal(t, 413, a.ask("POST", "/v1/take", `{"limit":"hard","key":"a","units":3}`).Code)
}

// The API and the middleware select the same limits for every path and tier.
func TestDescribedRequestMeetsRulesOfMiddleware(t *testing.T) {
	a := startTestAPI(t, `
tiers: {free: {}, paid: {multiply: 3}}
default_tier: free
rules:
- {name: all, key: global, limit: {rate: 1000, per: 1h}}
- {name: a, match: {path: "/a/{x}"}, key: global, limit: {rate: 1000, per: 1h}}
- {name: b, match: {path: "/b/", tier: free}, key: global, limit: {rate: 1000, per: 1h}}
- {name: root, match: {path: "/{$}"}, key: global, limit: {rate: 1000, per: 1h}}
`)
	for _, path := range []string{
		"/a//b", "/a/../b/x", "/a%2fb", "/a%2Fb%2f", "/b/%2e%2e/a/x", "/a/b;c=d", "/a/%5cb", "/a/%252e", "/a/.", "//", "/b/%00", "/a/%ff", "/", "*",
	} {
		for _, tier := range []string{"", "free", "paid", "gold"} {
			var seen []string
			m, err := httplimit.New(a.node, a.book, httplimit.Options{Tier: httplimit.HeaderValue("X-Tier"), OnDecision: func(_ *http.Request, o *httplimit.Outcome) {
				for i := range o.Verdicts {
					seen = append(seen, o.Verdicts[i].Limiter.Limit().Name)
				}
			}})
			require.NoError(t, err)
			r := httptest.NewRequest("GET", "/", nil)
			if r.URL, err = url.ParseRequestURI(path); path == "*" {
				r.URL, err = &url.URL{Path: "*"}, nil
			}
			require.NoError(t, err)
			r.Header.Set("X-Tier", tier)
			m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), r)
			var d requestAnswer
			a.get("POST", "/v1/request", fmt.Sprintf(`{"path":%q,"tier":%q}`, path, tier), 200, &d)
			var told []string
			for _, l := range d.Limits {
				told = append(told, l.Name)
			}
			require.Equal(t, seen, told, "%s in tier %q", path, tier)
			for name, ask := range askers(a.api) {
				if name == "ext_authz" && tier != "" {
					continue // requests of Envoy have no tiers
				}
				w := ask(forwardedAs{uri: path, tier: tier})
				require.Equal(t, 200, w.Code, "%s by %s: %s", path, name, w.Body)
				told = nil
				for _, policy := range strings.Split(w.Header().Get("RateLimit-Policy"), ", ") {
					told = append(told, strings.Trim(strings.Split(policy, ";")[0], `"`))
				}
				require.Equal(t, seen, told, "%s in tier %q by %s", path, tier, name)
			}
			require.NotEmpty(t, told)
		}
	}
	var d requestAnswer
	a.get("POST", "/v1/request", `{"path":"/a/b?c=d"}`, 200, &d)
	require.Len(t, d.Limits, 2, "a query is no part of the path")
}
