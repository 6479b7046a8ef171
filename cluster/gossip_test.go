package cluster_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// Tests that do not use onHosts use sockets of the machine, on its loopback and ephemeral ports.

// node is a started cluster and its handler.
type node struct {
	cluster.Cluster
	name, addr string
}

func (n *node) Changed() {}

func (n *node) Serve(b *cluster.Batch) {
	for i, request := range b.Requests {
		b.Reply(i, request)
	}
}

func (n *node) Answered() {}

func (n *node) HandleLate(cluster.Peer, []byte, []byte) {}

var serial atomic.Int64

// config returns a valid configuration with a unique name for label.
func config(label string, join ...*node) cluster.Config {
	c := cluster.Config{Name: fmt.Sprintf("%s-%d", label, serial.Add(1)), Bind: "127.0.0.1:0", Secrets: secret, Logger: quiet}
	for _, n := range join {
		c.Join = append(c.Join, n.addr)
	}
	return c
}

// hosts is an in-memory network for nodes in virtual time.
type hosts struct{ *weirtest.Network }

// onHosts runs a test in virtual time on a network with a latency of one to two milliseconds.
func onHosts(t *testing.T, test func(t *testing.T, h hosts)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		test(t, hosts{weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond, Jitter: time.Millisecond})})
	})
}

// configure returns c with the network of a host, and with Bind at port 7946 of the host.
func (h hosts) configure(host string, c cluster.Config) cluster.Config {
	c.Bind, c.Network = host+":7946", h.Host(host).Network()
	return c
}

func startNode(t *testing.T, c cluster.Config) *node {
	t.Helper()
	n, err := tryNode(t, c)
	require.NoError(t, err)
	return n
}

func tryNode(t *testing.T, c cluster.Config) (*node, error) {
	t.Helper()
	n := &node{Cluster: cluster.NewGossip(c), name: c.Name}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	if err := n.Start(ctx, n); err != nil {
		return n, err
	}
	if err := n.Announce(cluster.Serving); err != nil {
		return n, err
	}
	v := n.View()
	n.addr = v.Members[v.Self].Addr
	return n, nil
}

func (n *node) roster() map[string]cluster.State { return memberStates([]cluster.Cluster{n})[0] }

// awaitRoster waits until the roster of every node is want.
func awaitRoster(t *testing.T, nodes []*node, want map[string]cluster.State) {
	t.Helper()
	for _, n := range nodes {
		require.Eventually(t, func() bool { return maps.Equal(n.roster(), want) }, time.Minute, 10*time.Millisecond, "the roster of %s is not %v", n.name, want)
	}
}

// askRegion asks the named region, and returns the error.
func (n *node) askRegion(t *testing.T, region string) error {
	_, err := n.Region(region).Ask(t.Context(), []byte("who"), nil, time.Second)
	return err
}

func rosterOf(state cluster.State, nodes ...*node) map[string]cluster.State {
	roster := make(map[string]cluster.State)
	for _, n := range nodes {
		roster[n.name] = state
	}
	return roster
}

func TestThreeMembersFindEachOther(t *testing.T) {
	certs := cluster.NewAuthority(t)
	for _, c := range []struct {
		name string
		with func(*cluster.Config)
	}{
		{"encrypted", func(*cluster.Config) {}},
		{"encrypted and under TLS", func(c *cluster.Config) { c.TLS = certs.Config(t) }},
		{"on IPv6", func(c *cluster.Config) { c.Bind = "[::1]:0" }},
		{"advertising a name", func(c *cluster.Config) { c.Advertise = "localhost:0" }},
		{"bound to all addresses", func(c *cluster.Config) { c.Bind, c.Advertise = ":0", "127.0.0.1:0" }},
		{"bound to all addresses, on IPv6", func(c *cluster.Config) { c.Bind, c.Advertise = ":0", "[::1]:0" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(c.name, "on IPv6") {
				l, err := net.Listen("tcp", "[::1]:0")
				if err != nil {
					t.Skip("this machine has no IPv6:", err)
				}
				l.Close()
			}
			var nodes []*node
			for i := range 3 {
				cfg := config(string(rune('a'+i)), nodes...)
				c.with(&cfg)
				nodes = append(nodes, startNode(t, cfg))
			}
			awaitRoster(t, nodes, rosterOf(cluster.Serving, nodes...))
			soon := func(ok func() bool) { // a busy machine is slow, and attempts to connect and to join may time out
				t.Helper()
				require.Eventually(t, ok, time.Minute, time.Millisecond)
			}
			// The first node reaches the last through the second before it has its own connection.
			soon(func() bool { return nodes[0].View().Direct[2] })
			var answer []byte
			soon(func() bool {
				var err error
				answer, err = nodes[0].View().Members[2].Peer.Ask(t.Context(), []byte("who"), nil, 5*time.Second)
				return err == nil
			})
			require.Equal(t, "who", string(answer))
			soon(func() bool { // the round trip is recorded just after the answer is delivered
				trip := nodes[0].Stats().RoundTrips[nodes[0].View().Members[2].Name]
				return trip > 0 && trip < 5*time.Second
			})
			soon(func() bool { return nodes[2].Stats().JoinError == "" })
			refused := nodes[2].Stats().Refused
			delete(refused, "timeout")
			require.Empty(t, refused)
		})
	}
}

// requireRefusedAbroad starts a node of another region, which says configures. It requires that near, a
// node of region "near", refuses that node because of the identity.
func requireRefusedAbroad(t *testing.T, near *node, says cluster.Config, about string) {
	t.Helper()
	before := near.Stats().Refused["identity"]
	says.Regions["near"] = []string{near.addr}
	n := startNode(t, says)
	require.Eventually(t, func() bool { return near.Stats().Refused["identity"] > before }, 5*time.Second, time.Millisecond, about)
	require.ErrorIs(t, n.askRegion(t, "near"), cluster.ErrDisconnected, about)
	require.NoError(t, n.Close())
}

// With CertificateNames, a certificate proves region and name. SPIFFE ids, which have no host,
// are enough. Both sides refuse a node that states another region or name, even if it has the
// secret and a certificate that TLS accepts.
func TestCertificatesProveRegionsOfNodes(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		certs := cluster.NewAuthority(t)
		in := func(region, label, id string, join ...*node) cluster.Config {
			c := h.configure(label, config(label, join...))
			c.Region, c.TLS = region, certs.Config(t, id)
			c.Regions = map[string][]string{"near": {"nobody:1"}, "far": {"nobody:1"}}
			delete(c.Regions, region)
			c.CertificateNames = map[string][]string{"near": {"spiffe://example.org/near/{name}"}, "far": {"spiffe://example.org/far/{name}"}}
			return c
		}
		var log lab.Text
		logged := func(words ...string) bool { return len(log.Lines(words...)) > 0 }
		first := in("near", "a", "spiffe://example.org/near/a")
		first.Logger = slog.New(slog.NewTextHandler(&log, nil))
		a := startNode(t, first)
		b := startNode(t, in("near", "b", "spiffe://example.org/near/b", a))
		awaitRoster(t, []*node{a, b}, rosterOf(cluster.Serving, a, b))
		require.Eventually(t, func() bool { return a.View().Direct[1] && b.View().Direct[0] }, 5*time.Second, time.Millisecond)
		abroad := in("far", "c", "spiffe://example.org/far/c")
		abroad.Regions["near"] = []string{a.addr}
		c := startNode(t, abroad)
		require.Eventually(t, func() bool { return c.askRegion(t, "near") == nil }, 5*time.Second, time.Millisecond)
		require.Empty(t, a.Stats().Refused["identity"])

		for about, says := range map[string]cluster.Config{
			"a node of near that states region far": in("far", "d", "spiffe://example.org/near/d"),
			"a node of far that has another name":   in("far", "e", "spiffe://example.org/far/c"),
			"a node of neither":                     in("far", "f", "spiffe://example.org/third/f"),
		} {
			requireRefusedAbroad(t, a, says, about)
		}
		require.True(t, logged("refused a peer", "reason=identity", "spiffe://example.org/"))
		for about, says := range map[string]cluster.Config{
			"a node of far that would join near":   in("near", "g", "spiffe://example.org/far/g", a),
			"a node of near that has another name": in("near", "h", "spiffe://example.org/near/b", a),
		} {
			_, err := tryNode(t, says)
			require.ErrorContains(t, err, "does not accept this node's Name or Region", about)
		}
		require.Equal(t, rosterOf(cluster.Serving, a, b), a.roster())

		// The listener must prove itself, too.
		for label, id := range map[string]string{"i": "spiffe://example.org/near/i", "k": "spiffe://example.org/far/other"} {
			fake := startNode(t, in("far", label, id))
			asking := in("near", "j", "spiffe://example.org/near/j")
			asking.Regions["far"] = []string{fake.addr}
			asking.Logger = first.Logger
			j := startNode(t, asking)
			require.Eventually(t, func() bool { return logged("cannot reach another region", "region=far", id) }, 5*time.Second, time.Millisecond)
			require.ErrorIs(t, j.askRegion(t, "far"), cluster.ErrDisconnected)
			require.NoError(t, j.Close())
		}
	})
}

// With RegionSecrets, a secret proves the region. An attacker that has the secrets of one region
// cannot act as a node of another region, as a member, or as the listener of another region.
func TestSecretsProveRegionsOfNodes(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		secret := func(text string) [][]byte { return [][]byte{fmt.Appendf(nil, "%-16s", text)} }
		in := func(region, label string, own [][]byte, others map[string][][]byte, join ...*node) cluster.Config {
			c := h.configure(label, config(label, join...))
			c.Region, c.Secrets, c.RegionSecrets = region, own, others
			c.Regions = map[string][]string{"near": {"nobody:1"}, "far": {"nobody:1"}, "third": {"nobody:1"}}
			delete(c.Regions, region)
			return c
		}
		held, third := secret("near and far"), secret("near and third")
		near := map[string][][]byte{"far": held, "third": third}
		a := startNode(t, in("near", "a", secret("near"), near))
		abroad := in("far", "b", secret("far"), map[string][][]byte{"near": held, "third": secret("far and third")})
		abroad.Regions["near"] = []string{a.addr}
		b := startNode(t, abroad)
		require.Eventually(t, func() bool { return b.askRegion(t, "near") == nil }, 5*time.Second, time.Millisecond)
		require.Empty(t, a.Stats().Refused["identity"])

		for about, says := range map[string]cluster.Config{
			"a node of far that states region third":   in("third", "c", secret("any"), map[string][][]byte{"near": held, "far": secret("other")}),
			"a node of far with the secret as its own": in("third", "d", held, nil),
		} {
			requireRefusedAbroad(t, a, says, about)
		}
		_, err := tryNode(t, in("near", "e", held, nil, a))
		require.ErrorContains(t, err, "does not accept this node's Name or Region")
		require.Equal(t, rosterOf(cluster.Serving, a), a.roster())

		fake := startNode(t, in("third", "f", held, nil))
		misled := in("near", "g", secret("near"), near)
		misled.Regions["third"] = []string{fake.addr}
		g := startNode(t, misled)
		require.Eventually(t, func() bool { return fake.Stats().Refused["authentication"] > 1 }, 10*time.Second, time.Millisecond)
		require.ErrorIs(t, g.askRegion(t, "third"), cluster.ErrDisconnected)
	})
}

// Gossip does not send to members that have left, so the last goodbyes reach no member.
func TestMembersThatLeaveTogetherDoNotWait(t *testing.T) {
	t.Parallel()
	for range testenv.PickFull(t, 3, 10) {
		onHosts(t, func(t *testing.T, h hosts) {
			a := startNode(t, h.configure("a", config("a")))
			b := startNode(t, h.configure("b", config("b", a)))
			c := startNode(t, h.configure("c", config("c", a)))
			nodes := []*node{a, b, c}
			awaitRoster(t, nodes, rosterOf(cluster.Serving, nodes...))
			begun, ends := time.Now(), make(chan error, len(nodes))
			for _, n := range nodes {
				go func() { ends <- errors.Join(n.Leave(t.Context()), n.Close()) }()
			}
			for range nodes {
				require.NoError(t, <-ends)
			}
			require.Less(t, time.Since(begun), 3*time.Second)
		})
	}
}

// The news about twenty members that have just started fill the packets of gossip for some seconds.
func TestLeaveDoesNotWaitForRoundsOfGossip(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		nodes, left := h.startMembers(t, 20, 0), servingMembers(20)
		for i, n := range nodes[:5] {
			begun := time.Now()
			require.NoError(t, n.Leave(t.Context()))
			require.Less(t, time.Since(begun), 300*time.Millisecond, i)
			require.NoError(t, n.Close())
			delete(left, memberName(i))
		}
		waitFor(t, 2*time.Second, "all members have removed them", func() bool { return rostersAre(nodes[5:], left) })
	})
}

func TestPortIsFreeAfterCloseHasReturned(t *testing.T) {
	t.Parallel()
	a := startNode(t, config("a"))
	cfg := config("b", a)
	cfg.Bind = lab.FreeAddr(t)
	b := startNode(t, cfg)
	awaitRoster(t, []*node{a, b}, rosterOf(cluster.Serving, a, b))
	for range 2 {
		require.NoError(t, b.Close())
		b = startNode(t, cfg)
	}
	awaitRoster(t, []*node{a, b}, rosterOf(cluster.Serving, a, b))
}

func TestStartAtTakenPortReportsRemedy(t *testing.T) {
	a := startNode(t, config("a"))
	c := config("b", a)
	c.Bind = a.addr
	_, err := tryNode(t, c)
	for _, word := range []string{"Bind", a.addr, "taken", "another"} {
		require.ErrorContains(t, err, word)
	}
}

func TestStartErrorContainsRemedy(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		a := startNode(t, h.configure("a", config("a")))
		foreign := func(change func(*cluster.Config)) cluster.Config {
			c := h.configure("b", config("b", a))
			change(&c)
			return c
		}
		for _, c := range []struct {
			name string
			cfg  cluster.Config
			says []string
		}{
			{"another secret", foreign(func(c *cluster.Config) { c.Secrets = [][]byte{[]byte("fedcba9876543210")} }), []string{"Secrets", a.addr}},
			{"no secret", foreign(func(c *cluster.Config) { c.Secrets = nil }), []string{"Secrets", a.addr}},
			{"another seed", foreign(func(c *cluster.Config) { c.Seed[0] = 1 }), []string{"Seed", a.addr}},
			{"another region", foreign(func(c *cluster.Config) { c.Region = "far" }), []string{"Region", a.addr}},
			{"an advertised name that does not resolve", foreign(func(c *cluster.Config) { c.Advertise = "nobody.invalid:1" }), []string{"Advertise", "nobody.invalid"}},
		} {
			n, err := tryNode(t, c.cfg)
			require.Error(t, err, c.name)
			for _, word := range c.says {
				require.ErrorContains(t, err, word, c.name)
			}
			require.NotContains(t, err.Error(), "fedcba9876543210", c.name)
			require.ErrorIs(t, n.Leave(t.Context()), cluster.ErrClosed, c.name)
		}
		require.Equal(t, rosterOf(cluster.Serving, a), a.roster(), "no node has joined")
	})
}

// If a node counted alone beside a cluster whose certificates are of another CA, it would
// grant every limit once more.
func TestUntrustedNodeDoesNotStart(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		old, other := cluster.NewAuthority(t), cluster.NewAuthority(t)
		both := x509.NewCertPool()
		both.AddCert(old.CA)
		both.AddCert(other.CA)
		in := h.configure("a", config("a"))
		in.TLS = old.Config(t)
		a := startNode(t, in)
		trusts := func(certs cluster.Authority, roots *x509.CertPool) *tls.Config {
			c := certs.Config(t)
			c.RootCAs = roots
			return c
		}
		verifies := other.Config(t)
		verifies.InsecureSkipVerify, verifies.ClientAuth = true, tls.RequireAnyClientCert
		verifies.VerifyConnection = func(s tls.ConnectionState) error {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: other.Pool})
			return err
		}
		for about, c := range map[string]*tls.Config{
			"neither side trusts the other":                other.Config(t),
			"neither side trusts the other, by a function": verifies,
			"the member does not trust the node":           trusts(other, both),
			"the node does not trust the members":          trusts(old, other.Pool),
		} {
			cfg := h.configure("b", config("b", a))
			cfg.TLS = c
			_, err := tryNode(t, cfg)
			require.ErrorContains(t, err, "trust each other's certificates", about)
			require.ErrorContains(t, err, a.addr, about)
		}
		fits := h.configure("c", config("c", a))
		fits.TLS = trusts(old, both)
		c := startNode(t, fits)
		awaitRoster(t, []*node{a, c}, rosterOf(cluster.Serving, a, c))

		over := cluster.NewAuthority(t)
		over.CA.NotAfter = time.Now().Add(-time.Minute)
		out := h.configure("d", config("d"))
		out.TLS = over.Config(t)
		d := startNode(t, out)
		known := x509.NewCertPool()
		known.AddCert(over.CA)
		known.AddCert(other.CA)
		beside := h.configure("e", config("e", d))
		beside.TLS = trusts(other, known)
		e := startNode(t, beside)
		require.Contains(t, e.Stats().JoinError, "TLS", "an expired certificate of a member does not prevent Start")
	})
}

func TestClusterStartsOnceAndClosesRepeatedly(t *testing.T) {
	n := cluster.NewGossip(config("a"))
	require.Error(t, n.Leave(t.Context()))
	require.Error(t, n.Forget("a"))
	require.Equal(t, cluster.Stats{}, n.Stats())
	require.NoError(t, n.Start(t.Context(), mute))
	require.Error(t, n.Start(t.Context(), mute))
	var closers sync.WaitGroup
	for range 4 {
		closers.Go(func() {
			assert.NoError(t, n.Close())
		})
	}
	closers.Wait()
	require.ErrorIs(t, n.Start(t.Context(), mute), cluster.ErrClosed)
	require.ErrorIs(t, n.Leave(t.Context()), cluster.ErrClosed)
	require.ErrorIs(t, n.Forget("a"), cluster.ErrClosed)

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, cluster.NewGossip(config("c")).Start(cancelled, mute), context.Canceled)
}

func TestUnreachableJoinIsLoggedOnce(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		held, packets, err := h.Host("b").Network().Listen(t.Context(), "b:7946")
		require.NoError(t, err)
		require.NoError(t, packets.Close())
		go func() {
			for {
				conn, err := held.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		}()
		nobody := held.Addr().String()
		log := new(lab.Text)
		cfg := h.configure("a", config("a"))
		cfg.Join = []string{"nobody.invalid", nobody}
		cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		a := startNode(t, cfg)
		problem := a.Stats().JoinError
		require.Contains(t, problem, "nobody.invalid")
		require.Contains(t, problem, nobody)
		warnings := func() int { return strings.Count(log.String(), "no member of Join was joined") }
		time.Sleep(4 * time.Second)
		require.Zero(t, warnings(), "another node may be starting")
		time.Sleep(30 * time.Second)
		require.Equal(t, 1, warnings())
		require.NotContains(t, log.String(), string(secret[0]))

		require.NoError(t, held.Close())
		b := startNode(t, h.configure("b", config("b")))
		awaitRoster(t, []*node{a, b}, rosterOf(cluster.Serving, a, b))
		require.Eventually(t, func() bool { return a.Stats().JoinError == "" }, 5*time.Second, 10*time.Millisecond)
	})
}

func TestSimultaneousStartLogsNoWarning(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		log := new(lab.Text)
		nodes := make([]*node, 3)
		var starts sync.WaitGroup
		for i, host := range []string{"a", "b", "c"} {
			cfg := h.configure(host, config(host))
			cfg.Join = []string{"a:7946", "b:7946", "c:7946"}
			cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
			starts.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				var err error
				nodes[i], err = tryNode(t, cfg)
				assert.NoError(t, err)
			})
		}
		starts.Wait()
		time.Sleep(30 * time.Second)
		for _, n := range nodes {
			require.Len(t, n.View().Members, 3)
			require.Empty(t, n.Stats().JoinError)
		}
		require.NotContains(t, log.String(), "level=WARN")
	})
}

func TestUnidentifiedConnectionsAreClosedAndCounted(t *testing.T) {
	send := func(b string) func(*testing.T, net.Conn, cluster.Authority, cluster.Authority) {
		return func(_ *testing.T, conn net.Conn, _, _ cluster.Authority) { io.WriteString(conn, b) }
	}
	secured := func(conn net.Conn, c *tls.Config) {
		conn.Write([]byte{0xC7})
		c.ServerName = "127.0.0.1"
		tls.Client(conn, c).Handshake()
	}
	for _, c := range []struct {
		name   string
		tls    bool
		do     func(t *testing.T, conn net.Conn, certs, others cluster.Authority)
		reason string
	}{
		{"HTTP", false, send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "garbage"},
		{"HTTP where there is TLS", true, send("GET / HTTP/1.1\r\n\r\n"), "garbage"},
		{"a TLS client where there is no TLS", false, func(_ *testing.T, conn net.Conn, _, _ cluster.Authority) {
			tls.Client(conn, &tls.Config{ServerName: "x"}).Handshake()
		}, "garbage"},
		{"no TLS where there is TLS", true, send("\xC7" + strings.Repeat("x", 100)), "tls"},
		{"no certificate", true, func(_ *testing.T, conn net.Conn, certs, _ cluster.Authority) {
			secured(conn, &tls.Config{RootCAs: certs.Pool})
		}, "tls"},
		{"a foreign certificate", true, func(t *testing.T, conn net.Conn, certs, others cluster.Authority) {
			c := others.Config(t)
			c.RootCAs = certs.Pool
			secured(conn, c)
		}, "tls"},
		{"silence", false, func(*testing.T, net.Conn, cluster.Authority, cluster.Authority) {}, "timeout"},
		{"a handshake that stops", false, send("\xC7"), "timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onHosts(t, func(t *testing.T, h hosts) {
				certs, others := cluster.NewAuthority(t), cluster.NewAuthority(t)
				cfg := h.configure("a", config("a"))
				if c.tls {
					cfg.TLS = certs.Config(t)
				}
				a := startNode(t, cfg)
				outside, begun := h.Host("outside").Network(), time.Now()
				gone, err := outside.Dial(t.Context(), a.addr)
				require.NoError(t, err)
				io.WriteString(gone, "\xC7")
				gone.Close() // as a busy or ending member does, so this does not count as refused
				var all sync.WaitGroup
				for range 20 {
					conn, err := outside.Dial(t.Context(), a.addr)
					require.NoError(t, err)
					defer conn.Close()
					all.Go(func() { c.do(t, conn, certs, others) })
				}
				for a.Stats().Refused[c.reason] < 20 {
					time.Sleep(time.Millisecond)
					require.Less(t, time.Since(begun), 6*time.Second, "%v", a.Stats().Refused)
				}
				all.Wait()
				require.Equal(t, map[string]uint64{c.reason: 20}, a.Stats().Refused)
				cfg = h.configure("b", cfg)
				cfg.Name, cfg.Join = "b"+cfg.Name, []string{a.addr}
				b := startNode(t, cfg)
				awaitRoster(t, []*node{a, b}, rosterOf(cluster.Serving, a, b))
			})
		})
	}
}

func TestTrafficOfMembersIsNotRefused(t *testing.T) {
	for name, secrets := range map[string][][]byte{"open": nil, "with secrets": secret} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onHosts(t, func(t *testing.T, h hosts) {
				var nodes []*node
				start := func(label string) {
					cfg := h.configure(label, config(label, nodes...))
					cfg.Secrets = secrets
					nodes = append(nodes, startNode(t, cfg))
				}
				for i := range 6 {
					start(string(rune('a' + i)))
				}
				awaitRoster(t, nodes, rosterOf(cluster.Serving, nodes...))
				require.NoError(t, nodes[0].Leave(t.Context()))
				awaitRoster(t, nodes[1:], rosterOf(cluster.Serving, nodes[1:]...))
				crashed, left := nodes[5], nodes[1:5]
				require.NoError(t, crashed.Close())
				// Direct and indirect probes detect the crash.
				want := rosterOf(cluster.Serving, left...)
				want[crashed.name] = cluster.Dead
				awaitRoster(t, left, want)
				start("g")
				time.Sleep(35 * time.Second) // gossip exchanges its whole state every 30 s
				for _, n := range append(left, nodes[6]) {
					require.Empty(t, n.Stats().Refused)
				}
			})
		})
	}
}

// The flood comes from b's host, so it has b's address.
func TestConnectionFloodDoesNotLockOutMembers(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		a := startNode(t, h.configure("a", config("a")))
		flooder := h.Host("b").Network()
		tcp, udp, err := flooder.Listen(t.Context(), "b:0")
		require.NoError(t, err)
		defer tcp.Close()
		defer udp.Close()
		at, err := net.ResolveUDPAddr("udp", a.addr)
		require.NoError(t, err)
		for i := range 1100 {
			conn, err := flooder.Dial(t.Context(), a.addr)
			require.NoError(t, err)
			defer conn.Close()
			if i%2 == 0 {
				conn.Write([]byte{0xC8, 10, 0, 0x7f, 0xff, 0xff}) // gossip that announces a long message and sends no more bytes
			}
			udp.WriteTo(bytes.Repeat([]byte{byte(i)}, i%400), at)
		}
		flooded := time.Now()
		b := startNode(t, h.configure("b", config("b", a)))
		awaitRoster(t, []*node{a, b}, rosterOf(cluster.Serving, a, b))
		require.Less(t, time.Since(flooded), time.Second, "before a connection of the flood has timed out")
		require.NotZero(t, a.Stats().Refused["crowded"])
	})
}
