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

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
)

// With bindVariable set, this test binary is a member that listens at that address. It prints the
// address that it advertises, or why it does not start. With joinVariable, which is "nobody" or an
// address to join, it also prints the address of the other member once both are connected, and
// runs until its standard input ends.
const (
	bindVariable      = "WEIR_TEST_LAYOUT_BIND"
	advertiseVariable = "WEIR_TEST_LAYOUT_ADVERTISE"
	joinVariable      = "WEIR_TEST_LAYOUT_JOIN"
)

func init() {
	if bind := os.Getenv(bindVariable); bind != "" {
		var log lines
		g := NewGossip(Config{
			Name: fmt.Sprintf("m-%d", os.Getpid()), Bind: bind, Advertise: os.Getenv(advertiseVariable), Join: joinAddresses(),
			Secrets: [][]byte{secretOf(1)}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		fmt.Println(advertisedHost(g, &log))
		if os.Getenv(joinVariable) != "" {
			fmt.Println(awaitMember(g))
			io.Copy(io.Discard, os.Stdin)
		}
		os.Exit(0)
	}
}

func joinAddresses() []string {
	if join := os.Getenv(joinVariable); join != "" && join != "nobody" {
		return []string{join}
	}
	return nil
}

func advertisedHost(g Cluster, log *lines) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.Start(ctx, &testHandler{}); err != nil {
		return err.Error()
	}
	v := g.View()
	addr := v.Members[v.Self].Addr
	if os.Getenv(advertiseVariable) == "" && log.countLines("level=INFO", "Advertise is not set", addr) != 1 {
		return "the log has no line with " + addr
	}
	host, _, _ := net.SplitHostPort(addr)
	return host
}

// awaitMember returns the address of the other member once both are connected to each other.
func awaitMember(g Cluster) string {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		v := g.View()
		if len(v.Members) == 2 && v.IsConnected(0, 1) && v.IsConnected(1, 0) {
			host, _, _ := net.SplitHostPort(v.Members[1-v.Self].Addr)
			return host
		}
	}
	return fmt.Sprintf("nobody was met: %+v", g.View().Members)
}

// layout is the network of a machine: commands of iproute2, without the namespace.
type layout struct {
	about string
	bind  string // ":0" if empty
	links string
	want  string // the address
	names string // or the words of the refusal, separated by spaces
	not   string // and a word that it does not contain
}

// nicCommands returns the commands for an interface with the given name and addresses, and a carrier.
func nicCommands(name string, addresses ...string) string {
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
	{about: "a card, Docker and no way out", links: docker0 + nicCommands("eth0", "10.1.2.3/24", "fd00::9/64"), names: "10.1.2.3 (eth0) 172.17.0.1 (docker0) fd00::9 (eth0) Advertise"},
	{about: "two cards that lead out at one cost, in turn", links: docker0 + nicCommands("eth0", "10.1.2.3/24") + nicCommands("eth1", "10.9.9.4/24") +
		"route add default nexthop via 10.1.2.1 nexthop via 10.9.9.1", names: "10.1.2.3 (eth0) 10.9.9.4 (eth1) Advertise", not: "172.17.0.1"},
	{about: "two cards that lead out at one cost, the first at first", links: docker0 + nicCommands("eth0", "10.1.2.3/24") + nicCommands("eth1", "10.9.9.4/24") +
		"route append default via 10.1.2.1\nroute append default via 10.9.9.1", names: "10.1.2.3 (eth0) 10.9.9.4 (eth1) Advertise", not: "172.17.0.1"},
	{about: "the same for IPv6", links: nicCommands("eth0", "2600:1:2::9/64") + nicCommands("eth1", "2600:7:7::9/64") +
		"route append default via 2600:1:2::1\nroute append default via 2600:7:7::1", names: "2600:1:2::9 (eth0) 2600:7:7::9 (eth1) Advertise"},
	{about: "a way out for each half, over two cards", links: nicCommands("eth0", "10.1.2.3/24") + nicCommands("tun0", "10.8.0.6/24") +
		"route add default via 10.1.2.1\nroute add 0.0.0.0/1 via 10.8.0.1\nroute add 128.0.0.0/1 via 10.8.0.1", want: "10.8.0.6"},
	{about: "an address that nobody gave", links: nicCommands("eth0", "169.254.7.7/16"), names: "no address Advertise", not: "169.254.7.7"},
}

// requireIP returns the path of ip, or skips the test.
func requireIP(t *testing.T) string {
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("making network namespaces needs the ip command (iproute2)")
	}
	return ip
}

// newNamespace creates a network namespace for the duration of the test.
func newNamespace(t *testing.T, ip string) string {
	ns := fmt.Sprintf("weir%08x", rand.Uint32())
	runIP(t, ip, "", "netns add "+ns)
	t.Cleanup(func() { exec.Command(ip, "netns", "del", ns).Run() })
	return ns
}

// runIP runs commands of iproute2, one on each line, in a namespace if it is not empty. It skips
// the test if the kernel does not support them.
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

func TestNetworkLayoutDeterminesAdvertise(t *testing.T) {
	ip := requireIP(t)
	for i, l := range layouts {
		t.Run(l.about, func(t *testing.T) {
			if i%3 != 0 {
				testenv.SkipUnlessFull(t, "every third of these layouts, and TestMembersConnectWithoutAddressInBind")
			}
			t.Parallel()
			ns := newNamespace(t, ip)
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

// Two machines on one wire find each other with only a port in Bind, and with a pod's value of
// $(POD_IP):7946 in Advertise.
func TestMembersConnectWithoutAddressInBind(t *testing.T) {
	ip := requireIP(t)
	for _, c := range []struct {
		about     string
		addresses [2]string // of their cards
		bits      string
		links     string // besides
		advertise bool
	}{
		{"Docker on both", [2]string{"10.1.2.1", "10.1.2.2"}, "/24", docker0, false},
		{"IPv6", [2]string{"2600:1:2::1", "2600:1:2::2"}, "/64", docker0, false},
		{"IPv6 without brackets in Advertise", [2]string{"fd00:10:244::1", "fd00:10:244::2"}, "/64", docker0, true},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			machines := [2]string{newNamespace(t, ip), newNamespace(t, ip)}
			runIP(t, ip, "", "link add eth0 netns "+machines[0]+" type veth peer name eth0 netns "+machines[1])
			for i, ns := range machines {
				nodad := ""
				if strings.Contains(c.addresses[i], ":") {
					nodad = " nodad"
				}
				runIP(t, ip, ns, "link set eth0 up\naddr add "+c.addresses[i]+c.bits+" dev eth0"+nodad+
					"\nroute add default via "+c.addresses[1-i]+"\n"+c.links)
			}
			said := [2]chan string{make(chan string, 2), make(chan string, 2)} // of each machine: its own address, and that of the other machine
			for i, ns := range machines {
				child := exec.Command(ip, "netns", "exec", ns, os.Args[0])
				join := "nobody"
				if i == 1 {
					join = net.JoinHostPort(c.addresses[0], "7946")
				}
				child.Env = []string{"PATH=/nowhere", bindVariable + "=:7946", joinVariable + "=" + join}
				if c.advertise {
					child.Env = append(child.Env, advertiseVariable+"="+c.addresses[i]+":7946")
				}
				node, err := lab.StartCommand(child, func(line []byte) { said[i] <- string(line) })
				require.NoError(t, err)
				t.Cleanup(func() { _ = node.Stop(time.Minute) })
				go func() {
					<-node.Ended()
					close(said[i])
				}()
				require.Equal(t, c.addresses[i], <-said[i])
			}
			for i := range machines {
				require.Equal(t, c.addresses[1-i], <-said[i])
			}
		})
	}
}
