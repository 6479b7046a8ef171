package rules

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/lab"
)

// namesOf returns the names of the rules that a request meets.
func namesOf(s *Set, r Request) (names []string) {
	for _, rule := range s.Match(&r, nil) {
		names = append(names, rule.Name)
	}
	return names
}

// muxServes reports whether a ServeMux with only this pattern has a handler for a path. The ServeMux
// cleans the path of a GET, but not that of a CONNECT.
func muxServes(pattern, method, path string) bool {
	mux := http.NewServeMux()
	mux.Handle(pattern, http.NotFoundHandler())
	r := httptest.NewRequest(method, "/", nil)
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return false
	}
	r.URL = u
	_, by := mux.Handler(r)
	return by != ""
}

// removeDots removes dot segments as in RFC 3986, section 5.2.4.
func removeDots(in string) (out string) {
	for in != "" {
		switch {
		case strings.HasPrefix(in, "/./"):
			in = in[2:]
		case in == "/.":
			in = "/"
		case strings.HasPrefix(in, "/../"):
			in, out = in[3:], out[:max(0, strings.LastIndexByte(out, '/'))]
		case in == "/..":
			in, out = "/", out[:max(0, strings.LastIndexByte(out, '/'))]
		default:
			end := strings.IndexByte(in[1:], '/') + 1
			if end == 0 {
				end = len(in)
			}
			in, out = in[end:], out+in[:end]
		}
	}
	return out
}

// muxMeets reports whether a ServeMux with only this pattern has a handler for any of the readings
// of a path: unchanged, with dots decoded, decoded as a whole, or without the part after a #.
// Each of these is tried unchanged, cleaned, without dot segments, and with a slash at its end.
func muxMeets(t require.TestingT, pattern, path string) bool {
	bare, _, _ := strings.Cut(path, "#")
	for _, of := range []string{path, bare} {
		plain, err := url.PathUnescape(of)
		require.NoError(t, err)
		escaped := strings.ReplaceAll(of, "#", "%23")
		for _, text := range []string{escaped, regexp.MustCompile("(?i)%2e").ReplaceAllString(escaped, "."), (&url.URL{Path: plain}).EscapedPath()} {
			if muxServes(pattern, "GET", text) || muxServes(pattern, "CONNECT", text) || muxServes(pattern, "CONNECT", removeDots(text)) ||
				text[len(text)-1] != '/' && muxServes(pattern, "CONNECT", text+"/") {
				return true
			}
		}
	}
	return false
}

// muxConflicts reports whether a ServeMux refuses two patterns.
func muxConflicts(a, b string) (yes bool) {
	defer func() { yes = recover() != nil }()
	mux := http.NewServeMux()
	mux.Handle(a, http.NotFoundHandler())
	mux.Handle(b, http.NotFoundHandler())
	return false
}

func drawPattern(t *rapid.T) string {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "%61", "a%20c", "{w}"}), 0, 4).Draw(t, "segments")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "{w}", fmt.Sprintf("{w%d}", i))
	}
	end := rapid.SampledFrom([]string{"", "/", "/{$}", "/{rest...}"}).Draw(t, "end")
	if len(parts) == 0 && end == "" {
		end = "/"
	}
	return strings.Join(append([]string{""}, parts...), "/") + end
}

func drawPath(t *rapid.T) string {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "%61", "a%20c", "", ".", "..", "...", "a%2Fb", "%2e%2E", "b#c"}), 0, 5).Draw(t, "path")
	return "/" + strings.Join(parts, "/")
}

// canonical returns a pattern without the names of its wildcards, as ServeMux compares them.
func canonical(p pattern) string {
	var b strings.Builder
	for _, s := range p.segments {
		fmt.Fprintf(&b, "/%d%q", s.kind, s.text)
	}
	return b.String()
}

// The tree finds a pattern if a ServeMux with only this pattern serves a reading of the path.
// Patterns are refused if a single ServeMux refuses any two of them.
func TestMatchingAgreesWithServeMux(t *testing.T) {
	refused, met := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var patterns []string
		seen := make(map[string]bool)
		wantConflict := false
		for range rapid.IntRange(1, 8).Draw(t, "patterns") {
			text := drawPattern(t)
			p, err := parsePattern(text)
			require.NoError(t, err)
			if seen[canonical(p)] {
				continue // several rules may have the same pattern, unlike handlers of a ServeMux
			}
			seen[canonical(p)] = true
			for _, other := range patterns {
				wantConflict = wantConflict || muxConflicts(other, text)
			}
			patterns = append(patterns, text)
		}
		var file strings.Builder
		file.WriteString("rules:\n")
		for i, text := range patterns {
			fmt.Fprintf(&file, "- {name: r%d, match: {path: %q}, key: ip, limit: {rate: 1, per: 1s}}\n", i, text)
		}
		s, err := Parse("rules.yaml", []byte(file.String()))
		if wantConflict {
			refused++
			require.ErrorContains(t, err, "conflicts with", "%q", patterns)
			return
		}
		require.NoError(t, err, "%q", patterns)
		for range 10 {
			path := drawPath(t)
			var want []string
			for i, text := range patterns {
				if muxMeets(t, text, path) {
					want = append(want, fmt.Sprintf("r%d", i))
				}
			}
			met += len(want)
			require.Equal(t, want, namesOf(s, Request{Method: "GET", Path: path}), "%q of %q", path, patterns)
		}
	})
	require.Positive(t, refused)
	require.Positive(t, met)
}

func TestRequestMeetsMatchingRules(t *testing.T) {
	s := mustParse(t, `
tiers: {free: {}, paid: {multiply: 2}}
default_tier: free
exempt: {ip: [10.0.0.0/8, "::1", 172.16.9.9/12, "::ffff:192.0.2.9"], user: root, api_key: [k1, k2]}
rules:
- {name: all, key: global, limit: {rate: 1, per: 1s}}
- {name: get, match: {method: GET}, key: ip, limit: {rate: 1, per: 1s}}
- {name: write, match: {method: [POST, PUT]}, key: ip, limit: {rate: 1, per: 1s}}
- {name: item, match: {path: "/v1/items/{id}"}, key: ip, limit: {rate: 1, per: 1s}}
- {name: new item, match: {path: /v1/items/new, method: POST}, key: ip, limit: {rate: 1, per: 1s}}
- {name: tree, match: {path: /tree/}, key: ip, limit: {rate: 1, per: 1s}}
- {name: home, match: {path: "/{$}"}, key: ip, limit: {rate: 1, per: 1s}}
- {name: api host, match: {host: [api.example.com, "[::1]"]}, key: ip, limit: {rate: 1, per: 1s}}
- {name: api tree, match: {host: API.example.com, path: /tree/a}, key: ip, limit: {rate: 1, per: 1s}}
- {name: beta, match: {header: {x-plan: [beta, gamma]}}, key: ip, limit: {rate: 1, per: 1s}}
- {name: traced, match: {header: {traceparent: "*"}}, key: ip, limit: {rate: 1, per: 1s}}
- {name: paid, match: {tier: paid}, key: ip, limit: {rate: 1, per: 1s}}
- {name: free, match: {tier: [free]}, key: ip, limit: {rate: 1, per: 1s}}
`)
	for _, c := range []struct {
		about string
		r     Request
		want  []string
	}{
		{"no more than matches", Request{Method: "DELETE", Path: "/x"}, []string{"all", "free"}},
		{"GET is HEAD too", Request{Method: "HEAD", Path: "/x"}, []string{"all", "get", "free"}},
		{"several methods", Request{Method: "PUT", Path: "/x"}, []string{"all", "write", "free"}},
		{"an unknown method is none of those named", Request{Method: "PROPFIND", Path: "/x"}, []string{"all", "free"}},
		{"methods are told by case", Request{Method: "get", Path: "/x"}, []string{"all", "free"}},
		{"no method", Request{Path: "/x"}, []string{"all", "free"}},
		{"the more specific pattern and those above it", Request{Method: "POST", Path: "/v1/items/new"}, []string{"all", "write", "item", "new item", "free"}},
		{"the more general pattern, where the other is for another method", Request{Method: "GET", Path: "/v1/items/new"}, []string{"all", "get", "item", "free"}},
		{"a wildcard is one segment", Request{Path: "/v1/items/1/2"}, []string{"all", "free"}},
		{"the root alone", Request{Path: "/"}, []string{"all", "home", "free"}},
		{"no path is the root", Request{Path: ""}, []string{"all", "home", "free"}},
		{"OPTIONS *", Request{Method: "OPTIONS", Path: "*"}, []string{"all", "free"}},
		{"CONNECT", Request{Method: "CONNECT", Host: "example.com:443"}, []string{"all", "home", "free"}},
		{"the root of a tree without its slash", Request{Path: "/tree"}, []string{"all", "tree", "free"}},
		{"doubled slashes", Request{Path: "//v1///items//1"}, []string{"all", "item", "free"}},
		{"dots", Request{Path: "/x/../v1/./items/1"}, []string{"all", "item", "free"}},
		{"escaped letters", Request{Path: "/v1/%69tems/1"}, []string{"all", "item", "free"}},
		{"an escaped slash, read both ways", Request{Path: "/v1%2fitems/1"}, []string{"all", "item", "free"}},
		{"escaped dots, read both ways", Request{Path: "/tree/%2e%2e/v1/items/1"}, []string{"all", "item", "tree", "free"}},
		{"dots after an empty segment, by RFC 3986", Request{Path: "/v1/items//../1"}, []string{"all", "item", "free"}},
		{"dots that are not resolved", Request{Path: "/tree/../x"}, []string{"all", "tree", "free"}},
		{"dots for a wildcard", Request{Path: "/v1/items/.."}, []string{"all", "item", "free"}},
		{"escaped dots beside an escaped slash", Request{Path: "/x/%2e%2E/v1/items/a%2Fb"}, []string{"all", "item", "free"}},
		{"a fragment", Request{Path: "/v1/items/1#/x"}, []string{"all", "item", "free"}},
		{"an escape and an unescaped character", Request{Path: "/v1/items/a%2F1|"}, []string{"all", "item", "free"}},
		{"a router that splits first", Request{Path: "/v1%2Fitems/1", Readings: []Reading{{"/v1%2Fitems/1", Segmented}}}, []string{"all", "free"}},
		{"a router that decodes first", Request{Path: "/v1/items/a%2F1", Readings: []Reading{{"/v1/items/a/1", Decoded}}}, []string{"all", "free"}},
		{"a path without escapes", Request{Path: "/v1/%2569tems/1", Readings: []Reading{{"/v1/%69tems/1", Decoded}}}, []string{"all", "free"}},
		{"several readings", Request{Path: "/x", Readings: []Reading{{"/tree/x", Decoded}, {"/v1/items%2F1", AnyForm}}}, []string{"all", "item", "tree", "free"}},
		{"escapes without a meaning", Request{Path: "/v1/items/%zz"}, []string{"all", "item", "free"}},
		{"a host", Request{Path: "/x", Host: "api.example.com"}, []string{"all", "api host", "free"}},
		{"a host by any spelling", Request{Path: "/tree/a", Host: "Api.Example.COM.:8443"}, []string{"all", "tree", "api host", "api tree", "free"}},
		{"an address as host", Request{Path: "/x", Host: "[::1]:80"}, []string{"all", "api host", "free"}},
		{"another host", Request{Path: "/x", Host: "example.com"}, []string{"all", "free"}},
		{"a header", Request{Path: "/x", Header: http.Header{"X-Plan": {"beta"}}}, []string{"all", "beta", "free"}},
		{"any line of a header", Request{Path: "/x", Header: http.Header{"X-Plan": {"alpha", "gamma"}}}, []string{"all", "beta", "free"}},
		{"many values of a header meet a rule once", Request{Path: "/x", Header: http.Header{"X-Plan": {"beta", "gamma", "beta"}}}, []string{"all", "beta", "free"}},
		{"another value", Request{Path: "/x", Header: http.Header{"X-Plan": {"delta"}}}, []string{"all", "free"}},
		{"any value", Request{Path: "/x", Header: http.Header{"Traceparent": {""}}}, []string{"all", "traced", "free"}},
		{"a tier", Request{Path: "/x", Tier: "paid"}, []string{"all", "paid"}},
		{"a tier that the file does not have is the default", Request{Path: "/x", Tier: "gold"}, []string{"all", "free"}},
		{"an exempt network", Request{Path: "/x", Client: netip.MustParseAddr("10.9.9.9")}, nil},
		{"an exempt network within IPv6", Request{Path: "/x", Client: netip.MustParseAddr("::ffff:10.9.9.9")}, nil},
		{"an exempt address", Request{Path: "/x", Client: netip.MustParseAddr("::1")}, nil},
		{"an exempt network that was written with more", Request{Path: "/x", Client: netip.MustParseAddr("172.17.0.1")}, nil},
		{"an exempt address that was written within IPv6", Request{Path: "/x", Client: netip.MustParseAddr("192.0.2.9")}, nil},
		{"an exempt address, whatever its zone", Request{Path: "/x", Client: netip.MustParseAddr("::1%eth0")}, nil},
		{"another address", Request{Path: "/x", Client: netip.MustParseAddr("11.0.0.1")}, []string{"all", "free"}},
		{"an exempt user", Request{Path: "/x", User: "root"}, nil},
		{"an exempt API key", Request{Path: "/x", APIKey: "k2"}, nil},
	} {
		require.Equal(t, c.want, namesOf(s, c.r), c.about)
	}
}

// A path in any case meets the rules of a file with ignore_case. An exception still requires the
// exact path, because limiting a request too much is safe.
func TestIgnoreCaseMatchesPathsInAnyCase(t *testing.T) {
	const text = `
rules:
- {name: login, match: {path: /login}, key: ip, limit: {rate: 1, per: 1s}}
- {name: cased, match: {path: "/Users/{id}"}, key: ip, limit: {rate: 1, per: 1s}}
- {name: rest, match: {not: {path: /healthz}}, key: ip, limit: {rate: 1, per: 1s}}
`
	cased, err := Parse("rules.yaml", []byte(text))
	require.NoError(t, err)
	anyCase, err := Parse("rules.yaml", []byte("ignore_case: true"+text))
	require.NoError(t, err)
	for _, c := range []struct {
		path           string
		cased, anyCase []string
	}{
		{"/login", []string{"login", "rest"}, []string{"login", "rest"}},
		{"/LOGIN", []string{"rest"}, []string{"login", "rest"}},
		{"/%4CogIn", []string{"rest"}, []string{"login", "rest"}},
		{"/users/7", []string{"rest"}, []string{"cased", "rest"}},
		{"/Users/7", []string{"cased", "rest"}, []string{"cased", "rest"}},
		{"/healthz", nil, nil},
		{"/Healthz", []string{"rest"}, []string{"rest"}},
	} {
		require.Equal(t, c.cased, namesOf(cased, Request{Method: "GET", Path: c.path}), c.path)
		require.Equal(t, c.anyCase, namesOf(anyCase, Request{Method: "GET", Path: c.path}), c.path)
	}
}

func TestReadingsDifferOnlyIfTheyMeetDifferentRules(t *testing.T) {
	s := mustParse(t, `
exempt: {user: root}
rules:
- {name: all, key: ip, limit: {rate: 1, per: 1s}}
- {name: admin, match: {path: /admin/}, key: ip, limit: {rate: 1, per: 1s}}
- {name: item, match: {path: "/items/{id}"}, key: ip, limit: {rate: 1, per: 1s}}
- {name: other, match: {host: other, path: "/x/{id}"}, key: ip, limit: {rate: 1, per: 1s}}
`)
	for path, want := range map[string]bool{
		"/x": false, "/admin/x": false, "/admin/group%2Fproject": false, "/x%2Fy%20z": false, "/%61dmin/x": false,
		"/admin%2Fx": true, "/items/group%2Fproject": true, "/x/..%2Fadmin/": true, "/x#y": false, "/items/1#/y": true, "//admin/x": true,
	} {
		require.Equal(t, want, s.ReadingsDiffer(&Request{Path: path}), path)
	}
	require.True(t, s.ReadingsDiffer(&Request{Host: "other", Path: "/x/a%2Fb"}))
	require.False(t, s.ReadingsDiffer(&Request{Path: "/items/a%2Fb", Readings: []Reading{{"/items/a%2Fb", Segmented}}}))
	require.False(t, s.ReadingsDiffer(&Request{User: "root", Path: "/items/a%2Fb"}))
}

func TestRuleAppliesToAllNamedTiers(t *testing.T) {
	s := mustParse(t, "tiers: {free: {}, basic: {}, gold: {}}\n"+oneRule("match: {tier: [free, gold]}\nkey: ip\nlimit: {rate: 1, per: 1s}"))
	for tier, want := range map[string]int{"free": 1, "basic": 0, "gold": 1, "": 0, "none": 0} {
		require.Len(t, s.Match(&Request{Path: "/", Tier: tier}, nil), want, tier)
	}
}

func TestRepeatedHeaderValueMatchesOnce(t *testing.T) {
	s := mustParse(t, oneRule("match: {header: {X-V: [a, a]}}\nkey: ip\nlimit: {rate: 1, per: 1s}"))
	require.Len(t, s.Match(&Request{Path: "/", Header: http.Header{"X-V": {"a"}}}, nil), 1)
}

// A client may send as many lines of a field as fit into its header. If Match evaluated a rule for each
// copy of a line, and each evaluation read all lines of another field, the time would be quadratic.
func TestManyHeaderLinesTakeLinearTime(t *testing.T) {
	s := mustParse(t, oneRule("match: {header: {X-A: x, X-B: y}}\nkey: ip\nlimit: {rate: 1, per: 1s}"))
	lines := func(line string) (all []string) { return slices.Repeat([]string{line}, 200_000) }
	before := lab.CPU()
	require.Empty(t, s.Match(&Request{Path: "/", Header: http.Header{"X-A": lines("x"), "X-B": lines("z")}}, nil))
	require.Len(t, s.Match(&Request{Path: "/", Header: http.Header{"X-A": lines("x"), "X-B": append(lines("z"), "y")}}, nil), 1)
	require.Less(t, lab.CPU()-before, 10*time.Second) // the usual time is 20 ms
}

func TestDisabledFileMatchesNoRule(t *testing.T) {
	s := mustParse(t, "enabled: false\nrules:\n- {name: all, key: global, limit: {rate: 1, per: 1s}}")
	require.False(t, s.Enabled())
	require.Empty(t, namesOf(s, Request{Path: "/"}))
	require.Len(t, s.Rules(), 1)
}

func TestMatchKeepsRulesInGivenSlice(t *testing.T) {
	s := mustParse(t, "rules:\n- {name: all, key: global, limit: {rate: 1, per: 1s}}\n- {name: a, match: {path: /a}, key: global, limit: {rate: 1, per: 1s}}")
	all, a := s.Rules()[0], s.Rules()[1]
	require.Equal(t, []*Rule{a, all, all, a}, s.Match(&Request{Path: "/a"}, []*Rule{a, all}), "what is there stays as it is")
}

// largeFile returns a file of n rules with hosts, wildcards, literals, methods and tiers.
func largeFile(n int) string {
	var b strings.Builder
	b.WriteString("tiers: {free: {}, paid: {multiply: 10}}\nrules:\n- {name: all, key: global, limit: {rate: 1, per: 1s}}\n- {name: api, match: {path: /api/}, key: ip, limit: {rate: 1, per: 1s}}\n")
	for i := range n - 2 {
		match := ""
		switch i % 5 {
		case 0:
			match = fmt.Sprintf("path: /api/v1/r%d/", i)
		case 1:
			match = fmt.Sprintf(`path: "/api/v1/r%d/{id}"`, i)
		case 2:
			match = fmt.Sprintf(`path: "/api/v2/{tenant}/r%d/{id}"`, i)
		case 3:
			match = fmt.Sprintf(`host: h%d.example.com, path: "/{x...}"`, i%97)
		case 4:
			match = fmt.Sprintf("method: POST, path: /api/v1/r%d/x/y, tier: paid", i)
		}
		fmt.Fprintf(&b, "- {name: r%d, match: {%s}, key: ip, limit: {rate: 9, per: 1s}}\n", i, match)
	}
	return b.String()
}

func TestMatchingDoesNotAllocate(t *testing.T) {
	s := mustParse(t, largeFile(100))
	r := Request{Method: "GET", Host: "h3.example.com:80", Path: "/api/v2/acme/r7/77", Client: netip.MustParseAddr("192.0.2.1")}
	dst, key := make([]*Rule, 0, 16), make([]byte, 0, 256)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		dst = s.Match(&r, dst[:0])
		for _, rule := range dst {
			key, _ = rule.AppendKey(key[:0], &r)
			rule.Units(&r)
		}
	}))
	require.Len(t, dst, 4)
}

func FuzzMatch(f *testing.F) {
	s := mustParse(f, largeFile(50))
	f.Add("GET", "api.example.com:80", "/api/v1/r5/x", "X-Plan", "beta", "paid")
	f.Add("CONNECT", "[::1", "*", "", "", "")
	f.Add("", ":::", "%2e%2e/%", "\x00", "|\\", "x")
	f.Fuzz(func(t *testing.T, method, host, path, name, value, tier string) {
		r := Request{Method: method, Host: host, Path: path, Header: http.Header{name: {value}}, User: value, APIKey: path, Tier: tier}
		met := s.Match(&r, nil)
		require.Contains(t, met, s.Rules()[0])
		require.True(t, slices.IsSortedFunc(met, func(a, b *Rule) int { return a.Index - b.Index }))
		for i, rule := range met {
			require.False(t, slices.Contains(met[:i], rule))
			key, _ := rule.Key(&r)
			require.LessOrEqual(t, len(key), maxKeyBytes)
		}
	})
}
