package clustertests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// These tests follow the procedures of docs/rotation.md. An operator restarts the nodes in
// turn, as in a rolling deploy, while clients send checks to the nodes that serve. No check
// may fail. The credentials are in the cluster.Config with which each node starts.

const (
	rotatedKeys  = 40
	rotatedEvery = 200 * time.Millisecond // the time between two checks of a key
	lifetime     = 366 * 24 * time.Hour   // so long that no unit returns during a test
	// restartEvery is the time between two restarts. At each start, the node exchanges
	// the whole state of gossip on a new connection. Every ten seconds, one of three nodes does
	// the same.
	restartEvery = 4 * time.Second
	// drained is longer than the time that any check can take.
	drained = 2 * timeout
)

// rotation is a cluster with real gossip and real connections, on a network in memory.
type rotation struct {
	*clients
	network *weirtest.Network
	names   []string
	nodes   map[string]*weir.Node
	keys    []*rotatedKey
}

// clients is a number of clients, which check keys on all serving nodes in turn until end is called.
type clients struct {
	t       *testing.T
	mu      sync.Mutex
	serving []*weir.Node
	failed  []string // the checks with an error, or without a decision of the owner

	stop   chan struct{}
	asking sync.WaitGroup
	end    func()
}

func newClients(t *testing.T) *clients {
	c := &clients{t: t, stop: make(chan struct{})}
	c.end = sync.OnceFunc(func() {
		close(c.stop)
		c.asking.Wait()
	})
	t.Cleanup(c.end)
	return c
}

// add starts client k, which begins after a delay and then calls the function ask
// periodically.
func (c *clients) add(k int, delay, every time.Duration, ask func(*weir.Node)) {
	c.asking.Go(func() {
		time.Sleep(delay)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for turn := k; ; turn++ {
			select {
			case <-c.stop:
				return
			case <-tick.C:
			}
			c.mu.Lock()
			n := c.serving[turn%len(c.serving)]
			c.mu.Unlock()
			ask(n)
		}
	})
}

// serve adds a node that receives checks.
func (c *clients) serve(n *weir.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = append(c.serving, n)
}

// drain removes a node, and waits until its last check has ended.
func (c *clients) drain(n *weir.Node) {
	c.mu.Lock()
	c.serving = slices.DeleteFunc(c.serving, func(s *weir.Node) bool { return s == n })
	c.mu.Unlock()
	time.Sleep(drained)
}

// judgeDecision records a check as failed if the check returned an error, or if the owner
// of the key did not decide the check.
func (c *clients) judgeDecision(key string, d weir.Decision, err error) {
	if err == nil && slices.Contains([]weir.Source{weir.Owner, weir.Forwarded, weir.Relayed, weir.Pushback}, d.Source) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, fmt.Sprintf("%s: %v, error %v", key, d.Source, err))
}

// requireNoFailures stops the clients, and requires that no check has failed.
func (c *clients) requireNoFailures() {
	c.t.Helper()
	c.end()
	require.Empty(c.t, c.failed[:min(len(c.failed), 5)], "the first of %d", len(c.failed))
}

// rotatedKey counts the checks of a key.
type rotatedKey struct {
	name            string
	limit           weir.Limit
	asked, admitted int64
}

// newRotation starts the named nodes with the given configuration, and then the clients that
// check keys on them.
func newRotation(t *testing.T, names []string, configure func(*cluster.Config)) *rotation {
	r := &rotation{
		clients: newClients(t), network: weirtest.NewNetwork(1, weirtest.Link{Latency: latency, Jitter: latency}),
		names: names, nodes: make(map[string]*weir.Node),
	}
	addHosts(r.network, names...)
	r.network.SetName("weir.internal", names...)
	for _, name := range names {
		r.nodes[name] = r.start(name, configure)
	}
	r.whole()
	for _, name := range names {
		r.serve(r.nodes[name])
	}
	for k := range rotatedKeys {
		key := &rotatedKey{name: fmt.Sprint("key ", k)}
		algorithm := algorithms[k%len(algorithms)]
		key.limit = weir.Limit{Name: fmt.Sprint(algorithm, k), Algorithm: algorithm, Rate: int64((k + 1) * (k + 1)), Per: lifetime}
		every := rotatedEvery
		if testenv.Race || !testenv.IsFull(t) {
			key.limit.Rate = max(key.limit.Rate/5, 1)
			every *= 5
		}
		r.keys = append(r.keys, key)
		r.add(k, time.Duration(k)*every/rotatedKeys, every, func(n *weir.Node) { r.ask(n, key) })
	}
	return r
}

func (r *rotation) start(name string, configure func(*cluster.Config)) *weir.Node {
	r.t.Helper()
	n, err := r.tryStart(name, configure)
	require.NoError(r.t, err)
	return n
}

func (r *rotation) tryStart(name string, configure func(*cluster.Config)) (*weir.Node, error) {
	c := cluster.Config{Bind: name + ":7946", Join: []string{"weir.internal"}}
	configure(&c)
	return startOn(r.t.Context(), r.t, r.network.Host(name), true, c, weir.Config{})
}

// whole waits until all nodes are ready and see each other.
func (r *rotation) whole() {
	r.t.Helper()
	require.True(r.t, waitFor(time.Minute, func() bool { return areWhole(slices.Collect(maps.Values(r.nodes))) }), "all nodes are connected to each other")
}

// areWhole reports whether all these nodes are ready, and each node sees all these nodes and no
// other member.
func areWhole(nodes []*weir.Node) bool {
	return !slices.ContainsFunc(nodes, func(n *weir.Node) bool { return !n.Ready() || !sees(n, len(nodes)) })
}

// ask checks a key on a node.
func (r *rotation) ask(n *weir.Node, key *rotatedKey) {
	var d weir.Decision
	l, err := n.Limiter(key.limit)
	if err == nil {
		d, err = l.Allow(r.t.Context(), key.name)
	}
	r.judgeDecision(key.name, d, err)
	key.asked++
	if d.Allowed {
		key.admitted++
	}
}

// stop stops the node on a host. The node receives checks until it has left.
func (r *rotation) stop(name string) {
	r.t.Helper()
	n := r.nodes[name]
	require.NoError(r.t, n.Leave(r.t.Context()))
	r.drain(n)
	require.NoError(r.t, n.Close())
	delete(r.nodes, name)
}

// restart starts a new node on a host. When the node is ready, it receives checks.
func (r *rotation) restart(name string, configure func(*cluster.Config)) {
	r.t.Helper()
	n := r.start(name, configure)
	r.nodes[name] = n
	require.True(r.t, waitFor(time.Minute, n.Ready), "%s is ready again", name)
	r.serve(n)
}

// rollOut restarts the nodes with the given configuration, in turn.
func (r *rotation) rollOut(configure func(*cluster.Config)) {
	r.t.Helper()
	for _, name := range r.names {
		r.stop(name)
		r.restart(name, configure)
		time.Sleep(restartEvery)
	}
	r.wellRotated()
}

// wellRotated requires the state that docs/rotation.md tells an operator to check before the next
// step.
func (r *rotation) wellRotated() {
	r.t.Helper()
	r.whole()
	require.Empty(r.t, r.refused())
	for name, n := range r.nodes {
		s := n.Stats()
		require.Empty(r.t, s.Cluster.JoinError, name)
		require.Zero(r.t, s.Unjoined, name)
		require.Zero(r.t, s.Outage.Since, name)
	}
}

// judge stops the clients. It requires that no check has failed and that the number of units
// granted for each key is exactly its limit, or the number of its checks if that is lower.
func (r *rotation) judge() {
	r.t.Helper()
	r.requireNoFailures()
	usedUp := 0
	for _, key := range r.keys {
		require.Equal(r.t, min(key.limit.Rate, key.asked), key.admitted, "%s under %v, asked for %d times", key.name, key.limit.Algorithm, key.asked)
		if key.asked > key.limit.Rate {
			usedUp++
		}
	}
	r.t.Logf("%d keys, %d of them used up, asked for %d times each; %v", len(r.keys), usedUp, r.keys[0].asked, r.refused())
	require.NotZero(r.t, usedUp)
	require.Less(r.t, usedUp, len(r.keys), "some keys are used up after the last node is restarted")
}

// refused returns how often the nodes that are running have refused a connection or a packet, for
// each reason.
func (r *rotation) refused() map[string]uint64 {
	sum := make(map[string]uint64)
	for _, n := range r.nodes {
		for reason, times := range n.Stats().Cluster.Refused {
			if times > 0 {
				sum[reason] += times
			}
		}
	}
	return sum
}

// isRefused tries to start another node. The start must fail with an error that contains the
// given text, and the other nodes must count a refusal with the given reason.
func (r *rotation) isRefused(configure func(*cluster.Config), reason, text string) {
	r.t.Helper()
	before := r.refused()[reason]
	_, err := r.tryStart("z", configure)
	require.ErrorContains(r.t, err, text)
	require.True(r.t, waitFor(time.Second, func() bool { return r.refused()[reason] > before }), "%v", r.refused())
	for _, n := range r.nodes {
		require.True(r.t, sees(n, len(r.nodes)))
	}
}

// joins starts another node with the given configuration, waits until the node has
// joined, and stops the node.
func (r *rotation) joins(configure func(*cluster.Config)) {
	r.t.Helper()
	n := r.start("z", configure)
	require.True(r.t, waitFor(time.Minute, func() bool { return n.Ready() && sees(n, len(r.nodes)+1) }))
	require.NoError(r.t, n.Leave(r.t.Context()))
	require.NoError(r.t, n.Close())
	r.whole()
}

var older, newer = []byte("old-old-old-old-"), []byte("new-new-new-new-")

func secrets(all ...[]byte) func(*cluster.Config) {
	return func(c *cluster.Config) { c.Secrets = all }
}

// To go back, an operator takes the steps in reverse order, as long as the old secret is in all
// lists.
func TestSecretsAreRotatedWithoutFailedCheck(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRotation(t, hosts(3), secrets(older))
		r.rollOut(secrets(older, newer))
		r.joins(secrets(older))
		r.rollOut(secrets(newer, older))
		for range testenv.PickFull(t, 0, 1) { // one step back, and forward again
			r.rollOut(secrets(older, newer))
			r.rollOut(secrets(newer, older))
		}
		r.rollOut(secrets(newer))
		r.isRefused(secrets(older), "authentication", "share no secret")
		r.joins(secrets(newer))
		r.judge()
	})
}

// certified sets the secret, which is the same in all these tests, and the configuration of TLS.
func certified(leaf *tls.Certificate, roots *x509.CertPool) func(*cluster.Config) {
	return func(c *cluster.Config) {
		c.Secrets = [][]byte{older}
		c.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}, RootCAs: roots, ServerName: memberName}
	}
}

// reloading returns a rotation in which each of the nodes reads its credentials from files, and a
// function that replaces the files in turn.
func reloading(t *testing.T, first func() *credentials) (r *rotation, reload func(func() *credentials)) {
	files := make(map[string]*atomic.Pointer[credentials])
	for _, name := range hosts(3) {
		files[name] = new(atomic.Pointer[credentials])
		files[name].Store(first())
	}
	r = newRotation(t, hosts(3), func(c *cluster.Config) {
		name, _, _ := strings.Cut(c.Bind, ":")
		c.Secrets, c.TLS = [][]byte{older}, reloaded(files[name])
	})
	return r, func(next func() *credentials) {
		for _, name := range r.names {
			files[name].Store(next())
			time.Sleep(restartEvery)
		}
	}
}

// The credentials of a node are replaced while the node runs, as if they were in files. The
// connections that are open stay open, and all new connections use the new credentials.
func TestCertificatesAreReloadedWithoutFailedCheck(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		before, after := newAuthority(t, "old"), newAuthority(t, "new")
		of := func(ca *authority, roots *x509.CertPool) func() *credentials {
			return func() *credentials { return &credentials{ca.leaf(t), roots} }
		}
		r, reload := reloading(t, of(before, bundle(before)))
		nodes := maps.Clone(r.nodes)
		step := func(ca *authority, roots *x509.CertPool) {
			t.Helper()
			reload(of(ca, roots))
			r.wellRotated()
		}
		step(before, bundle(before))
		step(before, bundle(before, after))
		r.joins(certified(before.leaf(t), bundle(before)))
		r.joins(certified(after.leaf(t), bundle(before, after)))
		step(after, bundle(before, after))
		for range testenv.PickFull(t, 0, 1) { // one step back, and forward again
			step(before, bundle(before, after))
			step(after, bundle(before, after))
		}
		step(after, bundle(after))
		r.isRefused(certified(before.leaf(t), bundle(before, after)), "tls", "trust each other's certificates")
		r.joins(certified(after.leaf(t), bundle(after)))
		r.judge()
		require.Equal(t, nodes, r.nodes)
	})
}

// memberName is in the certificates of all members. Nodes dial addresses, and verify this name.
const memberName = "members.weir.internal"

// authority signs members' certificates.
type authority struct {
	key    *ecdsa.PrivateKey
	root   *x509.Certificate
	serial int64
}

func newAuthority(t *testing.T, name string) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	root, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{key: key, root: root, serial: 1}
}

// leaf returns a new certificate.
func (a *authority) leaf(t *testing.T) *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(lifetime),
		DNSNames: []string{memberName}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, &key.PublicKey, a.key)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// bundle returns a pool with the roots of these authorities.
func bundle(all ...*authority) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, a := range all {
		pool.AddCert(a.root)
	}
	return pool
}

// credentials are the certificate and the roots that a process has last read from its files.
type credentials struct {
	leaf  *tls.Certificate
	roots *x509.CertPool
}

// reloaded returns a tls.Config whose handshakes always use the current credentials. docs/rotation.md
// links to it.
func reloaded(now *atomic.Pointer[credentials]) *tls.Config {
	return &tls.Config{
		ServerName: memberName,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := now.Load()
			return &tls.Config{Certificates: []tls.Certificate{*c.leaf}, ClientCAs: c.roots}, nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return now.Load().leaf, nil
		},
		InsecureSkipVerify: true, // VerifyConnection verifies
		VerifyConnection: func(s tls.ConnectionState) error {
			between := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				between.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: s.ServerName, Roots: now.Load().roots, Intermediates: between})
			return err
		},
	}
}
