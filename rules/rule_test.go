package rules

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir"
)

func TestKeyIsWrittenFromItsParts(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:1:2:3:4:5:6")
	for _, c := range []struct {
		about, key string
		r          Request
		want       string
	}{
		{"an address", "key: ip", Request{Client: v4}, "192.0.2.1"},
		{"an IPv4 address within IPv6", "key: ip", Request{Client: netip.MustParseAddr("::ffff:192.0.2.1")}, "192.0.2.1"},
		{"an IPv6 network", "key: ip", Request{Client: v6}, "2001:db8:1:2::/64"},
		{"an IPv6 network, whatever the zone", "key: ip", Request{Client: netip.MustParseAddr("fe80::1%eth0")}, "fe80::/64"},
		{"an unknown address", "key: ip", Request{}, `\-`},
		{"one for all", "key: global", Request{Client: v4, User: "a"}, ""},
		{"a user", "key: user", Request{Client: v4, User: "alice"}, "alice"},
		{"an API key", "key: api_key", Request{APIKey: "k1"}, "k1"},
		{"a header", "key: 'header:x-tenant'", Request{Header: http.Header{"X-Tenant": {"acme"}}}, "acme"},
		{"a header of many lines is one list", "key: 'header:x-tenant'", Request{Header: http.Header{"X-Tenant": {"a", "b"}}}, "a,b"},
		{"a combination", "key: [user, ip]", Request{Client: v4, User: "alice"}, "alice|192.0.2.1"},
		{"a combination, in its order", "key: [ip, 'header:X-A', user]", Request{Client: v4, User: "alice", Header: http.Header{"X-A": {"1"}}}, "192.0.2.1|1|alice"},
		{"separators in a part", "key: [user, api_key]", Request{User: `a|b\`, APIKey: "|"}, `a\|b\\|\|`},
		{"no user: the address", "key: user", Request{Client: v4}, `\-192.0.2.1`},
		{"a user with the sign of an address", "key: user", Request{User: `\-192.0.2.1`}, `\\-192.0.2.1`},
		{"no user: the rule does not apply", "key: user\nmissing_key: skip", Request{Client: v4}, "-"},
		{"no API key: the rule does not apply, whatever else there is", "key: [user, api_key]\nmissing_key: skip", Request{User: "a"}, "-"},
		{"no user: one count for all such", "key: [user, ip]\nmissing_key: shared", Request{Client: v4}, `\-|192.0.2.1`},
		{"a part that is as long as may be", "key: user", Request{User: strings.Repeat("a", 200)}, strings.Repeat("a", 200)},
		{"a part that is too long once it is written", "key: user", Request{User: strings.Repeat("|", 101)}, `\#` + strings.Repeat("?", 64)},
		{"a part that is too long", "key: user", Request{User: strings.Repeat("a", 201)}, `\#` + strings.Repeat("?", 64)},
	} {
		rule := mustParse(t, oneRule(c.key+"\nlimit: {rate: 1, per: 1s}")).Rules()[0]
		key, ok := rule.Key(&c.r)
		switch {
		case c.want == "-":
			require.False(t, ok, c.about)
			require.Empty(t, key, c.about)
		case strings.HasPrefix(c.want, `\#`):
			require.Regexp(t, `^\\#[0-9a-f]{64}$`, key, c.about)
		default:
			require.True(t, ok, c.about)
			require.Equal(t, c.want, key, c.about)
		}
		appended, _ := rule.AppendKey([]byte("x"), &c.r)
		require.Equal(t, "x"+key, string(appended), c.about)
	}
}

func TestIPv6KeysUsePrefixOfFile(t *testing.T) {
	rule := mustParse(t, "ipv6_prefix: 56\n"+oneRule("key: ip\nlimit: {rate: 1, per: 1s}")).Rules()[0]
	key, _ := rule.Key(&Request{Client: netip.MustParseAddr("2001:db8:1:2ff::1")})
	require.Equal(t, "2001:db8:1:200::/56", key)
}

// Two requests have the same key only if all parts are equal.
func TestKeysDistinguishRequests(t *testing.T) {
	rule := mustParse(t, oneRule("key: [user, api_key, 'header:X-A']\nlimit: {rate: 1, per: 1s}")).Rules()[0]
	draw := func(t *rapid.T) Request {
		text := rapid.OneOf(
			rapid.StringOfN(rapid.SampledFrom([]rune(`|\-#a1`)), 0, 4, -1),
			rapid.Map(rapid.IntRange(195, 205), func(n int) string { return strings.Repeat("|", n/2) + strings.Repeat("a", n-n/2) }),
			rapid.Just(strings.Repeat(`\`, maxPartBytes)),
		)
		r := Request{User: text.Draw(t, "user"), APIKey: text.Draw(t, "API key"), Header: http.Header{"X-A": {text.Draw(t, "header")}}}
		r.Client = rapid.SampledFrom([]netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("2::")}).Draw(t, "client")
		return r
	}
	parts := func(r Request) [4]string {
		p := [4]string{r.User, r.APIKey, r.Header["X-A"][0]}
		if p[0] == "" || p[1] == "" || p[2] == "" {
			p[3] = r.Client.String()
		}
		return p
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t), draw(t)
		x, _ := rule.Key(&a)
		y, _ := rule.Key(&b)
		require.Equal(t, parts(a) == parts(b), x == y, "%q %q", x, y)
		require.LessOrEqual(t, len(x), maxKeyBytes)
	})
}

func TestCostIsReadFromRequest(t *testing.T) {
	header := func(lines ...string) Request { return Request{Header: http.Header{"X-Cost": lines}} }
	for _, c := range []struct {
		about, cost string
		r           Request
		want        int64
	}{
		{"one, unless the rule says", "shadow: false", Request{}, 1},
		{"a number", "cost: 5", Request{}, 5},
		{"nothing", "cost: 0", Request{}, 0},
		{"a header", "cost: header:X-Cost", header("7"), 7},
		{"a header with spaces", "cost: header:x-cost", header(" 7 "), 7},
		{"a header of nothing", "cost: header:X-Cost", header("0"), 0},
		{"no header", "cost: header:X-Cost", Request{}, 1},
		{"no header, with a default", "cost: {from: header:X-Cost, default: 9}", Request{}, 9},
		{"a header twice", "cost: {from: header:X-Cost, default: 9}", header("0", "0"), 9},
		{"a header below nothing", "cost: {from: header:X-Cost, default: 9}", header("-5"), 9},
		{"a header with a sign", "cost: {from: header:X-Cost, default: 9}", header("+5"), 9},
		{"a header that is no number", "cost: {from: header:X-Cost, default: 9}", header("1e3"), 9},
		{"a header that is empty", "cost: {from: header:X-Cost, default: 9}", header(""), 9},
		{"a header beyond all numbers", "cost: header:X-Cost", header("99999999999999999999"), 1<<63 - 1},
		{"a length", "cost: content_length", Request{Length: 100}, 100},
		{"a length in units, rounded up", "cost: {from: content_length, unit: 1024}", Request{Length: 1025}, 2},
		{"no length", "cost: {from: content_length, unit: 1024}", Request{Length: 0}, 0},
		{"an unknown length", "cost: {from: content_length, default: 77}", Request{Length: -1}, 77},
		{"the largest length", "cost: {from: content_length, unit: 2}", Request{Length: 1<<63 - 1}, 1 << 62},
	} {
		rule := mustParse(t, oneRule(c.cost+"\nkey: ip\nlimit: {rate: 1, per: 1s}")).Rules()[0]
		require.Equal(t, c.want, rule.Units(&c.r), c.about)
	}
}

func TestTiersChangeOnlyNumbers(t *testing.T) {
	s := mustParse(t, `
version: 4
tiers: {free: {}, half: {multiply: 0.5}, paid: {multiply: 10}}
default_tier: half
rules:
- name: r
  key: user
  partition: fail_closed
  limits:
  - {rate: 100, per: 1h}
  - {name: b, algorithm: token_bucket, rate: 1, burst: 5, per: 1s, tiers: {paid: {rate: 7, per: 2s}}}
  - {rate: 3, calendar: month, zone: Europe/Berlin, tiers: {free: {rate: 1}}}
- {name: all, key: global, limit: {rate: 9, per: 1s}}
- {name: own, key: global, limit: {rate: 9, per: 1s, tiers: {paid: {rate: 99}}}}
- {name: address, key: [ip, host, path], limit: {rate: 9, per: 1s, tiers: {free: {rate: 8}}}}
- {name: asked, key: ip, multiply: true, limit: {rate: 9, per: 1s}}
- {name: plain, key: user, multiply: false, limit: {rate: 9, per: 1s}}
`)
	for name, want := range map[string]map[string]weir.Limit{
		"r/1": {
			"free": {Rate: 100, Per: time.Hour},
			"half": {Rate: 50, Per: time.Hour},
			"paid": {Rate: 1000, Per: time.Hour},
			"gold": {Rate: 50, Per: time.Hour},
			"":     {Rate: 50, Per: time.Hour},
		},
		"r/b": {
			"free": {Algorithm: weir.TokenBucket, Rate: 1, Burst: 5, Per: time.Second},
			"half": {Algorithm: weir.TokenBucket, Rate: 1, Burst: 2, Per: time.Second},
			"paid": {Algorithm: weir.TokenBucket, Rate: 7, Per: 2 * time.Second},
		},
		"r/3": {
			"free": {Algorithm: weir.FixedWindow, Rate: 1, Calendar: weir.Month, Zone: "Europe/Berlin"},
			"paid": {Algorithm: weir.FixedWindow, Rate: 30, Calendar: weir.Month, Zone: "Europe/Berlin"},
		},
		"all":     {"paid": {Rate: 9, Per: time.Second}},
		"address": {"paid": {Rate: 9, Per: time.Second}, "free": {Rate: 8, Per: time.Second}},
		"asked":   {"paid": {Rate: 90, Per: time.Second}},
		"plain":   {"paid": {Rate: 9, Per: time.Second}},
		"own":     {"paid": {Rate: 99, Per: time.Second}, "half": {Rate: 9, Per: time.Second}},
	} {
		l, r, ok := s.Limit(name)
		require.True(t, ok, name)
		require.Equal(t, strings.Split(name, "/")[0], r.Name)
		for tier, w := range want {
			w.Name, w.Version = name, 4
			if r.Name == "r" {
				w.Partition = weir.FailClosed
			}
			require.Equal(t, w, l.ForTier(tier), "%s in %q", name, tier)
		}
	}
	require.Equal(t, "half", s.Tier("gold"))
	require.Equal(t, []string{"free", "half", "paid"}, s.Tiers())
	require.Len(t, s.Warnings(), 1)
	require.EqualError(t, s.Warnings()[0], `rules.yaml:16:36: tiers multiply the limits of rule "asked", whose key is ip: a client of a tier has up to 10 times the attempts of its address`)
}

func TestLimitNamesContainRuleName(t *testing.T) {
	s := mustParse(t, `
rules:
- {name: a, key: ip, limit: {rate: 1, per: 1s}}
- {name: b, key: ip, limit: {name: x, rate: 1, per: 1s}}
- {name: c, key: ip, limits: [{rate: 1, per: 1s}]}
- {name: d, key: ip, limits: [{rate: 1, per: 1s}, {name: y, rate: 1, per: 1s}, {rate: 1, per: 1s}]}
`)
	var names []string
	for _, r := range s.Rules() {
		for _, l := range r.Limits {
			require.Equal(t, len(names), l.Index)
			names = append(names, l.Name)
		}
	}
	require.Equal(t, []string{"a", "b/x", "c", "d/1", "d/y", "d/3"}, names)
}

func TestOverrunIsSeparateWindow(t *testing.T) {
	s := mustParse(t, oneRule("key: ip\nsoft: {over: 20%, for: 10m}\nlimit: {rate: 100, per: 1h}"))
	l, r, _ := s.Limit("r")
	soft, ok := r.Soft.overrun(l.ForTier(""))
	require.True(t, ok)
	require.Equal(t, weir.Limit{Name: "r/soft", Algorithm: weir.FixedWindow, Rate: 20, Per: 10 * time.Minute}, soft)
	_, ok = Soft{}.overrun(l.ForTier(""))
	require.False(t, ok)
}

func TestScopeAppliesToLimitsAndOverrun(t *testing.T) {
	for scope, want := range map[string]weir.Scope{"": weir.Regional, "scope: regional\n": weir.Regional, "scope: global\n": weir.Global} {
		s := mustParse(t, oneRule(scope+"key: ip\nsoft: {over: 20%, for: 10m}\nlimits:\n- {name: a, rate: 100, per: 1h}\n- {name: b, rate: 5, per: 1s, algorithm: token_bucket}"))
		for _, l := range s.Rules()[0].Limits {
			limit := l.ForTier("")
			require.Equal(t, want, limit.Scope)
			require.NoError(t, limit.Validate())
			soft, ok := s.Rules()[0].Soft.overrun(limit)
			require.True(t, ok)
			require.Equal(t, want, soft.Scope)
			require.Equal(t, want == weir.Global, strings.HasSuffix(Describe(limit), ", global"))
		}
	}
}

func TestDescribeUsesWordsOfFile(t *testing.T) {
	s := mustParse(t, oneRule("key: ip\npartition: fair_share\nlimits:\n- {rate: 5, per: 1h}\n- {rate: 5, per: 90m, algorithm: leaky_bucket, burst: 7}\n- {rate: 1, calendar: week}\n- {rate: 1, per: 10s}"))
	var texts []string
	for _, l := range s.Rules()[0].Limits {
		texts = append(texts, Describe(l.ForTier("")))
	}
	require.Equal(t, []string{
		"5 per 1h, sliding_window, fair_share",
		"5 per 1h30m, burst 7, leaky_bucket, fair_share",
		"1 per calendar week of UTC, fixed_window, fair_share",
		"1 per 10s, sliding_window, fair_share",
	}, texts)
}

func TestNoLeasesAppliesToOverrun(t *testing.T) {
	for _, want := range []bool{false, true} {
		r := mustParse(t, oneRule(fmt.Sprintf("key: ip\nno_leases: %v\nsoft: {over: 20%%, for: 1m}\nlimit: {rate: 5, per: 1h}", want))).Rules()[0]
		limit := r.Limits[0].ForTier("")
		soft, ok := r.Soft.overrun(limit)
		require.True(t, ok)
		require.Equal(t, []bool{want, want}, []bool{limit.NoLeases, soft.NoLeases})
		require.Equal(t, want, strings.HasSuffix(Describe(limit), ", no_leases"))
	}
}

func TestCredentialsMakeSecretKeys(t *testing.T) {
	for key, want := range map[string]bool{
		"api_key": true, "[user, api_key]": true, "'header:Authorization'": true, "[ip, 'header:x-api-key']": true, "'header:Proxy-Authorization'": true,
		"'header:Cookie'": true, "'header:X-Auth-Token'": true, "'header:x-session-id'": true, "'header:client_secret'": true,
		"ip": false, "user": false, "global": false, "'header:X-Plan'": false, "'header:X-Forwarded-For'": false, "'header:User-Agent'": false,
	} {
		rule := mustParse(t, oneRule("key: "+key+"\nlimit: {rate: 10, per: 1s}\nsoft: {over: 50%, for: 1m}")).Rules()[0]
		limit := rule.Limits[0].ForTier("")
		require.Equal(t, want, limit.SecretKeys, key)
		over, ok := rule.Soft.overrun(limit)
		require.True(t, ok)
		require.Equal(t, want, over.SecretKeys, key)
	}
}
