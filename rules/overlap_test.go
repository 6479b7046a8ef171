package rules

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/testenv"
)

// manyLimits returns a rule with the given number of limits.
func manyLimits(name, match string, limits int) string {
	text := fmt.Sprintf("- name: %s\n  match: {%s}\n  key: ip\n  limits:\n", name, match)
	for i := range limits {
		text += fmt.Sprintf("  - {name: l%d, rate: 1, per: 1s}\n", i)
	}
	return text
}

func TestRequestsMeetAtMostMaxMetLimits(t *testing.T) {
	const head = "tiers: {free: {}, paid: {}}\nrules:\n"
	fifteen := func(match string) (text string) { // rules with 240 limits
		for i := range 15 {
			text += manyLimits(fmt.Sprint("r", i), match, 16)
		}
		return text
	}
	for _, c := range []struct{ about, text, want string }{
		{"255", head + fifteen("path: /") + manyLimits("last", "path: /", 15), ""},
		{"256", head + fifteen("path: /") + manyLimits("last", "path: /", 16), `a request for /x can meet 256 limits`},
		{"on a path below", head + fifteen("path: /") + manyLimits("last", `path: "/v1/{id}"`, 16), `a request for /v1/x can meet 256 limits`},
		{"on a path above", head + fifteen(`path: "/v1/{id}"`) + manyLimits("last", `path: "/{rest...}"`, 16), `a request for /v1/x can meet 256 limits`},
		{"on paths beside each other", head + fifteen("path: /v1/") + manyLimits("last", "path: /v2/", 16), ""},
		{"with and without the slash at its end", head + fifteen("path: /v1/") + manyLimits("last", "path: /v1", 16), `a request for /v1 can meet 256 limits`},
		{"by other methods", head + fifteen("method: [GET, POST]") + manyLimits("last", "method: PUT", 16), ""},
		{"by the same method", head + fifteen("method: GET") + manyLimits("last", "method: HEAD", 16), `can meet 256 limits`},
		{"by any method", head + fifteen("method: QUERY") + manyLimits("last", "path: /", 16), `can meet 256 limits`},
		{"by other tiers", head + fifteen("tier: free") + manyLimits("last", "tier: paid", 16), ""},
		{"by the same tier", head + fifteen("tier: [free, paid]") + manyLimits("last", "tier: paid", 16), `can meet 256 limits`},
		{"by any tier", head + fifteen("tier: free") + manyLimits("last", "path: /", 16), `can meet 256 limits`},
		{"on other hosts", head + fifteen("host: a") + manyLimits("last", "host: b", 16), ""},
		{"on a host and on all", head + fifteen("host: [a, b]") + manyLimits("last", "path: /", 16), `can meet 256 limits`},
		{"on a path of a host and on paths of all", head + fifteen("host: a") + manyLimits("last", "path: /v1", 16), `a request for /v1 can meet 256 limits`},
		{"on a path of all and on paths of a host", head + fifteen("path: /") + manyLimits("last", "host: a, path: /v1", 16), `a request for /v1 can meet 256 limits`},
		{"on the fullest path of a host and on a path of all", head + fifteen("host: a, path: /v1/") + manyLimits("other", "host: a, path: /z", 1) + manyLimits("last", "path: /v1/y", 16), `a request for /v1/y can meet 256 limits`},
		{"on a host and below a wildcard", head + fifteen("host: '*.a.com'") + manyLimits("last", "host: b.a.com", 16), `can meet 256 limits`},
		{"below two wildcards", head + fifteen("host: '*.a.com'") + manyLimits("last", "host: '*.com'", 16), `can meet 256 limits`},
		{"on a host and not below a wildcard", head + fifteen("host: '*.a.com'") + manyLimits("last", "host: a.com", 16), ""},
		{"by other users", head + fifteen("user: a") + manyLimits("last", "user: b", 16), ""},
		{"by the same user", head + fifteen("user: a") + manyLimits("last", "user: [a, b]", 16), `can meet 256 limits`},
		{"by other values of a field", head + fifteen("header: {X-V: a}") + manyLimits("last", "header: {X-V: b}", 16), ""},
		{"by the same value of a field", head + fifteen("header: {X-V: [a, b]}") + manyLimits("last", "header: {X-V: b}", 16), `can meet 256 limits`},
		{"by any value of a field", head + fifteen("header: {X-V: a}") + manyLimits("last", `header: {X-V: "*"}`, 16), `can meet 256 limits`},
		{"by two fields", head + fifteen("header: {X-V: a}") + manyLimits("last", "header: {X-W: a}", 16), `can meet 256 limits`},
	} {
		_, err := Parse("rules.yaml", []byte(c.text))
		if c.want == "" {
			require.NoError(t, err, c.about)
			continue
		}
		require.ErrorContains(t, err, c.want, c.about)
		last := strings.Count(c.text[:strings.Index(c.text, "last")], "\n") + 2 // line of its match
		require.ErrorContains(t, err, fmt.Sprintf("rules.yaml:%d:", last), c.about)
		require.ErrorContains(t, err, "of this rule and others: at most 255 are decided together; match them more narrowly, or remove some", c.about)
	}
}

// A file is refused if and only if a request exists that meets too many limits.
func TestMaximumOfLimitsIsExact(t *testing.T) {
	testenv.SkipUnlessFull(t, "TestRequestsMeetAtMostMaxMetLimits")
	methods, hosts, tiers := []string{"GET", "PUT", "PURGE"}, []string{"", "a", "b"}, []string{"", "free", "paid"}
	refused, good := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var file strings.Builder
		file.WriteString("tiers: {free: {}, paid: {}}\nrules:\n")
		var paths []string
		for i := range rapid.IntRange(30, 50).Draw(t, "rules") {
			path := rapid.SampledFrom([]string{"/", "/", "/", "/v1/", "/{$}", "/v1", "/v1/", "/v1/{$}", "/v1/{id}", "/v1/new", "/v1/{id}/"}).Draw(t, "path")
			match := fmt.Sprintf("path: %q", path)
			for field, values := range map[string][]string{"method": {"", "", "", "GET", "PUT", "[GET, PUT]"}, "host": {"", "", "a", "b", "[a, b]"}, "tier": {"", "", "free", "paid"}} {
				if v := rapid.SampledFrom(values).Draw(t, field); v != "" {
					match += fmt.Sprintf(", %s: %s", field, v)
				}
			}
			file.WriteString(manyLimits(fmt.Sprint("r", i), match, rapid.SampledFrom([]int{8, 16, 16}).Draw(t, "limits")))
			paths = append(paths, strings.NewReplacer("{$}", "", "{id}", "7").Replace(path))
		}
		most := 0
		p, whole, err := read("rules.yaml", []byte(file.String()))
		require.NoError(t, err)
		require.NoError(t, whole.Err())
		slices.Sort(paths)
		for _, path := range append(slices.Compact(paths), "/v1/new/", "/other") {
			for _, method := range methods {
				for _, host := range hosts {
					for _, tier := range tiers {
						n := 0
						for _, r := range p.set.Match(&Request{Method: method, Host: host, Path: path, Tier: tier}, nil) {
							n += len(r.Limits)
						}
						most = max(most, n)
					}
				}
			}
		}
		p.checkCrowds()
		err = whole.Err()
		if most <= MaxMet {
			good++
			require.NoError(t, err)
			return
		}
		refused++
		require.ErrorContains(t, err, "are decided together")
	})
	require.Greater(t, min(refused, good), 4, "%d refused, %d good", refused, good)
}

// For a request that meets too many rules, Match does not examine all of them.
func TestMatchStopsOneRuleAboveMaxMet(t *testing.T) {
	var file strings.Builder
	file.WriteString("rules:\n")
	r := Request{Path: "/", Header: make(http.Header)}
	for i := range 2 * MaxMet {
		fmt.Fprintf(&file, "- {name: t%d, match: {header: {X-Tenant: t%d}}, key: ip, limit: {rate: 9, per: 1s}}\n", i, i)
		r.Header.Add("X-Tenant", fmt.Sprint("t", i))
	}
	s := mustParse(t, file.String())
	require.Len(t, s.Match(&r, nil), MaxMet+1)
	require.Len(t, s.Match(&r, s.Rules()[:7:7]), 7+MaxMet+1)
	r.Header["X-Tenant"] = r.Header["X-Tenant"][:MaxMet]
	require.Len(t, s.Match(&r, nil), MaxMet)
}
