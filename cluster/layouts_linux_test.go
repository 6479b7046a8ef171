package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testenv"
)

// bindVariable makes this test binary a member that listens at the given address. It prints the host
// of the address that it advertises, or why there is none.
const bindVariable = "WEIR_TEST_LAYOUT_BIND"

func init() {
	if bind := os.Getenv(bindVariable); bind != "" {
		var log lines
		g := NewGossip(Config{
			Name: fmt.Sprintf("m-%d", os.Getpid()), Bind: bind,
			Secrets: [][]byte{secretOf(1)}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		fmt.Println(advertisedHost(g, &log))
		os.Exit(0)
	}
}

func advertisedHost(g Cluster, log *lines) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.Start(ctx, &testHandler{}); err != nil {
		return err.Error()
	}
	v := g.View()
	addr := v.Members[v.Self].Addr
	if log.countLines("level=INFO", "Advertise is not set", addr) != 1 {
		return "the log has no line with " + addr
	}
	host, _, _ := net.SplitHostPort(addr)
	return host
}

// layout is the network of a machine: commands of iproute2, without the namespace.
type layout struct {
	about string
	bind  string // ":0" if empty
	links string
	want  string // the advertised host; empty if Start fails
	names string // words in the error of Start, separated by spaces
	not   string // a word that the error does not contain
}

// nicCommands returns the commands that add an interface with the given name and addresses. The
// interface has a carrier, because the other end of the pair is up.
func nicCommands(name string, addresses ...string) string {
	s := fmt.Sprintf("link add %[1]s type veth peer name p%[1]s\nlink set p%[1]s up\nlink set %[1]s up\n", name)
	for _, a := range addresses {
		s += "addr add " + a + " dev " + name
		if strings.Contains(a, ":") {
			s += " nodad" // without duplicate address detection, the address can be used at once
		}
		s += "\n"
	}
	return s
}

const docker0 = "link add docker0 type bridge\nlink set docker0 up\naddr add 172.17.0.1/16 dev docker0\n"

var layouts = []layout{
	{about: "one card, and Docker", links: docker0 + nicCommands("eth0", "192.168.7.3/24") + "route add default via 192.168.7.1", want: "192.168.7.3"},
	{about: "two cards that lead out, one at a higher cost", links: nicCommands("eth0", "10.1.2.3/24") + nicCommands("eth1", "10.9.9.4/24") +
		"route add default via 10.1.2.1 metric 200\nroute add default via 10.9.9.1 metric 100", want: "10.9.9.4"},
	{about: "a shared address, as pods may have", links: nicCommands("eth0", "100.64.0.9/32") + "route add 169.254.1.1 dev eth0\nroute add default via 169.254.1.1 dev eth0", want: "100.64.0.9"},
	{about: "IPv6 alone, local, as pods may have", links: nicCommands("eth0", "fd00:10:244::9/64") + "route add default via fe80::1 dev eth0", want: "fd00:10:244::9"},
	{about: "IPv4 and IPv6", links: nicCommands("eth0", "10.1.2.3/24", "2600:1:2::9/64") + "route add default via 10.1.2.1\nroute add default via 2600:1:2::1", want: "10.1.2.3"},
	{about: "IPv4 and IPv6, Bind to all of IPv6", bind: "[::]:0", links: nicCommands("eth0", "10.1.2.3/24", "2600:1:2::9/64") +
		"route add default via 10.1.2.1\nroute add default via 2600:1:2::1", want: "2600:1:2::9"},
	{about: "an address of the loopback by which routers know the machine", links: nicCommands("eth0") + nicCommands("eth1") + "addr add 10.255.0.7/32 dev lo\n" +
		"route add default src 10.255.0.7 nexthop via inet6 fe80::1 dev eth0 nexthop via inet6 fe80::2 dev eth1", want: "10.255.0.7"},
	{about: "a card, Docker and no default route", links: docker0 + nicCommands("eth0", "10.1.2.3/24", "fd00::9/64"), names: "10.1.2.3 (eth0) 172.17.0.1 (docker0) fd00::9 (eth0) Advertise"},
	{about: "two cards that lead out at one cost, in turn", links: docker0 + nicCommands("eth0", "10.1.2.3/24") + nicCommands("eth1", "10.9.9.4/24") +
		"route add default nexthop via 10.1.2.1 nexthop via 10.9.9.1", names: "10.1.2.3 (eth0) 10.9.9.4 (eth1) Advertise", not: "172.17.0.1"},
	{about: "two cards that lead out at one cost, the first at first", links: docker0 + nicCommands("eth0", "10.1.2.3/24") + nicCommands("eth1", "10.9.9.4/24") +
		"route append default via 10.1.2.1\nroute append default via 10.9.9.1", names: "10.1.2.3 (eth0) 10.9.9.4 (eth1) Advertise", not: "172.17.0.1"},
	{about: "two cards that lead out over IPv6 at one cost", links: nicCommands("eth0", "2600:1:2::9/64") + nicCommands("eth1", "2600:7:7::9/64") +
		"route append default via 2600:1:2::1\nroute append default via 2600:7:7::1", names: "2600:1:2::9 (eth0) 2600:7:7::9 (eth1) Advertise"},
	{about: "a route for each half of the addresses, over another card", links: nicCommands("eth0", "10.1.2.3/24") + nicCommands("tun0", "10.8.0.6/24") +
		"route add default via 10.1.2.1\nroute add 0.0.0.0/1 via 10.8.0.1\nroute add 128.0.0.0/1 via 10.8.0.1", want: "10.8.0.6"},
	{about: "only a link-local address", links: nicCommands("eth0", "169.254.7.7/16"), names: "no address Advertise", not: "169.254.7.7"},
}

// runIP runs commands of iproute2, one on each line. If ns is not empty, they run in the namespace ns. It
// skips the test if the kernel does not support the commands.
func runIP(t *testing.T, ip, ns, commands string) {
	args := []string{"-batch", "-"} // one process
	if ns != "" {
		args, commands = append([]string{"-n", ns}, args...), "link set lo up\n"+commands
	}
	c := exec.Command(ip, args...)
	c.Stdin = strings.NewReader(commands)
	if out, err := c.CombinedOutput(); err != nil {
		t.Skipf("this machine cannot make that network: ip: %v %s:\n%s", err, out, commands)
	}
}

func TestNetworkLayoutDeterminesAdvertisedAddress(t *testing.T) {
	ip, err := exec.LookPath("ip")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root and the ip command (iproute2)")
	}
	for i, l := range layouts {
		t.Run(l.about, func(t *testing.T) {
			if i%3 != 0 {
				testenv.SkipUnlessFull(t, "every third of these layouts")
			}
			t.Parallel()
			ns := fmt.Sprintf("weir%08x", rand.Uint32())
			runIP(t, ip, "", "netns add "+ns)
			t.Cleanup(func() { exec.Command(ip, "netns", "del", ns).Run() })
			runIP(t, ip, ns, l.links)
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
