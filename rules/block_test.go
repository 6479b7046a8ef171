package rules

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

const denyFile = `
exempt: {ip: 10.0.0.0/8, user: [root, mallory]}
deny:
- {ip: [192.0.2.0/24, "2001:db8::/32", 10.1.2.3], reason: scanner}
- {user: [mallory, {exact: '\-192.0.2.1'}, {exact: '\#1'}], api_key: {exact: "k|1"}, key: {api: "ada|x", login: [192.0.2.9, 198.51.100.7]}}
- {ip: [198.51.100.1, 203.0.113.0/24], user: soon, until: 2000-01-01T00:00:00Z}
- {ip: 203.0.113.7, until: "2999-01-01T00:00:00Z"}
rules:
- {name: api, key: [user, header:X-Part], limit: {rate: 10, per: 1s}}
- {name: login, key: ip, limit: {rate: 10, per: 1s}}
- {name: named, key: user, limit: {rate: 10, per: 1s}}
- {name: keyed, key: api_key, limit: {rate: 10, per: 1s}}
`

func TestBlockOfFileWinsOverExemption(t *testing.T) {
	s := mustParse(t, denyFile)
	for _, c := range []struct {
		about  string
		client string
		r      Request
		want   string
	}{
		{"a client that is nowhere", "198.51.100.9", Request{User: "ada", APIKey: "k"}, ""},
		{"no address", "", Request{}, ""},
		{"a network", "192.0.2.255", Request{}, "ip 192.0.2.0/24 scanner"},
		{"IPv4 within IPv6", "::ffff:192.0.2.1", Request{}, "ip 192.0.2.0/24 scanner"},
		{"a network of IPv6, whatever the zone", "2001:db8::1%eth0", Request{}, "ip 2001:db8::/32 scanner"},
		{"an address in an exempt network", "10.1.2.3", Request{}, "ip 10.1.2.3/32 scanner"},
		{"its neighbor", "10.1.2.4", Request{}, ""},
		{"an exempt user", "10.1.2.4", Request{User: "mallory"}, "user invalid Prefix "},
		{"an API key", "", Request{APIKey: "k|1"}, "api_key invalid Prefix "},
		{"an address whose block has ended", "198.51.100.1", Request{User: "soon"}, ""},
		{"an address in a network whose block has ended", "203.0.113.7", Request{}, "ip 203.0.113.7/32 "},
		{"the rest of that network", "203.0.113.8", Request{}, ""},
	} {
		c.r.Path = "/"
		if c.client != "" {
			c.r.Client = netip.MustParseAddr(c.client)
		}
		got := ""
		if b := s.Block(&c.r); b != nil {
			got = fmt.Sprint(b.Kind, " ", b.Network, " ", b.Reason)
		}
		require.Equal(t, c.want, got, c.about)
	}
	require.True(t, s.Exempt(&Request{User: "mallory"}))

	book := staticBook(t, startNode(t), denyFile).Current()
	for limit, keys := range map[string]map[string]string{
		"api":   {"ada|x": "key", "ada": "", "mallory|y": ""},
		"login": {"192.0.2.9": "key", "192.0.2.8": "ip", "2001:db8::/64": "ip", "198.51.100.7": "key", "198.51.100.8": "", `\-`: ""},
		"named": {"mallory": "user", "k|1": "", "ada": "", `\-192.0.2.1`: "", `\\-192.0.2.1`: "user", `\#1`: "", `\\#1`: "user"},
		"keyed": {`k\|1`: "api_key", "k|2": ""},
	} {
		l, _, _ := book.Limit(limit)
		for key, want := range keys {
			got := ""
			if b := book.KeyBlock(l, key); b != nil {
				require.Equal(t, limit, b.Rule)
				got = b.Kind.String()
			} else if b := book.ClientBlock(l, key); b != nil {
				got = b.Kind.String()
			}
			require.Equal(t, want, got, "%s of %s", key, limit)
		}
	}

	off := mustParse(t, "enabled: false"+denyFile)
	require.Nil(t, off.Block(&Request{User: "mallory"}))
}

// randomNetworks returns networks that often include each other, half of them with an end.
func randomNetworks(r *rand.Rand, n int, end time.Time) (all networks[*Block]) {
	for range n {
		var b [16]byte
		for i := range b {
			b[i] = byte(r.IntN(3)) << (6 * r.IntN(2))
		}
		a := netip.AddrFrom16(b)
		if r.IntN(2) == 0 {
			a = netip.AddrFrom4([4]byte(b[:4]))
		}
		p, _ := a.Prefix(r.IntN(a.BitLen() + 1))
		block := &Block{Network: p}
		if r.IntN(2) == 0 {
			block.Until = end.Add(time.Duration(r.IntN(3)-1) * time.Hour)
		}
		all = append(all, network[*Block]{prefix: p, value: block})
	}
	return all
}

func TestSortedNetworksFindSameClientsAsScan(t *testing.T) {
	r, now := rand.New(rand.NewPCG(1, 2)), time.Now()
	for range 300 {
		all := randomNetworks(r, r.IntN(40), now)
		sorted := sortBlocked(append(networks[*Block](nil), all...))
		for _, n := range append(randomNetworks(r, 40, now), all...) {
			want := -1 // prefix length of the smallest network with a Block in force
			for i := range all {
				if all[i].prefix.Contains(n.prefix.Addr()) && !all[i].value.isPast(now) {
					want = max(want, all[i].prefix.Bits())
				}
			}
			got := findBlocked(sorted, n.prefix.Addr(), func() time.Time { return now })
			require.Equal(t, want >= 0, got != nil, "%v in %v", n.prefix, all)
			require.True(t, got == nil || got.Network.Contains(n.prefix.Addr()) && got.Network.Bits() == want)
		}
	}
}

const blockable = `
exempt: {user: mallory}
deny: {ip: 203.0.113.9}
rules:
- {name: api, key: user, limits: [{rate: 10, per: 1s}, {rate: 10, per: 1h}]}
- {name: trial, key: user, shadow: true, limit: {rate: 10, per: 1s}}
`

func TestOperatorBlocksReachNodesWithoutKeyTexts(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	here, there := newSharedBook(t, &shared, &now, blockable), newSharedBook(t, &shared, &now, blockable)
	secret, end := "sk-0123456789", now.Add(time.Minute)
	keyed := func(limit string) func(*Snapshot) *Block {
		return func(s *Snapshot) *Block { l, _, _ := s.Limit(limit); return s.KeyBlock(l, "some|key") }
	}
	of := func(r Request) func(*Snapshot) *Block { return func(s *Snapshot) *Block { return s.Block(&r) } }
	for i, c := range []struct {
		text  string
		block Block
		name  string
		find  func(*Snapshot) *Block
	}{
		{"192.0.2.7/24", Block{Kind: BlockIP}, "ip/192.0.2.0/24", of(Request{Client: netip.MustParseAddr("192.0.2.9")})},
		{"2001:db8::1", Block{Kind: BlockIP}, "ip/2001:db8::1/128", of(Request{Client: netip.MustParseAddr("2001:db8::1")})},
		{"mallory", Block{Kind: BlockUser}, "user/", of(Request{User: "mallory"})},
		{secret, Block{Kind: BlockAPIKey, Control: Control{Until: end, By: "jo", Reason: "leaked"}}, "api_key/", of(Request{APIKey: secret})},
		{"some|key", Block{Kind: BlockKey, Rule: "api"}, "key/api/", keyed("api/2")},
	} {
		for _, b := range []*Book{here, there} {
			b.refresh()
			require.Nil(t, c.find(b.Current()), c.text)
		}
		set, err := here.Block(c.text, c.block)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(set.Name(), c.name), set.Name())
		there.refresh()
		for _, b := range []*Book{here, there} {
			require.Equal(t, set, *c.find(b.Current()), c.text)
			require.Equal(t, i+2, b.Stats().Blocks, "with that of the file")
		}
	}
	require.Nil(t, keyed("trial")(here.Current()))
	require.Nil(t, here.Current().Block(&Request{User: "ada", APIKey: "k", Client: netip.MustParseAddr("192.0.3.1")}))
	for name, v := range shared.values {
		for _, text := range []string{secret, "mallory", "some"} {
			require.NotContains(t, name+string(v.Value), text)
		}
	}
	require.Equal(t, []string{"ip/192.0.2.0/24", "ip/2001:db8::1/128"}, []string{there.Blocks()[0].Name(), there.Blocks()[1].Name()})

	require.NoError(t, here.Switch(AllRules, Switch{Mode: Off}))
	require.Nil(t, here.Current().Block(&Request{User: "mallory"}), "all rules are off")
	require.NoError(t, here.RestoreRule(AllRules))
	now = end
	require.Nil(t, here.Current().Block(&Request{APIKey: secret}), "it ends without a refresh")
	here.refresh()
	_, err := here.Unblock("mallory", Block{Kind: BlockUser})
	require.NoError(t, err)
	for _, b := range there.Blocks() {
		require.NoError(t, there.UnblockName(b.Name()))
	}
	here.refresh()
	require.Empty(t, here.Blocks())
	require.NoError(t, here.UnblockName("ip/10.0.0.0/8"), "without a block")
	require.NotNil(t, here.Current().Block(&Request{Client: netip.MustParseAddr("203.0.113.9")}), "the file's stays")
}

func TestInvalidBlocksAreRefused(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	b := newSharedBook(t, &shared, &now, blockable)
	for text, block := range map[string]Block{
		"10.0.0.0/33": {Kind: BlockIP}, "": {Kind: BlockUser}, strings.Repeat("k", 1025): {Kind: BlockAPIKey}, "k": {Kind: BlockKey, Rule: "none"},
		"l": {Kind: blockKinds}, "past": {Kind: BlockUser, Control: Control{Until: now}}, "long": {Kind: BlockUser, Control: Control{By: strings.Repeat("a", 129)}},
	} {
		_, err := b.Block(text, block)
		require.ErrorIs(t, err, weir.ErrInvalid)
		require.NotContains(t, err.Error(), "kkk")
	}
	for _, name := range []string{"", "ip/", "ip/192.0.2.1", "ip/192.0.2.1/24", "user/", "user/ab", "user/" + strings.Repeat("AB", 16), "user/" + strings.Repeat("ab", 17), "key/" + strings.Repeat("ab", 15), "ban/x"} {
		require.ErrorIs(t, b.UnblockName(name), weir.ErrInvalid, name)
		require.NoError(t, shared.Publish(blockPrefix+name, 0, []byte(`{"at":"2026-11-30T08:00:00Z"}`)))
	}
	require.NoError(t, shared.Publish("block/ip/192.0.2.0/24", 0, []byte(`{`)))
	require.NoError(t, shared.Publish("block/key/gone/"+strings.Repeat("ab", 16), 0, []byte(`{"at":"2026-11-30T08:00:00Z"}`)))
	b.refresh()
	require.Len(t, b.Blocks(), 1, "the rule need not be in the file any more")
	shared.fails = errors.New("no room")
	_, err := b.Block("u", Block{Kind: BlockUser})
	require.ErrorIs(t, err, shared.fails)
}

func TestOverrideWithRateZeroBlocksKey(t *testing.T) {
	var shared sharedValues
	now := time.Unix(1_800_000_000, 0).UTC()
	b := newSharedBook(t, &shared, &now, blockable)
	end := now.Add(time.Hour)
	require.NoError(t, b.Override("api/2", "u", Override{Control: Control{Until: end, Reason: "r"}}))
	s := b.Current()
	l, _, _ := s.Limit("api/2")
	require.Equal(t, time.Hour, s.KeyBlock(l, "u").TimeLeft(now))
	require.Nil(t, s.KeyBlock(l, "v"))
	require.EqualValues(t, 10, s.Limiter(l, "", "u").Limit().Rate)
	require.Zero(t, b.Overrides()[0].Rate)
	require.NoError(t, b.Restore("api/2", "u"))
	require.Nil(t, b.Current().KeyBlock(l, "u"))
}

// denyingFile returns a file that denies n networks of IPv4 and n of IPv6, of many lengths, and an address.
func denyingFile(n int) string {
	var b strings.Builder
	b.WriteString("deny: {ip: [")
	for i := range n {
		fmt.Fprintf(&b, "%d.%d.%d.0/%d, '2001:db8:%x::/%d', ", 1+i%200, i/200%250, i%7*30, 9+i%16, i, 33+i%90)
	}
	b.WriteString("192.0.2.1]}\nrules: []")
	return b.String()
}

func TestLookingForBlockDoesNotAllocate(t *testing.T) {
	b := staticBook(t, startNode(t), denyingFile(500))
	_, err := b.Block("mallory", Block{Kind: BlockUser})
	require.NoError(t, err)
	s := b.Current()
	denied, other := Request{Client: netip.MustParseAddr("192.0.2.1"), User: "u"}, Request{Client: netip.MustParseAddr("192.0.2.2"), User: "u"}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if s.Block(&denied) == nil || s.Block(&other) != nil {
			panic("wrong")
		}
	}))
}

func BenchmarkBlock(b *testing.B) {
	for _, n := range []int{0, 5000} {
		text := "rules: []"
		if n > 0 {
			text = denyingFile(n)
		}
		s := staticBook(b, startNode(b), text).Current()
		b.Run(fmt.Sprint(2*n, " networks"), func(b *testing.B) {
			r := Request{User: "u"}
			for i := 0; b.Loop(); i++ {
				r.Client = netip.AddrFrom4([4]byte{byte(i * 7), byte(i >> 3), byte(i), 1})
				s.Block(&r)
			}
		})
	}
}
