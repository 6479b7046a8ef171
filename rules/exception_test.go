package rules

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFieldNotExcludesRequests(t *testing.T) {
	s := mustParse(t, `
tiers: {free: {}, paid: {}}
rules:
- {name: paths, match: {not: {path: [/healthz, /readyz, /static/]}}, key: ip, limit: {rate: 1, per: 1s}}
- {name: preflight, match: {not: {method: OPTIONS, header: {Access-Control-Request-Method: "*"}}}, key: ip, limit: {rate: 1, per: 1s}}
- {name: methods, match: {path: /, not: {method: [GET, OPTIONS]}}, key: ip, limit: {rate: 1, per: 1s}}
- {name: hosts, match: {not: {host: [internal.example.com, "[::1]"]}}, key: ip, limit: {rate: 1, per: 1s}}
- {name: tiers, match: {not: {tier: paid}}, key: ip, limit: {rate: 1, per: 1s}}
- {name: groups, match: {path: /v1/, not: [{path: "/v1/{id}/logo", method: GET}, {tier: paid, host: eu.example.com}]}, key: ip, limit: {rate: 1, per: 1s}}
- {name: fields, match: {header: {X-A: "*"}, not: {header: {X-A: [a, b]}}}, key: ip, limit: {rate: 1, per: 1s}}
`)
	all := func(but ...string) (names []string) {
		for _, r := range s.Rules() {
			left := r.Name != "groups" && r.Name != "fields"
			for _, name := range but {
				switch name {
				case r.Name:
					left = false
				case "+" + r.Name:
					left = true
				}
			}
			if left {
				names = append(names, r.Name)
			}
		}
		return names
	}
	for _, c := range []struct {
		about string
		r     Request
		want  []string
	}{
		{"nothing is left out", Request{Method: "POST", Path: "/x"}, all()},
		{"a path", Request{Method: "POST", Path: "/healthz"}, all("paths")},
		{"another path", Request{Method: "POST", Path: "/readyz"}, all("paths")},
		{"a path below one", Request{Method: "POST", Path: "/healthz/x"}, all()},
		{"a tree", Request{Method: "POST", Path: "/static/a/b"}, all("paths")},
		{"a tree without its slash", Request{Method: "POST", Path: "/static"}, all("paths")},
		{"escaped letters that all servers read alike", Request{Method: "POST", Path: "/%68ealthz"}, all("paths")},
		{"a preflight", Request{Method: "OPTIONS", Path: "/x", Header: http.Header{"Access-Control-Request-Method": {"PUT"}}}, all("preflight", "methods")},
		{"OPTIONS that is none", Request{Method: "OPTIONS", Path: "/x"}, all("methods")},
		{"GET is HEAD too", Request{Method: "HEAD", Path: "/x"}, all("methods")},
		{"a method without a name of its own", Request{Method: "PROPFIND", Path: "/x"}, all()},
		{"a host, however it is spelled", Request{Method: "POST", Path: "/x", Host: "Internal.Example.COM.:8443"}, all("hosts")},
		{"an address as host", Request{Method: "POST", Path: "/x", Host: "[::1]:80"}, all("hosts")},
		{"a tier", Request{Method: "POST", Path: "/x", Tier: "paid"}, all("tiers")},
		{"no tier", Request{Method: "POST", Path: "/x", Tier: ""}, all()},
		{"all of a group", Request{Method: "GET", Path: "/v1/7/logo"}, all("methods")},
		{"a part of a group", Request{Method: "POST", Path: "/v1/7/logo"}, all("+groups")},
		{"all of the other group", Request{Method: "POST", Path: "/v1/x", Tier: "paid", Host: "eu.example.com"}, all("tiers")},
		{"a part of the other group", Request{Method: "POST", Path: "/v1/x", Tier: "paid"}, all("tiers", "+groups")},
		{"a value", Request{Method: "POST", Path: "/x", Header: http.Header{"X-A": {"a"}}}, all()},
		{"all lines have a value", Request{Method: "POST", Path: "/x", Header: http.Header{"X-A": {"b", "a"}}}, all()},
		{"another value", Request{Method: "POST", Path: "/x", Header: http.Header{"X-A": {"c"}}}, all("+fields")},
		{"one line of another value", Request{Method: "POST", Path: "/x", Header: http.Header{"X-A": {"a", "c"}}}, all("+fields")},
	} {
		require.Equal(t, c.want, namesOf(s, c.r), c.about)
	}
}

// A path that servers read in several ways is never excluded, because the server behind the
// limiter may read a different path.
func TestAmbiguousPathsAreNotExcluded(t *testing.T) {
	s := mustParse(t, oneRule("match: {not: {path: [/static/, /healthz, '/{$}']}}\nkey: ip\nlimit: {rate: 1, per: 1s}"))
	for _, path := range []string{
		"/static/../v1", "/v1/../static/x", "/static/%2e%2e/v1", "/static/..%2fv1", "//static/x", "/static//x", "/static/x;/../../v1", "/static%2fx",
		"/static/%252e%252e/v1", "/static/..\\v1", "/static/%5c..%5cv1", "/healthz/..", "/./healthz", "/healthz%00", "/static/%ff", "/static/%zz", "//",
	} {
		require.Len(t, s.Match(&Request{Path: path}, nil), 1, path)
	}
	for _, path := range []string{"/static/x", "/static/a%20b", "/static/caf%C3%A9", "/healthz", "/", ""} {
		require.Empty(t, s.Match(&Request{Path: path}, nil), path)
	}
}

func TestInvalidFieldNotIsRefusedWithRemedy(t *testing.T) {
	for _, c := range []struct{ match, want string }{
		{"{not: []}", `the field not has no entries: remove it, or add an entry that selects the requests to leave out`},
		{"{not: {}}", `the field not is empty: it would leave every request out`},
		{"{not: /healthz}", `the field not is "/healthz": say what it is, like {path: /healthz} or {method: OPTIONS}`},
		{"{not: [GET]}", `the field not is "GET": say what it is`},
		{"{not: {paths: /a}}", `unknown field "paths": did you mean "path"?`},
		{"{not: {not: {path: /a}}}", `unknown field "not"`},
		{"{not: {path: []}}", `the list is empty`},
		{"{not: {header: {}}}", `header is empty: remove it, or name a field`},
		{"{not: {path: /shop*}}", `path is "/shop*": * stands for itself here`},
		{"{not: {path: [/a, 'b']}}", `path is "b": begin it with /`},
		{"{not: {method: '!GET'}}", `method is "!GET"`},
		{"{not: {header: {X-A: 'a*'}}}", `X-A is "a*"`},
		{"{not: {tier: gold}}", `unknown tier "gold"`},
		{"{not: {path: /}}", `the field not leaves no request to the rule: all of its requests are in not (path /)`},
		{"{path: /v1/x, not: {path: '/v1/{id}'}}", `the field not leaves no request to the rule: all of its requests are in not (path /v1/{id})`},
		{"{path: /v1, not: {path: /v1/}}", `the field not leaves no request to the rule`},
		{"{method: GET, not: {method: [GET, POST]}}", `the field not leaves no request to the rule: all of its requests are in not (method GET or POST)`},
		{"{method: [GET, POST], not: [{method: GET}, {method: POST}]}", `the field not leaves no request to the rule: the entries of not name all methods of the rule`},
		{"{host: a, not: {host: [a, b]}}", `the field not leaves no request to the rule: all of its requests are in not (host a or b)`},
		{"{path: /v1/, not: {path: /v2/}}", `the field not has no effect: no path matches both "/v1/" of the rule and "/v2/" of not`},
		{"{path: '/v1/{id}', not: {path: [/v1/me, /v1/]}}", `the field not leaves no request to the rule`},
		{"{path: '/v1/{id}', not: {path: [/v1/me, /v1/me/x]}}", `the field not has no effect: no path matches both "/v1/{id}" of the rule and "/v1/me/x" of not`},
		{"{method: POST, not: {method: GET}}", `the field not has no effect: the rule applies to no request with the method in not (method GET)`},
		{"{host: a, not: {host: b}}", `the field not has no effect: the rule applies to no request with the host in not (host b)`},
		{"{tier: free, not: {tier: paid}}", `the field not has no effect: the rule applies to no request with the tier in not (tier paid)`},
		{"{not: [" + strings.Repeat("{path: /a},", maxNot+1) + "]}", `the field not has 65 entries: use at most 64 in a rule`},
		{"{not: {path: [" + strings.Repeat("/a,", maxNot+1) + "]}}", `path has 65 entries: use at most 64 in an entry of not`},
		{"{method: []}", `the list is empty`},
	} {
		_, err := Parse("rules.yaml", []byte("tiers: {free: {}, paid: {}}\nrules:\n- {name: r, match: "+c.match+", key: ip, limit: {rate: 1, per: 1s}}"))
		require.ErrorContains(t, err, c.want, c.match)
		require.ErrorContains(t, err, "rules.yaml:3:", c.match)
	}
}

func TestExcludedReturnsRulesWithExceptions(t *testing.T) {
	s := mustParse(t, "rules:\n- {name: a, match: {path: /v1/, not: [{method: OPTIONS}, {path: [/v1/health, /v1/ready], header: {X-A: '*', }}]}, key: ip, limit: {rate: 1, per: 1s}}\n- {name: b, key: ip, limit: {rate: 1, per: 1s}}")
	r := Request{Method: "GET", Path: "/v1/ready", Header: http.Header{"X-A": {"1"}}}
	out := s.Excluded(&r)
	require.Len(t, out, 1)
	require.Equal(t, "a", out[0].Rule.Name)
	require.Equal(t, "path /v1/health or /v1/ready, header X-A", out[0].By.String())
	r.Method = "OPTIONS"
	require.Equal(t, "method OPTIONS", s.Excluded(&r)[0].By.String())
	require.Empty(t, s.Excluded(&Request{Method: "GET", Path: "/v1/x"}))
	require.Empty(t, s.Excluded(&Request{Method: "OPTIONS", Path: "/v2/x"}))
}

func TestForTierConsidersExceptions(t *testing.T) {
	s := mustParse(t, "tiers: {free: {}, paid: {}}\nrules:\n- {name: a, match: {not: {tier: paid}}, key: ip, limit: {rate: 1, per: 1s}}\n- {name: b, match: {not: {tier: paid, method: GET}}, key: ip, limit: {rate: 1, per: 1s}}\n- {name: c, match: {tier: free}, key: ip, limit: {rate: 1, per: 1s}}")
	for tier, want := range map[string][]bool{"": {true, true, false}, "free": {true, true, true}, "paid": {false, true, false}} {
		var got []bool
		for _, r := range s.Rules() {
			got = append(got, r.ForTier(tier))
		}
		require.Equal(t, want, got, tier)
	}
}

// The results of covers and overlaps agree with the results of matches for many paths.
func TestPatternComparisonAgreesWithMatching(t *testing.T) {
	// All paths with up to four segments, and some with more.
	paths, longer := []string{"/", "/a/a/a/a/a", "/b/b/b/b/b/b"}, []string{""}
	for range 4 {
		shorter := longer
		longer = nil
		for _, path := range shorter {
			for _, segment := range []string{"/a", "/b", "/z"} {
				longer = append(longer, path+segment)
			}
		}
		for _, path := range longer {
			paths = append(paths, path, path+"/")
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p, err := parsePattern(strings.ReplaceAll(drawPattern(t), "a%20c", "z"))
		require.NoError(t, err)
		q, err := parsePattern(strings.ReplaceAll(drawPattern(t), "a%20c", "z"))
		require.NoError(t, err)
		if len(p.segments) > 3 || len(q.segments) > 3 {
			t.Skip("patterns with more segments may differ only in paths that are longer than those of the test")
		}
		covers, overlaps := true, false
		for _, path := range append(paths, p.example(), q.example()) {
			var tree tree
			at, conflict := tree.insert(p)
			require.Nil(t, conflict)
			met := tree.find(path, false, true) == at || path[len(path)-1] != '/' && tree.find(path, true, true) == at
			require.Equal(t, met, p.matches(path), "%s of %s", path, p.text)
			covers = covers && (met || !q.matches(path))
			overlaps = overlaps || met && q.matches(path)
		}
		require.Equal(t, covers, p.covers(q), "%s and %s", p.text, q.text)
		require.Equal(t, overlaps, p.overlaps(q), "%s and %s", p.text, q.text)
	})
}

func TestMatchingExceptionsDoesNotAllocate(t *testing.T) {
	s := mustParse(t, oneRule("match: {not: [{path: [/healthz, '/static/{x...}'], host: a}, {method: OPTIONS}, {header: {X-A: a}}]}\nkey: ip\nlimit: {rate: 1, per: 1s}"))
	r := Request{Method: "GET", Path: "/v1/things", Host: "a", Client: netip.MustParseAddr("192.0.2.1")}
	dst := make([]*Rule, 0, 4)
	require.Zero(t, testing.AllocsPerRun(100, func() { dst = s.Match(&r, dst[:0]) }))
	require.Len(t, dst, 1)
}
