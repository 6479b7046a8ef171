package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRulesMatchClients(t *testing.T) {
	const limit = "\nkey: ip\nlimit: {rate: 1, per: 1s}"
	client := func(ip, user, apiKey string) Request {
		a, _ := netip.ParseAddr(ip)
		return Request{Path: "/", Client: a, User: user, APIKey: apiKey}
	}
	for _, c := range []struct {
		match string
		r     Request
		want  bool
	}{
		{"ip: 10.0.0.0/8", client("10.1.2.3", "", ""), true},
		{"ip: 10.0.0.0/8", client("::ffff:10.1.2.3", "", ""), true},
		{"ip: 10.0.0.0/8", client("11.1.2.3", "", ""), false},
		{"ip: 10.0.0.0/8", client("", "", ""), false},
		{"ip: ['2001:db8::/32', 10.0.0.1]", client("2001:db8::9", "", ""), true},
		{"user: [a, b]", client("", "b", ""), true},
		{"user: [a, b]", client("", "c", ""), false},
		{"user: [a, b]", client("", "", ""), false},
		{"api_key: [k, l]", client("", "", "l"), true},
		{"api_key: k", client("", "", ""), false},
		{"user: a, ip: 10.0.0.0/8", client("10.0.0.1", "a", ""), true},
		{"user: a, ip: 10.0.0.0/8", client("11.0.0.1", "a", ""), false},
		{"user: a, api_key: k", client("", "a", "l"), false},
		{"not: {ip: 10.0.0.0/8}", client("10.0.0.1", "", ""), false},
		{"not: {ip: 10.0.0.0/8}", client("", "", ""), true},
		{"not: {ip: 10.0.0.0/8, user: a}", client("10.0.0.1", "b", ""), true},
		{"not: [{user: a}, {api_key: k}]", client("", "b", "k"), false},
	} {
		s := mustParse(t, oneRule("match: {"+c.match+"}"+limit))
		require.Equal(t, c.want, len(s.Match(&c.r, nil)) == 1, "%s: %v", c.match, c.r)
	}
	excluded := mustParse(t, oneRule("match: {not: {api_key: [sk-1, sk-2], ip: 10.0.0.1}}"+limit)).Excluded(&Request{Path: "/", APIKey: "sk-1", Client: netip.MustParseAddr("10.0.0.1")})
	require.Equal(t, "ip 10.0.0.1/32, api_key one of 2", excluded[0].By.String())

	var many strings.Builder // more rules than a request can meet, one for each user
	for i := range 2 * MaxMet {
		fmt.Fprintf(&many, "- {name: r%d, match: {user: u%[1]d}, key: user, limit: {rate: 1, per: 1s}}\n", i)
	}
	s := mustParse(t, "rules:\n"+many.String())
	require.Equal(t, []string{"r7"}, namesOf(s, client("", "u7", "")))
	require.Empty(t, namesOf(s, client("", "", "")))
}

func TestHostWildcardIncludesAllSubdomains(t *testing.T) {
	hosts := []string{"a.com", "b.a.com", "c.b.a.com", "*.a.com", "*.b.a.com", "*.com"}
	rapid.Check(t, func(t *rapid.T) {
		text, of := "rules:\n", make(map[string][]string)
		for i := range rapid.IntRange(1, 4).Draw(t, "rules") {
			name := fmt.Sprint("r", i)
			of[name] = rapid.SliceOfNDistinct(rapid.SampledFrom(hosts), 1, 3, rapid.ID).Draw(t, "hosts")
			text += fmt.Sprintf("- {name: %s, match: {host: ['%s']}, key: ip, limit: {rate: 1, per: 1s}}\n", name, strings.Join(of[name], "', '"))
		}
		host := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "com", "A", ""}), 1, 5).Draw(t, "host"), ".")
		s, err := Parse("rules.yaml", []byte(text))
		require.NoError(t, err)
		met := namesOf(s, Request{Path: "/", Host: host + ":443"})
		plain := strings.ToLower(strings.TrimSuffix(host, "."))
		for name, hosts := range of {
			want := slices.ContainsFunc(hosts, func(h string) bool {
				below, wild := strings.CutPrefix(h, "*")
				return h == plain || wild && strings.HasSuffix(plain, below) && plain != below
			})
			require.Equal(t, want, slices.Contains(met, name), "%s: %v", host, hosts)
		}
		require.Equal(t, slices.Compact(slices.Clone(met)), met)
	})
	s := mustParse(t, oneRule("match: {host: '*.example.com', not: {host: [www.example.com, '*.dev.example.com']}}\nkey: ip\nlimit: {rate: 1, per: 1s}"))
	for host, want := range map[string]int{"example.com": 0, "api.example.com": 1, "www.example.com": 0, "x.dev.example.com": 0, "dev.example.com": 1} {
		require.Len(t, s.Match(&Request{Path: "/", Host: host}, nil), want, host)
	}
	r, dst := Request{Path: "/", Host: "api.example.com"}, make([]*Rule, 0, 4)
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Match(&r, dst) }))
	hostile := Request{Path: "/", Host: strings.Repeat(".", 1<<20)}
	require.Empty(t, s.Match(&hostile, nil))
}
