package cluster

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAdvertisedAddressFollowsDefaultRoutes(t *testing.T) {
	at := func(ip, nic string) local { return local{netip.MustParseAddr(ip), nic} }
	lo, docker := at("127.0.0.1", "lo"), at("172.17.0.1", "docker0")
	four, six := at("10.1.2.3", "eth0"), at("2600::9", "eth0")
	for _, c := range []struct {
		about    string
		prefers6 bool
		sources4 []string
		sources6 []string
		locals   []local
		want     string
		says     string
	}{
		{"the source of the route", false, []string{"10.1.2.3"}, nil, []local{lo, docker, four}, "10.1.2.3", ""},
		{"a source that no interface has", false, []string{"10.255.0.7"}, nil, []local{lo, docker, four}, "10.255.0.7", ""},
		{"IPv4 preferred", false, []string{"10.1.2.3"}, []string{"2600::9"}, []local{lo, four, six}, "10.1.2.3", ""},
		{"IPv6 preferred", true, []string{"10.1.2.3"}, []string{"2600::9"}, []local{lo, four, six}, "2600::9", ""},
		{"IPv6 preferred, and only IPv4 has a default route", true, []string{"10.1.2.3"}, nil, []local{lo, four, six}, "10.1.2.3", ""},
		{"only IPv6 has a default route", false, nil, []string{"2600::9"}, []local{lo, docker, six}, "2600::9", ""},
		{"default routes over two addresses", false, []string{"10.1.2.3", "10.9.9.4"}, nil, []local{lo, four, at("10.9.9.4", "eth1")}, "", "10.1.2.3 (eth0), 10.9.9.4 (eth1)"},
		{"default routes over two addresses, one of no interface", false, []string{"10.9.9.4", "10.1.2.3"}, nil, []local{lo, four}, "", "10.1.2.3 (eth0), 10.9.9.4 (no interface)"},
		{"no default route and one address", false, nil, nil, []local{lo, four}, "10.1.2.3", ""},
		{"no default route and one address of each family", false, nil, nil, []local{lo, four, six}, "10.1.2.3", ""},
		{"no default route and one address of each family, IPv6 preferred", true, nil, nil, []local{lo, four, six}, "2600::9", ""},
		{"no default route and two addresses", false, nil, nil, []local{lo, docker, four}, "", "10.1.2.3 (eth0), 172.17.0.1 (docker0)"},
		{"no default route and two addresses of different families", false, nil, nil, []local{lo, docker, six}, "", "172.17.0.1 (docker0), 2600::9 (eth0)"},
		{"no dialable address", false, nil, nil, []local{lo, at("169.254.1.1", "eth0"), at("fe80::1", "eth0"), at("192.0.0.2", "clat4")}, "", "no address that others can dial"},
	} {
		got, err := chooseAddress(c.prefers6, func(is6 bool) (sources []netip.Addr) {
			for _, s := range map[bool][]string{false: c.sources4, true: c.sources6}[is6] {
				sources = append(sources, netip.MustParseAddr(s))
			}
			return sources
		}, c.locals)
		if c.says != "" {
			require.ErrorContains(t, err, c.says, c.about)
			continue
		}
		require.NoError(t, err, c.about)
		require.Equal(t, c.want, got.ip.String(), c.about)
	}
	var many []local
	for i := range byte(maxListed + 3) {
		many = append(many, local{netip.AddrFrom4([4]byte{10, 0, 0, i}), "eth0"})
	}
	_, err := chooseAddress(false, func(bool) []netip.Addr { return nil }, many)
	require.ErrorContains(t, err, "10.0.0.19 (eth0), 3 more")
}

// A pod's value of $(POD_IP):7946 in a manifest is an address and a port, whatever its family.
func TestBracketsAreOptionalBeforeThePortOfBind(t *testing.T) {
	for _, c := range []struct{ advertise, bind, want string }{
		{"10.1.2.3:7946", ":7946", "10.1.2.3:7946"},
		{"fd00:10:244::9:7946", ":7946", "[fd00:10:244::9]:7946"},
		{"2600:1:2:3:4:5:6:7:7946", "[::]:7946", "[2600:1:2:3:4:5:6:7]:7946"},
		{"fd00:10:244:::7946", "0.0.0.0:7946", "[fd00:10:244::]:7946"},
		{"::1:7946", "[::1]:7946", "[::1]:7946"},
		{"fe80::1%eth0:7946", ":7946", "[fe80::1%eth0]:7946"},
		{"[fd00::9]:7946", ":7946", "[fd00::9]:7946"},
		{"[fd00::9]:1", ":7946", "[fd00::9]:1"},
		{"fd00::9:7947", ":7946", "fd00::9:7947"}, // refused: it may be an address alone
		{"fd00::9:7946", ":0", "fd00::9:7946"},
		{"fd00::9:0", ":0", "fd00::9:0"},
		{"fd00::9", ":7946", "fd00::9"},
		{"a.example:7946", ":7946", "a.example:7946"},
		{"a:b:7946", ":7946", "a:b:7946"},
		{"", ":7946", ""},
	} {
		require.Equal(t, c.want, addBrackets(c.advertise, c.bind), "%s with Bind %s", c.advertise, c.bind)
	}
}

func TestAdvertisedNameGivesReachableAddress(t *testing.T) {
	both := []string{"10.1.2.3:7946", "[2600::9]:7946"}
	own := []string{"127.0.1.1:1", "10.0.0.5:1"} // the name of a machine may resolve to a loopback address
	for _, c := range []struct {
		bound, advertise string
		want             string // the reachable address; empty if there is none
		addrs            []string
	}{
		{"[::]:7946", "a.example:7946", "10.1.2.3:7946", both},
		{"10.1.2.3:7946", "a.example:7946", "10.1.2.3:7946", both},
		{"[2600::9]:7946", "a.example:7946", "[2600::9]:7946", both},
		{"[2600::9]:7946", "a.example:7946", "", both[:1]},
		{"10.1.2.3:7946", "a.example:7946", "", both[1:]},
		{"0.0.0.0:7946", "a.example:7946", "", both[1:]},
		{"[::]:7946", "a.example:7946", "[2600::9]:7946", both[1:]},
		{"127.0.0.1:7946", "a.example:7946", "", both},
		{"0.0.0.0:1", "127.0.0.1:1", "127.0.0.1:1", []string{"127.0.0.1:1"}},
		{"0.0.0.0:1", "me:1", "10.0.0.5:1", own},
		{"0.0.0.0:1", "me:1", "", own[:1]},
		{"127.0.0.1:1", "me:1", "127.0.1.1:1", own[:1]},
		{"[::]:1", "me:1", "[2001:db8::1]:1", []string{"[2001:db8::1]:1", "10.0.0.5:1"}},
	} {
		got, err := firstReachable(c.advertise, c.addrs, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.bound)))
		if c.want == "" {
			require.Error(t, err, "%+v", c)
			continue
		}
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.want, got.String(), "%+v", c)
	}
}

func TestAdvertiseMustMatchFamilyOfBind(t *testing.T) {
	for _, c := range []struct {
		bind, advertise string
		refused         bool
	}{
		{"10.1.2.3:7946", "10.1.2.4:7946", false},
		{"10.1.2.3:7946", "[::ffff:10.1.2.4]:7946", false},
		{"10.1.2.3:7946", "[2600::9]:7946", true},
		{"10.1.2.3:7946", "2600::9:7946", true},
		{"[2600::9]:7946", "10.1.2.3:7946", true},
		{"[::ffff:10.1.2.3]:7946", "[2600::9]:7946", true},
		{"127.0.0.1:7946", "[::1]:7946", true},
		{"[2600::9]:7946", "[2600::8]:7946", false},
		{"10.1.2.3:7946", "a.example:7946", false},
		{"a.example:7946", "[2600::9]:7946", false},
		{":7946", "[2600::9]:7946", false},
		{"0.0.0.0:7946", "[2600::9]:7946", false},
		{"[::]:7946", "10.1.2.3:7946", false},
	} {
		err := Config{Name: "a-1", Bind: c.bind, Advertise: c.advertise, Secrets: [][]byte{make([]byte, 16)}}.validate()
		if !c.refused {
			require.NoError(t, err, "%+v", c)
			continue
		}
		require.ErrorContains(t, err, "cluster: Advertise ", "%+v", c)
		require.ErrorContains(t, err, "Bind", "%+v", c)
		require.ErrorContains(t, err, "family", "%+v", c)
	}
}
