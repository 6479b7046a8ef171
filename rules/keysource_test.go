package rules

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type claimsOf map[string]string

func (c claimsOf) Claim(name string) string { return c[name] }

func TestKeyContainsPartsOfRequest(t *testing.T) {
	const limit = "\nlimit: {rate: 1, per: 1s}"
	for _, c := range []struct{ key, url, cookie, want, ambiguous string }{
		{key: "host", url: "//A.Example.com.:80/", want: "a.example.com"},
		{key: "path", url: "/v1/a%20b/", want: "/v1/a b"},
		{key: "path", url: "/v1/a%2Fb", want: "/v1/a/b"},
		{key: "path", url: "/v1//a", want: `\?`, ambiguous: "path"},
		{key: "path:id", url: "/v1/7/x", want: "7"},
		{key: "path:id", url: "/v1/%37/x", want: "7"},
		{key: "path:id", url: "/v1/a%7Cb/x", want: `a\|b`},
		{key: "path:id", url: "/v1/a%2Fb/x", want: `\?`, ambiguous: "path:id"}, // the segment is a or a/b
		{key: "path:id", url: "/v1/7;v=1/x", want: `\?`, ambiguous: "path:id"},
		{key: "path:id", url: "/v1/./7/x", want: `\?`, ambiguous: "path:id"},
		{key: "[user, path:id]", url: "/v1/7/", want: "u|7"},
		{key: "query:t", url: "/v1/7/?a=1&t=x%20+y&b", want: "x  y"},
		{key: "query:t", url: "/v1/7/?%74=x", want: "x"},
		{key: "query:t", url: "/v1/7/?u=x", want: `\-192.0.2.1`},
		{key: "query:t", url: "/v1/7/?t=", want: `\-192.0.2.1`},
		{key: "query:t", url: "/v1/7/?t=x&t=x", want: `\?`, ambiguous: "query:t"},
		{key: "query:t", url: "/v1/7/?a=1;t=x", want: `\?`, ambiguous: "query:t"},
		{key: "query:t", url: "/v1/7/?T=x", want: `\?`, ambiguous: "query:t"},
		{key: "query:t", url: "/v1/7/?t[]=x", want: `\?`, ambiguous: "query:t"},
		{key: "query:t", url: "/v1/7/?t=%zz", want: `\?`, ambiguous: "query:t"},
		{key: "query:t", url: "/v1/7/?t=x%00", want: `\?`, ambiguous: "query:t"},
		{key: "query:t_a", url: "/v1/7/?t.a=x", want: `\?`, ambiguous: "query:t_a"},
		{key: "query:f[t]", url: "/v1/7/?f[t]=x&f[u]=y", want: "x"},
		{key: "cookie:s", url: "/v1/7/", cookie: `a=1; s="x%20y"`, want: "x y"},
		{key: "cookie:s", url: "/v1/7/", cookie: "s=100%", want: "100%"},
		{key: "cookie:s", url: "/v1/7/", cookie: "s=x; s=y", want: `\?`, ambiguous: "cookie:s"},
		{key: "cookie:s", url: "/v1/7/", cookie: "a=1,s=y", want: `\?`, ambiguous: "cookie:s"},
		{key: "claim:org", url: "/v1/7/", want: "acme"},
		{key: "claim:sub", url: "/v1/7/", want: `\-192.0.2.1`},
	} {
		path := "/v1/{id}/"
		if c.key == "host" || c.key == "path" {
			path = "/"
		}
		s := mustParse(t, oneRule("match: {path: '"+path+"'}\nkey: "+strings.ReplaceAll("'"+c.key+"'", "'[user, path:id]'", "[user, path:id]")+limit))
		u, err := url.Parse(c.url)
		require.NoError(t, err)
		r := Request{Host: u.Host, User: "u", Client: netip.MustParseAddr("192.0.2.1"), Header: http.Header{"Cookie": {c.cookie}}, Claims: claimsOf{"org": "acme"}}
		r.SetURL(u)
		rule := s.Rules()[0]
		key, _ := rule.Key(&r)
		require.Equal(t, c.want, key, "%s of %s", c.key, c.url)
		require.Equal(t, c.ambiguous, rule.AmbiguousPart(&r), "%s of %s", c.key, c.url)
	}
	fold := mustParse(t, "ignore_case: true\n"+oneRule("match: {path: '/v1/{id}/'}\nkey: path:id"+limit)).Rules()[0]
	key, _ := fold.Key(&Request{Path: "/V1/Abc/"})
	require.Equal(t, "abc", key)
	by := mustParse(t, oneRule("match: {path: '/v1/{id}/'}\nkey: [host, path:id, query:t, 'cookie:s']"+limit)).Rules()[0]
	require.Equal(t, "host|path:id|query:t|cookie:s", by.By)
	require.True(t, by.Limits[0].base.SecretKeys)
	r := Request{Path: "/v1/7/", Query: "a=b&t=x", Host: "a.com", Header: http.Header{"Cookie": {"a=b; s=x"}}}
	room := make([]byte, 0, 100)
	require.Zero(t, testing.AllocsPerRun(100, func() { room, _ = by.AppendKey(room[:0], &r); by.AmbiguousPart(&r) }))
	require.Equal(t, "a.com|7|x|x", string(room))
}

// The function split simulates how different servers parse a query. If a query is not ambiguous, all of them find
// the same value, so a client cannot send different values to the limiter and to the server.
func TestUnambiguousQueryHasOneValue(t *testing.T) {
	split := func(query, separators string, fold bool) (values []string) {
		for _, pair := range strings.FieldsFunc(query, func(c rune) bool { return strings.ContainsRune(separators, c) }) {
			name, value, _ := strings.Cut(pair, "=")
			name, err := url.QueryUnescape(name)
			plain, wrong := url.QueryUnescape(value)
			if name, _, _ = strings.Cut(name, "["); err == nil && wrong == nil && (name == "t" || fold && strings.EqualFold(name, "t")) {
				values = append(values, strings.TrimSpace(plain))
			}
		}
		return append(values, "")
	}
	ambiguous, single := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		query := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"t", "T", "u", "=", "=", "x", "y", "&", ";", "%74", "%3D", "%26", "[]", "+", "%20", "%zz"}), 0, 8).Draw(t, "query"), "")
		got, is := (&Request{Query: query}).queryValue("t")
		if is {
			ambiguous++
			return
		}
		single++
		for _, values := range [][]string{split(query, "&", false), split(query, "&;", false), split(query, "&;", true)} {
			require.Equal(t, got, values[0], query)
			require.Equal(t, got, values[max(0, len(values)-2)], query)
		}
		byGo, err := url.ParseQuery(query)
		require.True(t, err != nil || got == strings.TrimSpace(byGo.Get("t")), query)
	})
	require.NotZero(t, ambiguous)
	require.NotZero(t, single)
}

// For a path that is not ambiguous, pathValue finds the same value as a ServeMux, and as a server that
// decodes the path before it splits it.
func TestPathValueEqualsThatOfServeMux(t *testing.T) {
	const pattern = "/{a}/{id}/"
	rule := mustParse(t, oneRule("match: {path: '"+pattern+"'}\nkey: path:id\nmissing_key: skip\nlimit: {rate: 1, per: 1s}")).Rules()[0]
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		path := drawPath(t)
		u, err := url.ParseRequestURI(strings.ReplaceAll(path, "#", "%23"))
		require.NoError(t, err)
		var r Request
		r.SetURL(u)
		key, ok := rule.Key(&r)
		if !ok || rule.AmbiguousPart(&r) != "" {
			return
		}
		found++
		mux := http.NewServeMux()
		mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) { require.Equal(t, r.PathValue("id"), key, path) })
		mux.ServeHTTP(httptest.NewRecorder(), &http.Request{Method: "GET", URL: u})
		plain, err := url.PathUnescape(path)
		require.NoError(t, err)
		require.True(t, slices.Contains(strings.Split(plain, "/"), key), path)
	})
	require.NotZero(t, found)
}
