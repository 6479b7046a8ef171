package clustertests

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

var algorithms = []weir.Algorithm{weir.SlidingWindow, weir.SlidingLog, weir.FixedWindow, weir.TokenBucket, weir.LeakyBucket}

var quiet = slog.New(slog.DiscardHandler)

const (
	timeout = 100 * time.Millisecond
	latency = 100 * time.Microsecond
	forget  = 2 * time.Minute // Config.Forget of the nodes of a world
)

// world is a set of nodes on hosts named "a", "b", "c" and so on. The network is in memory and
// the time is virtual. The nodes use the real protocols, or simulated membership.
type world struct {
	network *weirtest.Network
	names   []string
	nodes   map[string]*weir.Node
	gossips bool // whether the nodes use real gossip
}

// emptyWorld returns a world that has hosts of these names, and no nodes.
func emptyWorld(names []string, gossip bool) *world {
	network := weirtest.NewNetwork(1, weirtest.Link{Latency: latency})
	addHosts(network, names...)
	return &world{network: network, names: names, nodes: make(map[string]*weir.Node), gossips: gossip}
}

func addHosts(network *weirtest.Network, names ...string) {
	for _, name := range names {
		network.Host(name)
	}
}

func hosts(n int) (names []string) {
	for i := range n {
		names = append(names, string(rune('a'+i)))
	}
	return names
}

// newWorld starts n nodes and waits until they are ready.
func newWorld(t *testing.T, n int, gossip bool) *world {
	return newWorldOf(t, n, gossip, weir.Config{})
}

// newWorldOf is like newWorld, and starts each node with the given configuration.
func newWorldOf(t *testing.T, n int, gossip bool, cfg weir.Config) *world {
	w := emptyWorld(hosts(n), gossip)
	for _, name := range w.names {
		w.start(t, name, cfg)
	}
	w.ready(t, w.names...)
	return w
}

// start starts a node. It adds the host to the names of the world, if the host is new.
func (w *world) start(t *testing.T, name string, cfg weir.Config) *weir.Node {
	if !slices.Contains(w.names, name) {
		w.names = append(w.names, name)
	}
	n, err := w.tryStart(t, name, cfg)
	require.NoError(t, err)
	return n
}

func (w *world) tryStart(t *testing.T, name string, cfg weir.Config) (*weir.Node, error) {
	n, err := w.launch(t, name, cfg)
	if err == nil {
		w.nodes[name] = n
	}
	return n, err
}

// startTogether adds new hosts and starts their nodes at the same time.
func (w *world) startTogether(t *testing.T, cfg weir.Config, names ...string) {
	w.names = append(w.names, names...)
	addHosts(w.network, names...)
	nodes, errs := make([]*weir.Node, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { nodes[i], errs[i] = w.launch(t, name, cfg) })
	}
	all.Wait()
	for i, name := range names {
		require.NoError(t, errs[i])
		w.nodes[name] = nodes[i]
	}
}

// launch starts a node on a host without adding it to nodes.
func (w *world) launch(t *testing.T, name string, cfg weir.Config) (*weir.Node, error) {
	c := cluster.Config{Forget: forget, ForgetRefused: cfg.ForgetRefused}
	if w.gossips {
		for _, other := range w.names {
			c.Join = append(c.Join, other+":7946")
		}
	}
	return startOn(t.Context(), t, w.network.Host(name), w.gossips, c, cfg)
}

// startOn starts a node on a host, with real gossip or simulated membership. By default,
// the node has a new name, port 7946 and no logger. The node is closed at the end of the
// test.
func startOn(ctx context.Context, t *testing.T, host *weirtest.Host, gossip bool, c cluster.Config, cfg weir.Config) (*weir.Node, error) {
	c.Name = cmp.Or(c.Name, fmt.Sprintf("%s-%d", host.Name(), time.Now().UnixNano()))
	c.Logger, cfg.Logger = cmp.Or(c.Logger, quiet), cmp.Or(cfg.Logger, quiet)
	if gossip {
		c.Bind = cmp.Or(c.Bind, host.Name()+":7946")
		if c.Network == nil {
			c.Network = host.Network()
		}
		cfg.Cluster = cluster.NewGossip(c)
	} else {
		cfg.Cluster = host.Cluster(c)
	}
	n, err := weir.Start(ctx, cfg)
	if err == nil {
		t.Cleanup(func() { require.NoError(t, n.Close()) })
	}
	return n, err
}

// leave stops a node as a deploy does.
func (w *world) leave(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, w.nodes[name].Leave(t.Context()))
	require.NoError(t, w.nodes[name].Close())
}

// cut takes down the links between two hosts, in both directions.
func (w *world) cut(a, b string) {
	w.network.Cut(a, b)
	w.network.Cut(b, a)
}

// setLinks sets the links of all hosts to each other.
func (w *world) setLinks(l weirtest.Link) {
	for _, from := range w.names {
		for _, to := range w.names {
			w.network.SetLink(from, to, l)
		}
	}
}

// agree reports whether the roster of each named node has only the named nodes, and all of them
// are serving.
func (w *world) agree(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !sees(w.nodes[name], len(names)) })
}

// sees reports whether the roster of n has the given number of members, and all of them are
// serving.
func sees(n *weir.Node, members int) bool {
	all := n.Members()
	return len(all) == members && !slices.ContainsFunc(all, func(m weir.Member) bool { return m.State != weir.Serving })
}

// waitFor waits until the condition is true, and reports whether this was the case before d had
// passed. It checks the condition every 10 ms, and after the first second at intervals of 1 % of
// the time since the start.
func waitFor(d time.Duration, what func() bool) bool {
	begun := time.Now()
	for time.Since(begun) < d {
		if what() {
			return true
		}
		pause := max(10*time.Millisecond, time.Since(begun)/100)
		time.Sleep(min(pause, d-time.Since(begun)))
	}
	return what()
}

func (w *world) limiters(t *testing.T, l weir.Limit) map[string]*weir.Limiter {
	ls := make(map[string]*weir.Limiter)
	for name, n := range w.nodes {
		var err error
		ls[name], err = n.Limiter(l)
		require.NoError(t, err)
	}
	return ls
}

// keyOf returns a key that a node owns.
func keyOf(t *testing.T, owner *weir.Limiter) string {
	for i := range 10_000 {
		if key := fmt.Sprint("key ", i); owner.Owner(key).Self {
			return key
		}
	}
	t.Fatal("the node owns none of 10,000 keys")
	return ""
}

// inBubble runs a test in virtual time, in parallel with other tests. Close does not wait for the last
// probes of memberlist, so inBubble sleeps for a virtual minute at the end.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	playBubble(t, test)
}

// playBubble runs one bubble, and does not make the test parallel. A test with several bubbles
// in turn calls playBubble for each.
func playBubble(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		test(t)
	})
}

// inBubbles runs a test in virtual time with simulated membership. The full run repeats the test
// with real gossip, which takes up to three times as long. The code above the cluster is the same
// in both.
func inBubbles(t *testing.T, test func(t *testing.T, gossip bool)) {
	bothBubbles(t, false, test)
}

// inBubblesOfGossip is inBubbles for tests in which members join through addresses, are
// forgotten, return, or start out of sight of other members. These tests depend on gossip, so
// they run with real gossip. The full run repeats them with simulated membership.
func inBubblesOfGossip(t *testing.T, test func(t *testing.T, gossip bool)) {
	bothBubbles(t, true, test)
}

// inWorld runs a test in a bubble (see inBubble), in a world of n nodes with simulated membership.
func inWorld(t *testing.T, n int, test func(t *testing.T, w *world)) {
	inBubble(t, func(t *testing.T) { test(t, newWorld(t, n, false)) })
}

// inWorlds runs a test in bubbles (see inBubbles), in a world of n nodes that all have the
// configuration cfg.
func inWorlds(t *testing.T, n int, cfg weir.Config, test func(t *testing.T, w *world)) {
	bothBubbles(t, false, func(t *testing.T, gossip bool) { test(t, newWorldOf(t, n, gossip, cfg)) })
}

// limiterMap has a limiter of the same limit for each node, by the name of the host.
type limiterMap = map[string]*weir.Limiter

// inLimitedWorlds runs a test in the same worlds as inWorlds, with a limit that has the given
// numbers and the name "test". The test receives the limiters of all nodes, and a key that node
// a owns.
func inLimitedWorlds(t *testing.T, n int, l weir.Limit, test func(t *testing.T, w *world, ls limiterMap, key string)) {
	l.Name = "test"
	inWorlds(t, n, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, l)
		test(t, w, ls, keyOf(t, ls["a"]))
	})
}

// inEachWorld runs a test once for each value, each time in a new world of n nodes. If configure
// is not nil, it returns the configuration of the nodes for a value.
func inEachWorld[T any](t *testing.T, n int, values []T, configure func(T) weir.Config, test func(t *testing.T, w *world, value T)) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		var value T
		defer func() {
			if t.Failed() {
				t.Log("with", value)
			}
		}()
		for _, value = range values {
			var cfg weir.Config
			if configure != nil {
				cfg = configure(value)
			}
			w := newWorldOf(t, n, gossip, cfg)
			test(t, w, value)
			w.close(t)
		}
	})
}

func withReplicas(replicas int) weir.Config { return weir.Config{Replicas: replicas} }

// bothBubbles runs a test with real gossip and with simulated membership. The default run has
// only one of the two. Other work does not change the time of a bubble, so bubbles run in
// parallel.
//
// Under the race detector, each test of the full run uses real gossip. The goroutines of
// memberlist and of the connections can race with the goroutines of the node only with
// real gossip. The default run under the detector has real gossip in the tests of
// inBubblesOfGossip.
func bothBubbles(t *testing.T, gossips bool, test func(t *testing.T, gossip bool)) {
	t.Parallel()
	for _, gossip := range []bool{true, false} {
		name := map[bool]string{true: "gossip", false: "simulated"}[gossip]
		t.Run(name, func(t *testing.T) {
			switch {
			case testenv.Race && !gossip && testenv.IsFull(t):
				testenv.SkipAlike(t, "the same test with gossip")
			case gossip && !gossips:
				testenv.SkipUnlessFull(t, "the same test with simulated membership, and the tests of inBubblesOfGossip")
			case !gossip && gossips:
				testenv.SkipUnlessFull(t, "the same test with gossip")
			}
			inBubble(t, func(t *testing.T) { test(t, gossip) })
		})
	}
}

// ready waits until the named nodes are ready and agree on the roster.
func (w *world) ready(t *testing.T, names ...string) {
	t.Helper()
	require.True(t, waitFor(30*time.Second, func() bool {
		for _, name := range names {
			if !w.nodes[name].Ready() {
				return false
			}
		}
		return w.agree(names...)
	}), "%v are ready", names)
}

// allowed takes units of a key and returns the decision.
func allowed(t *testing.T, l *weir.Limiter, key string, units int64) weir.Decision {
	t.Helper()
	d, err := l.AllowN(t.Context(), key, units)
	require.NoError(t, err)
	return d
}

func peek(t *testing.T, l *weir.Limiter, key string) weir.Decision {
	t.Helper()
	d, err := l.Peek(t.Context(), key)
	require.NoError(t, err)
	return d
}

// remaining returns Decision.Remaining of a peek at the key.
func remaining(t *testing.T, l *weir.Limiter, key string) int64 {
	t.Helper()
	return peek(t, l, key).Remaining
}

// used returns the units of a key that are spent.
func used(t *testing.T, l *weir.Limiter, key string) int64 {
	t.Helper()
	d := peek(t, l, key)
	return d.Limit - d.Remaining
}

// ask checks the key the given number of times on each named node, and counts the allowed checks.
func ask(t *testing.T, ls map[string]*weir.Limiter, key string, times int, names ...string) (admitted int) {
	t.Helper()
	for range times {
		for _, name := range names {
			d, err := ls[name].Allow(t.Context(), key)
			if err != nil { // a call of require for each check would take longer than the check itself
				t.Fatal(err)
			}
			if d.Allowed {
				admitted++
			}
		}
	}
	return admitted
}

// requireAdmits requires that the named nodes together admit the given number of units of
// each key.
func requireAdmits(t *testing.T, units int, ls map[string]*weir.Limiter, keys []string, times int, names ...string) {
	t.Helper()
	for _, key := range keys {
		require.Equal(t, units, ask(t, ls, key, times, names...), key)
	}
}

// requireRemaining requires that each of the keys has the given number of units left, at
// each of the nodes.
func requireRemaining(t *testing.T, units int64, ls map[string]*weir.Limiter, keys []string, names ...string) {
	t.Helper()
	for _, key := range keys {
		for _, name := range names {
			require.Equal(t, units, remaining(t, ls[name], key), "%s at %s", key, name)
		}
	}
}

// numbers returns the keys 0, 1 and so on.
func numbers(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(i))
	}
	return keys
}

// exhaustAll sends as many checks of the key to each named node as the limit has units, and then
// more checks until all units are granted. Leased units return to the owner within a second.
func exhaustAll(t *testing.T, ls map[string]*weir.Limiter, key string, units int, names ...string) {
	t.Helper()
	admitted := ask(t, ls, key, units, names...)
	for begun := time.Now(); admitted < units && time.Since(begun) < time.Second; {
		time.Sleep(50 * time.Millisecond)
		admitted += ask(t, ls, key, 1, names...)
	}
	require.Equal(t, units, admitted)
}

// fill checks each key on the named nodes, and adds the allowed checks of key i to admitted[i].
func fill(t *testing.T, ls map[string]*weir.Limiter, admitted []int, times int, names ...string) {
	t.Helper()
	for i := range admitted {
		admitted[i] += ask(t, ls, fmt.Sprint(i), times, names...)
	}
}

// close stops all nodes of the world, for a test that makes several worlds.
func (w *world) close(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		w.network.Host(name).Kill()
		require.NoError(t, w.nodes[name].Close())
	}
}
