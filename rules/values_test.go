package rules

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyHasNumbersOfItsValue(t *testing.T) {
	limit := func(values string) string {
		return "limit: {rate: 100, per: 1h, tiers: {paid: {rate: 200}}, values: {" + values + "}}"
	}
	for _, c := range []struct {
		name, key, values string
		request           Request
		want              int64
	}{
		{"of a user", "user", "alice: {rate: 7}", Request{User: "alice"}, 7},
		{"of a user in a tier", "user", "alice: {rate: 7}", Request{User: "alice", Tier: "paid"}, 7},
		{"of another user", "user", "alice: {rate: 7}", Request{User: "bob"}, 100},
		{"of another user in a tier", "user", "alice: {rate: 7}", Request{User: "bob", Tier: "paid"}, 200},
		{"of a name with a separator", "user", "'a|b': {rate: 7}", Request{User: "a|b"}, 7},
		{"of a long name", "user", strings.Repeat("a", 300) + ": {rate: 7}", Request{User: strings.Repeat("a", 300)}, 7},
		{"of an API key", "api_key", "k: {rate: 7}", Request{APIKey: "k"}, 7},
		{"of an address", "ip", "192.0.2.1: {rate: 7}", Request{Client: netip.MustParseAddr("::ffff:192.0.2.1")}, 7},
		{"of a network", "ip", "192.0.0.0/16: {rate: 8}, 192.0.2.0/24: {rate: 7}", Request{Client: netip.MustParseAddr("192.0.2.1")}, 7},
		{"of a wider network", "ip", "192.0.0.0/16: {rate: 8}, 192.0.2.0/24: {rate: 7}", Request{Client: netip.MustParseAddr("192.0.3.1")}, 8},
		{"of an IPv6 network", "ip", "'2001:db8::/48': {rate: 7}", Request{Client: netip.MustParseAddr("2001:db8::1:2:3%eth0")}, 7},
		{"of no address", "ip", "0.0.0.0/0: {rate: 7}", Request{}, 100},
		{"of an address in place of a user", "user", "192.0.2.1: {rate: 7}", Request{Client: netip.MustParseAddr("192.0.2.1")}, 100},
		{"of the first part", "[user, header:P]", "alice: {rate: 7}", request("P", "1", "alice"), 7},
		{"of both parts", "[user, header:P]", "alice: {rate: 7}, alice|1: {rate: 8}", request("P", "1", "alice"), 8},
		{"of a first part with a separator", "[user, header:P]", `a\|1: {rate: 7}, a: {rate: 8}`, request("P", "1", "a|1"), 7},
		{"of a first part that ends with a backslash", "[user, header:P]", `a: {rate: 8}, a\\: {rate: 7}`, request("P", "1", `a\`), 7},
		{"of a network as first part", "[ip, user]", "192.0.2.0/24: {rate: 7}", Request{Client: netip.MustParseAddr("192.0.2.1"), User: "a"}, 7},
		{"of an address with another part", "[ip, user]", "192.0.2.0/24: {rate: 7}, '192.0.2.1|a': {rate: 8}", Request{Client: netip.MustParseAddr("192.0.2.1"), User: "a"}, 8},
	} {
		s := mustParse(t, "tiers: {paid: {}}\n"+oneRule("key: "+c.key+"\n"+limit(c.values)))
		key, _ := s.Rules()[0].Key(&c.request)
		require.Equal(t, c.want, s.Rules()[0].Limits[0].ForKey(c.request.Tier, key).Rate, c.name)
	}
}

func request(header, value, user string) Request {
	return Request{Header: map[string][]string{header: {value}}, User: user}
}

func TestOverrideReplacesValueAndKeepsCount(t *testing.T) {
	const text = "version: %d\n" + `rules: [{name: r, key: user, limit: {rate: 5, per: 1h, values: {alice: {rate: %d}, bob: {rate: %[2]d}}}, soft: {over: 100%%, for: 1m}}]`
	b, _, path := openText(t, fmt.Sprintf(text, 1, 9))
	count := func(key string) *Count {
		s := b.Current()
		return s.Count(&s.Rules()[0].Limits[0], "", key)
	}
	require.Same(t, count("alice"), count("bob"), "equal numbers share their Limiters")
	require.EqualValues(t, 9, count("alice").Soft.Limit().Rate)
	require.Contains(t, count("alice").Policy, "q=9")
	d, err := count("alice").Limiter.AllowN(t.Context(), "alice", 8)
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Remaining)

	replace(t, path, fmt.Sprintf(text, 2, 20))
	eventually(t, "the new value is in force", func() bool { return b.Current().Version() == 2 })
	d, err = count("alice").Limiter.Peek(t.Context(), "alice")
	require.NoError(t, err)
	require.EqualValues(t, 12, d.Remaining)
	require.NoError(t, b.Override("r", "alice", Override{Rate: 10}))
	d, err = count("alice").Limiter.Peek(t.Context(), "alice")
	require.NoError(t, err)
	require.EqualValues(t, 2, d.Remaining)
}

func TestValueErrorsHideAPIKeys(t *testing.T) {
	limit := func(values string) string { return "\nlimit: {rate: 1, per: 1h, values: {" + values + "}}" }
	many := strings.Join(numberedNames("k", maxValues+1), ": {rate: 1}, ") + ": {rate: 1}"
	for _, c := range []struct{ key, values, want string }{
		{"user", "", `rules.yaml:4:37: values is empty: remove it, or name a key`},
		{"global", "a: {rate: 1}", `rules.yaml:4:37: values in a rule with key global: remove values, because such a rule has a single count`},
		{"user", "'a*': {rate: 1}", `rules.yaml:4:38: value "a*" has a *: name whole keys; other keys have the numbers of the limit`},
		{"user", "'': {rate: 1}", `rules.yaml:4:38: value "" is empty: name a key`},
		{"user", "10.0.0.0/8: {rate: 1}", `rules.yaml:4:38: value "10.0.0.0/8" is a network, and the key is user: networks need a key that begins with ip`},
		{"ip", "alice: {rate: 1}", `rules.yaml:4:38: value "alice" is no address or network: write one, like 192.0.2.1 or 10.0.0.0/8`},
		{"ip", "'10.1.*': {rate: 1}", `rules.yaml:4:38: value "10.1.*" has a wildcard: write 10.1.0.0/16`},
		{"ip", "'2001:db8::1': {rate: 1}", `rules.yaml:4:38: value "2001:db8::1" is longer than ipv6_prefix: write 2001:db8::/64`},
		{"ip", "10.0.0.0/8: {rate: 1}, 10.1.0.0/8: {rate: 1}", `rules.yaml:4:61: value "10.1.0.0/8" is named twice: remove one (the first is on line 4)`},
		{"[ip, user]", "'2001:db8::/48|a': {rate: 1}", `rules.yaml:4:38: value "2001:db8::/48|a" has further parts: its first part needs the form of keys, 2001:db8::/64`},
		{"[user, ip]", "'|b': {rate: 1}", `rules.yaml:4:38: value "|b" is empty: name a key`},
		{"[user, ip]", "a|b|c: {rate: 1}", `rules.yaml:4:38: value "a|b|c" has 3 parts, and the key is user|ip: write \| for the character`},
		{"usr", "a: {rate: 1}", `rules.yaml:3:8: unknown key "usr": did you mean "user"?`},
		{"user", "a: {rate: 0}", `rules.yaml:4:48: rate is 0: use 1 to 1000000000000`},
		{"user", "a: {burst: 2, rate: 1}", `rules.yaml:4:49: burst with sliding_window: remove burst, because only token_bucket and leaky_bucket have a burst`},
		{"user", many, fmt.Sprintf(`rules.yaml:4:37: all rules together have %d values: use at most 10000, and tiers or overrides for further keys`, maxValues+1)},

		{"api_key", "sk-1: {rate: 1}, sk-1: {rate: 2}", `rules.yaml:4:55: field is set twice: remove one (the first is on line 4)`},
		{"api_key", "sk-1: 5", "rules.yaml:4:44: this field is a number: use a map\nrules.yaml:4:44: rate is missing"},
		{"api_key", "api_key: {sk-1: {rate: 2}}", "rules.yaml:4:47: rate is missing\nrules.yaml:4:48: unknown field: known are rate, per, burst, keep"},
		{"api_key", "'sk-*': {rate: 1}", `rules.yaml:4:38: this value has a *: name whole keys; other keys have the numbers of the limit`},
		{"[user, api_key]", "'a|sk-1|b': {rate: 1}", `rules.yaml:4:38: this value has 3 parts, and the key is user|api_key: write \| for the character`},
		{"header:Authorization", "'sk-1': {}", "rules.yaml:4:46: rate is missing"},
	} {
		_, err := Parse("rules.yaml", []byte(oneRule("key: "+c.key+limit(c.values))))
		require.EqualError(t, err, c.want, c.values[:min(len(c.values), 40)])
		require.NotContains(t, err.Error(), "sk-")
	}
}

// manyValues returns a file of 1,000 rules with 10,000 values in all, a fifth of them networks.
func manyValues(version int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: %d\nrules:\n", version)
	for i := range 1000 {
		key := []string{"user", "api_key", "[user, header:P]", "user", "ip"}[i%5]
		fmt.Fprintf(&b, "- {name: r%d, match: {path: '/v%d/{id}/'}, key: %s, limit: {rate: 100, per: 1h, values: {", i, i, key)
		for v := range 10 {
			if key == "ip" {
				fmt.Fprintf(&b, "10.%d.%d.0/%d: {rate: %d}, ", i%256, 16*v, 20+v%5, 500+v)
			} else {
				fmt.Fprintf(&b, "user%d-%d: {rate: %d}, ", i, v, 500+v)
			}
		}
		b.WriteString("}}}\n")
	}
	return b.String()
}

// BenchmarkValues measures the cost of 10,000 values in 1,000 rules: the time to match a request and to
// find its key and numbers (match), the memory, and the time of a reload:
//
//	go test -run '^$' -bench Values ./rules
func BenchmarkValues(b *testing.B) {
	n := startNode(b)
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	book := staticBook(b, n, manyValues(1))
	memory := heap() - before
	requests := make([]Request, 1000)
	for i := range requests {
		requests[i] = Request{Method: "GET", Path: fmt.Sprintf("/v%d/7/", i), User: fmt.Sprintf("user%d-%d", i, i%10), APIKey: fmt.Sprintf("user%d-%d", i, i%10), Client: netip.AddrFrom4([4]byte{10, byte(i), byte(i % 160), 7})}
	}
	b.Run("match", func(b *testing.B) {
		b.ReportAllocs()
		b.ReportMetric(memory/(1<<20), "MiB")
		var met []*Rule
		var key []byte
		for i := range b.N {
			r := &requests[i%1000]
			s := book.Current()
			met = s.Match(r, met[:0])
			key, _ = met[0].AppendKey(key[:0], r)
			if c := s.Count(&met[0].Limits[0], "", string(key)); c.Limiter.Limit().Rate < 500 && i%5 != 4 {
				b.Fatalf("%s has no value", key)
			}
		}
	})
	b.Run("reload", func(b *testing.B) {
		text := [][]byte{[]byte(manyValues(1)), []byte(manyValues(2))}
		for i := range b.N {
			set, err := Parse("rules.yaml", text[i%2])
			require.NoError(b, err)
			_, err = newSnapshot(n, set)
			require.NoError(b, err)
		}
	})
}
