package clustertests

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/internal/observe"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/weirtest"
)

var algorithms = []weir.Algorithm{weir.SlidingWindow, weir.SlidingLog, weir.FixedWindow, weir.TokenBucket, weir.LeakyBucket}

var quiet = slog.New(slog.DiscardHandler)

const (
	timeout = 100 * time.Millisecond
	latency = 100 * time.Microsecond
	forget  = 2 * time.Minute // of a world's nodes
)

// world is nodes on hosts "a", "b", "c" ... of a network in memory, in virtual
// time: the real protocols, or simulated membership.
type world struct {
	network *weirtest.Network
	names   []string
	nodes   map[string]*weir.Node
	gossips bool     // for tests that start further nodes
	insides sync.Map // of *weir.Node to *observe.Inside
}

// emptyWorld returns a world without nodes. A test that starts nodes at these names sets up
// their hosts.
func emptyWorld(names []string, gossip bool) *world {
	return &world{network: weirtest.NewNetwork(1, weirtest.Link{Latency: latency}), names: names, nodes: make(map[string]*weir.Node), gossips: gossip}
}

func hosts(n int) (names []string) {
	for i := range n {
		names = append(names, string(rune('a'+i)))
	}
	return names
}

// newWorld starts n nodes, and waits until they are ready.
func newWorld(t *testing.T, n int, gossip bool) *world {
	return newWorldOf(t, n, gossip, weir.Config{})
}

// newWorldOf is newWorld with each node of this configuration.
func newWorldOf(t *testing.T, n int, gossip bool, cfg weir.Config) *world {
	w := emptyWorld(hosts(n), gossip)
	for _, name := range w.names {
		w.network.Host(name)
	}
	for _, name := range w.names {
		w.start(t, name, gossip, cfg)
	}
	w.ready(t, w.names...)
	return w
}

func (w *world) start(t *testing.T, name string, gossip bool, cfg weir.Config) *weir.Node {
	n, err := w.tryStart(t, name, gossip, cfg)
	require.NoError(t, err)
	return n
}

func (w *world) tryStart(t *testing.T, name string, gossip bool, cfg weir.Config) (*weir.Node, error) {
	n, err := w.launch(t, name, gossip, cfg)
	if err == nil {
		w.nodes[name] = n
	}
	return n, err
}

// startTogether starts nodes at one moment, on new hosts.
func (w *world) startTogether(t *testing.T, gossip bool, cfg weir.Config, names ...string) {
	w.names = append(w.names, names...)
	for _, name := range names {
		w.network.Host(name)
	}
	nodes, errs := make([]*weir.Node, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { nodes[i], errs[i] = w.launch(t, name, gossip, cfg) })
	}
	all.Wait()
	for i, name := range names {
		require.NoError(t, errs[i])
		w.nodes[name] = nodes[i]
	}
}

// launch starts a node that is the caller's to keep.
func (w *world) launch(t *testing.T, name string, gossip bool, cfg weir.Config) (*weir.Node, error) {
	host := w.network.Host(name)
	c := cluster.Config{Name: fmt.Sprintf("%s-%d", name, time.Now().UnixNano()), Logger: quiet, Forget: forget, ForgetRefused: cfg.ForgetRefused}
	if gossip {
		c.Bind, c.Network = name+":7946", host.Network()
		for _, other := range w.names {
			c.Join = append(c.Join, other+":7946")
		}
		cfg.Cluster = cluster.NewGossip(c)
	} else {
		cfg.Cluster = host.Cluster(c)
	}
	cfg.Logger = cmp.Or(cfg.Logger, quiet)
	in := new(observe.Inside)
	n, err := weir.Start(observe.WithInside(t.Context(), in), cfg)
	if err != nil {
		return nil, err
	}
	w.insides.Store(n, in)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n, nil
}

// inside returns the state of one of the world's nodes.
func (w *world) inside(n *weir.Node) *observe.Inside {
	in, _ := w.insides.Load(n)
	return in.(*observe.Inside)
}

// agree reports whether these nodes all see each other, and nobody else, serving.
func (w *world) agree(names ...string) bool {
	for _, name := range names {
		members := w.nodes[name].Members()
		if len(members) != len(names) {
			return false
		}
		for _, m := range members {
			if m.State != weir.Serving {
				return false
			}
		}
	}
	return true
}

// rosters returns how each node sees the members, for a test that fails.
func (w *world) rosters() string {
	var s strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		fmt.Fprintf(&s, "%s, ready %v:", name, w.nodes[name].Ready())
		for _, m := range w.nodes[name].Members() {
			fmt.Fprintf(&s, " %s %v", m.Name, m.State)
		}
		s.WriteByte('\n')
	}
	return s.String()
}

// within reports whether something comes true in so much time. It looks every 10 ms, and
// after a second each time that a hundredth more has passed.
func within(d time.Duration, what func() bool) bool {
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

// keyOf finds a key that a node owns.
func keyOf(t *testing.T, owner *weir.Limiter) string {
	for i := range 10_000 {
		if key := fmt.Sprint("key ", i); owner.Owner(key).Self {
			return key
		}
	}
	t.Fatal("it owns no key of 10,000")
	return ""
}

// inBubble runs a test in virtual time, and lets memberlist's last probes run out before
// that ends, as Close does not wait for them. The minute costs nothing once all is closed.
func inBubble(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		test(t)
	})
}

// inBubbles runs a test in virtual time with simulated membership, and in the full run
// with real gossip as well. The product above the cluster is the same in both, and gossip
// costs up to three times as much.
func inBubbles(t *testing.T, test func(t *testing.T, gossip bool)) {
	bothBubbles(t, false, test)
}

// inBubblesOfGossip is inBubbles for the tests in which members join through addresses, are
// forgotten, come back, or start where others do not see them. That is gossip's own work,
// so they run with real gossip, and in the full run with simulated membership as well.
func inBubblesOfGossip(t *testing.T, test func(t *testing.T, gossip bool)) {
	bothBubbles(t, true, test)
}

// bothBubbles runs a test with real gossip and with simulated membership, of which the
// default run plays one. What runs beside a bubble does not change its time, so bubbles
// run in parallel.
//
// Under the race detector the full run gossips in each test: there the goroutines of
// memberlist and of the product's own connections meet those of the node. The detector's
// default run has that of the tests of inBubblesOfGossip.
func bothBubbles(t *testing.T, gossips bool, test func(t *testing.T, gossip bool)) {
	for _, gossip := range []bool{true, false} {
		name := map[bool]string{true: "gossip", false: "simulated"}[gossip]
		t.Run(name, func(t *testing.T) {
			switch {
			case race.Enabled && !gossip && full.Enabled(t):
				race.SkipAlike(t, "the same test with gossip")
			case gossip && !gossips:
				full.Only(t, "the same test with simulated membership, and the tests of inBubblesOfGossip")
			case !gossip && gossips:
				full.Only(t, "the same test with gossip")
			}
			t.Parallel()
			inBubble(t, func(t *testing.T) { test(t, gossip) })
		})
	}
}

// ready waits until these nodes see each other and hold what they own.
func (w *world) ready(t *testing.T, names ...string) {
	t.Helper()
	require.True(t, within(30*time.Second, func() bool {
		for _, name := range names {
			if !w.nodes[name].Ready() {
				return false
			}
		}
		return w.agree(names...)
	}), "%v are ready", names)
}

// ask has every node ask for the key so often, and counts what is allowed.
func ask(t *testing.T, ls map[string]*weir.Limiter, key string, times int, names ...string) (admitted int) {
	t.Helper()
	for range times {
		for _, name := range names {
			d, err := ls[name].Allow(t.Context(), key)
			if err != nil { // require takes longer than the check
				t.Fatal(err)
			}
			if d.Allowed {
				admitted++
			}
		}
	}
	return admitted
}

// exhaustAll has every node ask so often, and then until a limit of so many units is
// used up: what lies in leases is there for others within a second.
func exhaustAll(t *testing.T, ls map[string]*weir.Limiter, key string, units int, names ...string) {
	t.Helper()
	admitted := ask(t, ls, key, units, names...)
	for begun := time.Now(); admitted < units && time.Since(begun) < time.Second; {
		time.Sleep(50 * time.Millisecond)
		admitted += ask(t, ls, key, 1, names...)
	}
	require.Equal(t, units, admitted)
}

// fill asks for all keys on one side, and adds what is admitted to admitted.
func fill(t *testing.T, ls map[string]*weir.Limiter, admitted []int, times int, names ...string) {
	t.Helper()
	for i := range admitted {
		admitted[i] += ask(t, ls, fmt.Sprint(i), times, names...)
	}
}

// close ends a world within a test that makes several.
func (w *world) close(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		w.network.Host(name).Kill()
		require.NoError(t, w.nodes[name].Close())
	}
}
