package rules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const denyFile = `
exempt: {ip: 10.0.0.0/8, user: [root, mallory]}
deny:
- {ip: [192.0.2.0/24, "2001:db8::/32", 10.1.2.3], reason: scanner}
- {user: mallory, api_key: {exact: "k|1"}, key: {api: "ada|x", login: [192.0.2.9, 198.51.100.7]}}
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
		"named": {"mallory": "user", "k|1": "", "ada": "", `\-192.0.2.1`: ""},
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
			want := -1 // length of the smallest network
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

// denyingFile returns a file that denies n networks of all lengths.
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
	s := staticBook(t, startNode(t), denyingFile(500)).Current()
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
