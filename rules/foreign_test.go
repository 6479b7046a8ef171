package rules

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Patterns of nginx, Kong, Traefik, Caddy and similar products are refused, with the line and the remedy.
func TestPatternsOfOtherProductsAreRefused(t *testing.T) {
	const (
		negation = "write not: {"
	)
	for _, c := range []struct{ field, pattern, want string }{
		{"path", "/shop*", "write /shop/ for /shop and all below it, or %2A for the character"},
		{"path", "/img/*.png", "a wildcard is a whole segment"},
		{"path", "/a/*/b*", "* stands for itself here"},
		{"path", "*.php", "* is not a wildcard: begin it with /"},
		{"path", `~* \.php$`, "a path is not a regular expression"},
		{"path", "^~ /static/", "write /static/, with a final slash"},
		{"path", "= /login", "write /login"},
		{"path", "^/api", "a path is not a regular expression"},
		{"path", "(?i)/api", "a path is not a regular expression"},
		{"path", "!/healthz", "write not: {path: /healthz} in match"},
		{"path", "PathPrefix(`/shop`)", "a path is not an expression: write the path alone"},
		{"path", "/v[0-9]/items", "a path is not a regular expression, and [ stands for itself: use {name} for one segment and {name...} or a final slash for the rest, or %5B for the character"},
		{"path", `/v1/\d+`, "or %5C for the character"},
		{"path", "/.+", "or %2B for the character"},
		{"path", "/users/<int:id>", "use {id}, or %3C for the character"},
		{"path", "/files/<path:name>", "use {name...}"},
		{"path", "/docs/[...all]", "use {all...}"},
		{"path", "/users/:id", "use {id}, or %3A for the character"},
		{"path", "/files/name.:ext", ": begins none: use {name}, or %3A for the character"},
		{"path", "/users/{id:[0-9]+}", "a wildcard has no pattern and no type: use {id}"},
		{"path", "/files/{*path}", "the rest of a path is {path...}"},
		{"path", "/users/{id}.json", "a wildcard is a whole segment"},
		{"path", "/{a,b}", "has no good name"},
		{"path", "/users?/list", "? is not a wildcard"},
		{"path", "/shop/...", "... stands for itself here: use {name} for one segment and {name...} for the rest, or %2E for the character"},
		{"path", "/100%", "write %25 for the character"},

		{"method", "!GET", negation + "method: GET} in match"},
		{"method", "*", "leave method out to match all"},
		{"method", "ANY", "leave method out to match all"},
		{"method", "GET|POST", "write a list, like [GET, POST]"},
		{"method", "GET, HEAD", "write a list, like [GET, HEAD]"},
		{"method", "^P.*", "a method is not a regular expression"},

		{"host", ".example.com", "only *. at the beginning is a wildcard"},
		{"host", `~^(.+)\.example\.com$`, "hosts are not regular expressions"},
		{"host", "!example.com", negation + "host: example.com} in match"},
		{"host", "_", "leave host out to match all"},
		{"host", "a.example.com,b.example.com", "write a list"},
		{"host", "HostRegexp(`x`)", "hosts are not regular expressions"},

		{"tier", "!free", negation + "tier: free} in match"},
		{"tier", "*", "leave tier out to match all"},
		{"tier", "fre*", "did you mean"},

		{"header", "pro*", `X-Plan is "pro*": * reads as a wildcard, and texts are compared as they are: list each text, or write {exact: "pro*"} for this one`},
		{"header", "*pro", "* reads as a wildcard"},
		{"header", "!beta", "! reads as a negation, and texts are compared as they are: list each text, leave requests out with match.not"},
		{"header", "~ ^pro", "~ reads as a regular expression"},
		{"header", "^pro", "^ reads as a regular expression"},
		{"header", "pro$", "$ reads as a regular expression"},
		{"header", "(?i)pro", "(? reads as a regular expression"},
		{"header", "pro|plus", "| reads as a choice"},
		{"header", "v[12]", "[12] reads as a set of characters"},
		{"header", `v\d+`, `\d reads as a regular expression`},
		{"header", `v1\.0`, `\. reads as a regular expression`},
		{"header", "v?", "? reads as a wildcard"},
		{"header", "{env.PLAN}", "{env.PLAN} reads as a placeholder"},
		{"header", "a.+", ".+ reads as a regular expression"},
		{"header", ">=2", "> reads as a comparison"},

		{"user", "svc-*", `user is "svc-*": * reads as a wildcard`},
		{"api_key", "internal-*", "one api_key: * reads as a wildcard, and texts are compared as they are: list each text, or write {exact: ...} around this one"},
		{"ip", "10.*", "addresses have no wildcards, write 10.0.0.0/8"},
		{"ip", "10.1.*.*", "addresses have no wildcards, write 10.1.0.0/16"},
		{"ip", "192.0.2.1-192.0.2.9", "use an address or a network"},
	} {
		quoted := "'" + strings.ReplaceAll(c.pattern, "'", "''") + "'"
		var text string
		line := "rules.yaml:4:"
		switch c.field {
		case "user", "api_key", "ip":
			text, line = "exempt: {"+c.field+": "+quoted+"}\nrules: []", "rules.yaml:1:"
		case "header":
			text = "tiers: {}\n" + oneRule("match: {header: {X-Plan: "+quoted+"}}\nkey: ip\nlimit: {rate: 1, per: 1s}")
		default:
			text = "tiers: {free: {}}\n" + oneRule("match: {"+c.field+": "+quoted+"}\nkey: ip\nlimit: {rate: 1, per: 1s}")
		}
		_, err := Parse("rules.yaml", []byte(text))
		require.ErrorContains(t, err, line, "%s %s", c.field, c.pattern)
		require.ErrorContains(t, err, c.want, "%s %s", c.field, c.pattern)
		if c.field == "api_key" {
			require.NotContains(t, err.Error(), "internal-", "a key is a secret")
		}
	}
	for name, want := range map[string]string{
		"X-*": "name each field, or write %2A for the character", "!X-Debug": `write not: {header: {X-Debug: "*"}} in match`, "X-(A|B)": "name each field", "X-%zz": "write %25",
	} {
		for _, text := range []string{oneRule("match: {header: {'" + name + "': a}}\nkey: ip\nlimit: {rate: 1, per: 1s}"), oneRule("key: 'header:" + name + "'\nlimit: {rate: 1, per: 1s}")} {
			_, err := Parse("rules.yaml", []byte(text))
			require.ErrorContains(t, err, "rules.yaml:3:", name)
			if strings.Contains(name, "(") {
				continue // the text is not a valid name of a field
			}
			require.ErrorContains(t, err, want, name)
		}
	}
}

// Each character that is refused can be written as an escape, and then matches only itself.
func TestPatternCharactersHaveEscapes(t *testing.T) {
	for _, c := range "*:^$|\\[]()<>\"`%?#+!~={}" {
		segment := "a" + string(c)
		escaped := "a" + "%" + strings.ToUpper(url.PathEscape(string(c))[1:])
		if url.PathEscape(string(c)) == string(c) {
			escaped = "a%" + strings.ToUpper(string("0123456789abcdef"[c>>4])+string("0123456789abcdef"[c&15]))
		}
		s := mustParse(t, oneRule("match: {path: '/"+escaped+"'}\nkey: ip\nlimit: {rate: 1, per: 1s}"))
		require.Len(t, s.Match(&Request{Path: "/" + url.PathEscape(segment)}, nil), 1, segment)
		require.Empty(t, s.Match(&Request{Path: "/ab"}, nil), segment)
	}
	s := mustParse(t, "exempt: {user: [{exact: 'svc-*'}, 'CORP\\dora'], api_key: {exact: 'a|b'}}\n"+
		oneRule("match: {host: {exact: 'a.example.com'}, header: {X-Plan: [{exact: '*'}, {exact: '!pro'}, plain], '%2A%7e': x}}\nkey: 'header:X%7C'\nlimit: {rate: 1, per: 1s}"))
	meets := func(plan, user, key string) int {
		return len(s.Match(&Request{Path: "/", Host: "a.example.com", User: user, APIKey: key, Header: http.Header{"X-Plan": {plan}, "*~": {"x"}}}, nil))
	}
	for plan, want := range map[string]int{"*": 1, "!pro": 1, "plain": 1, "pro": 0, "anything": 0} {
		require.Equal(t, want, meets(plan, "", ""), plan)
	}
	require.Zero(t, meets("*", "svc-*", ""))
	require.Zero(t, meets("*", `CORP\dora`, ""))
	require.Zero(t, meets("*", "", "a|b"))
	require.Equal(t, 1, meets("*", "svc-1", "a"))
	require.Equal(t, "header:X|", s.Rules()[0].By)
}

// Texts that resemble a pattern, but are not patterns in other products, are accepted.
func TestOrdinaryTextsAreAccepted(t *testing.T) {
	for _, path := range []string{"/v1/items:batchGet", "/~user/", "/c++/", "/a=b;c,d", "/a-b_c.d!e'f@g&h", "/caf%C3%A9", "/.well-known/x", "/v1/{id}/parts", "/{rest...}", "/{$}"} {
		mustParse(t, oneRule("match: {path: \""+path+"\"}\nkey: ip\nlimit: {rate: 1, per: 1s}"))
	}
	for _, text := range []string{
		"Mozilla/5.0 (X11; Linux x86_64)", "text/html, application/json;q=0.9", "https://example.com/?a=b", `CORP\dora`, `W/"abc"`, "a+b@example.com", "2026-01-01", "-", "!", "=", "Basic YWJj==", "$5", "?1", "<https://example.com>; rel=next", "<a@example.com>",
	} {
		part, as := patternIn(text)
		require.Empty(t, part, "%s reads as %s", text, as)
	}
}
