package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bindVariable has this test binary be a member that listens there, for a moment: it prints
// the address that it advertises, or why it does not start.
const bindVariable = "WEIR_TEST_LAYOUT_BIND"

func init() {
	if bind := os.Getenv(bindVariable); bind != "" {
		fmt.Println(advertised(bind))
		os.Exit(0)
	}
}

func advertised(bind string) string {
	g := NewGossip(Config{Name: "a-1", Bind: bind, Secrets: [][]byte{sized(1)}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	defer g.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.Start(ctx, &testHandler{}); err != nil {
		return err.Error()
	}
	v := g.View()
	host, _, _ := net.SplitHostPort(v.Members[v.Self].Addr)
	return host
}

// layout is a machine's network: commands of iproute2, without the namespace.
type layout struct {
	about string
	bind  string // ":0" if empty
	links string
	want  string // the address
	names string // or what the refusal names, by spaces
	not   string // and what it does not
}

// nic is a card of that name that has a carrier, and these addresses.
func nic(name string, addresses ...string) string {
	s := fmt.Sprintf("link add %[1]s type veth peer name p%[1]s\nlink set p%[1]s up\nlink set %[1]s up\n", name)
	for _, a := range addresses {
		s += "addr add " + a + " dev " + name
		if strings.Contains(a, ":") {
			s += " nodad" // it can be used at once
		}
		s += "\n"
	}
	return s
}

const docker0 = "link add docker0 type bridge\nlink set docker0 up\naddr add 172.17.0.1/16 dev docker0\n"

var layouts = []layout{
	{about: "one card", links: nic("eth0", "10.1.2.3/24") + "route add default via 10.1.2.1", want: "10.1.2.3"},
	{about: "one card, and Docker", links: docker0 + nic("eth0", "192.168.7.3/24") + "route add default via 192.168.7.1", want: "192.168.7.3"},
	{about: "two cards, the second of which leads out", links: nic("eth0", "10.1.2.3/24") + nic("eth1", "10.9.9.4/24") + "route add default via 10.9.9.1", want: "10.9.9.4"},
	{about: "two cards that lead out, one at a higher cost", links: nic("eth0", "10.1.2.3/24") + nic("eth1", "10.9.9.4/24") +
		"route add default via 10.1.2.1 metric 200\nroute add default via 10.9.9.1 metric 100", want: "10.9.9.4"},
	{about: "a public address, and Docker", links: docker0 + nic("eth0", "5.6.7.8/24") + "route add default via 5.6.7.1", want: "5.6.7.8"},
	{about: "an address of 240/4, as pods may have", links: nic("eth0", "240.4.0.9/24") + "route add default via 240.4.0.1", want: "240.4.0.9"},
	{about: "a shared address, as pods may have", links: nic("eth0", "100.64.0.9/32") + "route add 169.254.1.1 dev eth0\nroute add default via 169.254.1.1 dev eth0", want: "100.64.0.9"},
	{about: "IPv6 alone, global", links: nic("eth0", "2600:1:2::9/64") + "-6 route add default via 2600:1:2::1", want: "2600:1:2::9"},
	{about: "IPv6 alone, local, as pods may have", links: nic("eth0", "fd00:10:244::9/64") + "-6 route add default via fe80::1 dev eth0", want: "fd00:10:244::9"},
	{about: "IPv6 alone, and Docker", links: docker0 + nic("eth0", "2600:1:2::9/64") + "-6 route add default via 2600:1:2::1", want: "2600:1:2::9"},
	{about: "IPv4 and IPv6", links: nic("eth0", "10.1.2.3/24", "2600:1:2::9/64") + "route add default via 10.1.2.1\n-6 route add default via 2600:1:2::1", want: "10.1.2.3"},
	{about: "IPv4 and IPv6, Bind to all of IPv6", bind: "[::]:0", links: nic("eth0", "10.1.2.3/24", "2600:1:2::9/64") +
		"route add default via 10.1.2.1\n-6 route add default via 2600:1:2::1", want: "2600:1:2::9"},
	{about: "IPv4 and IPv6, Bind to all of IPv4", bind: "0.0.0.0:0", links: nic("eth0", "2600:1:2::9/64", "10.1.2.3/24") +
		"route add default via 10.1.2.1\n-6 route add default via 2600:1:2::1", want: "10.1.2.3"},
	{about: "an address of the loopback by which routers know the machine", links: nic("eth0") + nic("eth1") + "addr add 10.255.0.7/32 dev lo\n" +
		"route add default src 10.255.0.7 nexthop via inet6 fe80::1 dev eth0 nexthop via inet6 fe80::2 dev eth1", want: "10.255.0.7"},
	{about: "several addresses of one card", links: nic("eth0", "10.1.2.3/24", "10.1.2.200/24") + "route add default via 10.1.2.1", want: "10.1.2.3"},
	{about: "one card and no way out", links: nic("eth0", "10.1.2.3/24"), want: "10.1.2.3"},
	{about: "two cards and no way out", links: nic("eth0", "10.1.2.3/24") + nic("eth1", "10.9.9.4/24"), names: "10.1.2.3 (eth0) 10.9.9.4 (eth1) Advertise"},
	{about: "a card, Docker and no way out", links: docker0 + nic("eth0", "10.1.2.3/24", "fd00::9/64"), names: "10.1.2.3 (eth0) 172.17.0.1 (docker0) fd00::9 (eth0) Advertise"},
	{about: "two addresses of one card and no way out", links: nic("eth0", "10.1.2.3/24", "10.9.9.4/24"), names: "10.1.2.3 (eth0) 10.9.9.4 (eth0) Advertise"},
	{about: "two cards that lead out at one cost, in turn", links: docker0 + nic("eth0", "10.1.2.3/24") + nic("eth1", "10.9.9.4/24") +
		"route add default nexthop via 10.1.2.1 nexthop via 10.9.9.1", names: "10.1.2.3 (eth0) 10.9.9.4 (eth1) Advertise", not: "172.17.0.1"},
	{about: "two cards that lead out at one cost, the first at first", links: docker0 + nic("eth0", "10.1.2.3/24") + nic("eth1", "10.9.9.4/24") +
		"route append default via 10.1.2.1\nroute append default via 10.9.9.1", names: "10.1.2.3 (eth0) 10.9.9.4 (eth1) Advertise", not: "172.17.0.1"},
	{about: "the same for IPv6", links: nic("eth0", "2600:1:2::9/64") + nic("eth1", "2600:7:7::9/64") +
		"-6 route append default via 2600:1:2::1\n-6 route append default via 2600:7:7::1", names: "2600:1:2::9 (eth0) 2600:7:7::9 (eth1) Advertise"},
	{about: "a way out for each half, over two cards", links: nic("eth0", "10.1.2.3/24") + nic("tun0", "10.8.0.6/24") +
		"route add default via 10.1.2.1\nroute add 0.0.0.0/1 via 10.8.0.1\nroute add 128.0.0.0/1 via 10.8.0.1", want: "10.8.0.6"},
	{about: "no network", names: "no address Advertise"},
	{about: "an address that nobody gave", links: nic("eth0", "169.254.7.7/16"), names: "no address Advertise", not: "169.254.7.7"},
}

func TestTheAdvertisedAddressOfALayoutIsRightOrTheCandidatesAreNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("making network namespaces needs the ip command (iproute2)")
	}
	require.GreaterOrEqual(t, len(layouts), 12)
	for _, l := range layouts {
		t.Run(l.about, func(t *testing.T) {
			t.Parallel()
			ns := fmt.Sprintf("weir%08x", rand.Uint32())
			run := func(args ...string) {
				out, err := exec.Command(ip, args...).CombinedOutput()
				if err != nil {
					t.Skipf("this machine cannot make that network: ip %s: %v %s", strings.Join(args, " "), err, out)
				}
			}
			run("netns", "add", ns)
			t.Cleanup(func() { exec.Command(ip, "netns", "del", ns).Run() })
			run("-n", ns, "link", "set", "lo", "up")
			for line := range strings.Lines(l.links) {
				if args := strings.Fields(line); len(args) > 0 {
					run(append([]string{"-n", ns}, args...)...)
				}
			}
			bind := l.bind
			if bind == "" {
				bind = ":0"
			}
			for _, path := range []string{os.Getenv("PATH"), "/nowhere"} {
				child := exec.Command(ip, "netns", "exec", ns, os.Args[0])
				child.Env = []string{"PATH=" + path, bindVariable + "=" + bind}
				out, err := child.CombinedOutput()
				require.NoError(t, err, "%s", out)
				got := strings.TrimSpace(string(out))
				if l.want != "" {
					require.Equal(t, l.want, got, "PATH=%s", path)
					continue
				}
				words := strings.NewReplacer(" (", "(").Replace(l.names)
				for _, name := range strings.Fields(words) {
					require.Contains(t, strings.ReplaceAll(got, " (", "("), name, "PATH=%s", path)
				}
				if l.not != "" {
					require.NotContains(t, got, l.not)
				}
			}
		})
	}
}
