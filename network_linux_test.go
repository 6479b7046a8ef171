package weir

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lan is hosts on a switch of their own: network namespaces, joined by bridges
// in another. Hosts that are moved to another bridge are cut off from the rest,
// as when a switch loses its uplink: addresses and links stay up.
type lan struct {
	t      *testing.T
	prefix string
}

// newLAN needs root and iproute2. What it makes goes with the test.
func newLAN(t *testing.T, hosts int) *lan {
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("making network namespaces needs the ip command (iproute2)")
	}
	l := &lan{t, fmt.Sprintf("weir%d", os.Getpid())}
	if out, err := exec.Command("ip", "netns", "add", l.switches()).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %s", out)
	}
	t.Cleanup(func() { l.ip("netns", "del", l.switches()) })
	for _, bridge := range []string{"br0", "br1"} {
		l.ip("-n", l.switches(), "link", "add", bridge, "type", "bridge")
		l.ip("-n", l.switches(), "link", "set", bridge, "up")
	}
	for i := range hosts {
		port := fmt.Sprint("port", i)
		l.ip("netns", "add", l.host(i))
		t.Cleanup(func() { l.ip("netns", "del", l.host(i)) })
		l.ip("link", "add", "eth0", "netns", l.host(i), "type", "veth", "peer", "name", port, "netns", l.switches())
		l.ip("-n", l.host(i), "addr", "add", l.address(i)+"/24", "dev", "eth0")
		l.ip("-n", l.host(i), "link", "set", "eth0", "up")
		l.ip("-n", l.host(i), "link", "set", "lo", "up")
		l.ip("-n", l.switches(), "link", "set", port, "up")
		l.plug(i, "br0")
	}
	return l
}

func (l *lan) switches() string     { return l.prefix + "sw" }
func (l *lan) host(i int) string    { return fmt.Sprint(l.prefix, "h", i) }
func (l *lan) address(i int) string { return fmt.Sprint("192.0.2.", i+1) } // of TEST-NET-1
func (l *lan) plug(i int, bridge string) {
	l.ip("-n", l.switches(), "link", "set", fmt.Sprint("port", i), "master", bridge)
}

func (l *lan) ip(args ...string) {
	l.t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(l.t, err, "ip %s: %s", strings.Join(args, " "), out)
}

// sight is how a process on a host last said that each member stands.
type sight struct {
	mu   sync.Mutex
	line string
}

func (s *sight) said() string { s.mu.Lock(); defer s.mu.Unlock(); return s.line }

// run starts a node on a host, which joins all others.
func (l *lan) run(i, hosts int) *sight {
	var join []string
	for j := range hosts {
		join = append(join, l.address(j)+":7946")
	}
	child := exec.Command("ip", "netns", "exec", l.host(i), os.Args[0])
	child.Env = append(os.Environ(), joinVariable+"="+strings.Join(join, " "), bindVariable+"="+l.address(i)+":7946")
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	require.NoError(l.t, err)
	stdout, err := child.StdoutPipe()
	require.NoError(l.t, err)
	require.NoError(l.t, child.Start())
	seen := &sight{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			seen.mu.Lock()
			seen.line = lines.Text()
			seen.mu.Unlock()
		}
	}()
	l.t.Cleanup(func() {
		stdin.Close()
		<-read
		child.Wait()
	})
	return seen
}

// The real thing: processes, sockets and a switch that is cut in two.
func TestASplitOfARealNetworkHealsByItself(t *testing.T) {
	t.Parallel() // it does little but wait
	const hosts, split = 4, 20 * time.Second
	l := newLAN(t, hosts)
	var sights []*sight
	for i := range hosts {
		sights = append(sights, l.run(i, hosts))
	}
	// stand says whether every host sees what want says of each.
	stand := func(want func(from, of int) []MemberState) func() bool {
		return func() bool {
			for i, s := range sights {
				line := s.said()
				if strings.Count(line, "=") != hosts {
					return false
				}
				for j := range hosts {
					found := false
					for _, state := range want(i, j) {
						found = found || strings.Contains(line, fmt.Sprint(l.address(j), ":7946=", state))
					}
					if !found {
						return false
					}
				}
			}
			return true
		}
	}
	whole := stand(func(_, _ int) []MemberState { return []MemberState{Serving} })
	apart := stand(func(from, of int) []MemberState {
		if from/2 == of/2 {
			return []MemberState{Serving}
		}
		return []MemberState{Unheard, Dead}
	})
	await := func(what string, within time.Duration, done func() bool) {
		t.Helper()
		begun := time.Now()
		if !waitUntil(within, done) {
			for i, s := range sights {
				t.Log(l.address(i), s.said())
			}
			t.Fatalf("not within %v: %s", within, what)
		}
		t.Logf("%s after %v", what, time.Since(begun).Round(10*time.Millisecond))
	}
	await("they find each other", 20*time.Second, whole)
	cut := time.Now()
	l.plug(2, "br1")
	l.plug(3, "br1")
	await("each side knows that it is one", 5*time.Second, apart)
	time.Sleep(split - time.Since(cut))
	l.plug(2, "br0")
	l.plug(3, "br0")
	await("they hear each other and have one roster", 15*time.Second, whole)
}

func waitUntil(end time.Duration, done func() bool) bool {
	for begun := time.Now(); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > end {
			return false
		}
	}
	return true
}
