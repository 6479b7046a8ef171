package clustertests

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

const (
	unmet   = "no other member has answered"
	partial = "no member answered at some Join addresses"
)

// startJoining starts a node on a host of a network, with these Join addresses.
func startJoining(t *testing.T, n *weirtest.Network, name string, gossip bool, cfg weir.Config, join ...string) *weir.Node {
	node, err := startOn(t.Context(), t, n.Host(name), gossip, cluster.Config{Join: join, Logger: cfg.Logger}, cfg)
	require.NoError(t, err)
	return node
}

// readyAfter waits until a node is ready, and returns the duration, rounded up to 10 ms.
func readyAfter(t *testing.T, n *weir.Node) time.Duration {
	begun := time.Now()
	for !n.Ready() {
		require.Less(t, time.Since(begun), time.Minute)
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begun)
}

func TestUnansweredJoinDelaysReadyUntilTimeout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set    time.Duration
		expect int
		want   time.Duration
	}{
		"by default":  {0, 0, 10 * time.Second},
		"configured":  {30 * time.Second, 0, 30 * time.Second},
		"with Expect": {0, 3, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubblesOfGossip(t, func(t *testing.T, gossip bool) {
				network := weirtest.NewNetwork(1, weirtest.Link{Latency: latency})
				addHosts(network, "a", "refuses", "hangs")
				network.Host("hangs").Freeze()
				join := []string{"nowhere.internal", "refuses:7946", "hangs:7946"}
				log := new(logbook)
				begun := time.Now()
				node := startJoining(t, network, "a", gossip, weir.Config{JoinTimeout: c.set, Expect: c.expect, Logger: slog.New(log)}, join...)
				require.LessOrEqual(t, time.Since(begun), 4*time.Second, "Start does not wait for it")
				require.False(t, node.Ready())
				l, err := node.Limiter(weir.Limit{Name: "test", Rate: 3, Per: time.Hour})
				require.NoError(t, err)
				d := allowed(t, l, "key", 1)
				require.True(t, d.Allowed, "a node that is not ready answers checks")

				readyAfter(t, node)
				require.InDelta(t, c.want, time.Since(begun), float64(50*time.Millisecond))
				synctest.Wait()
				lines := log.findLines(unmet)
				require.Len(t, lines, 1)
				require.Equal(t, slog.LevelWarn, lines[0].level)
				require.Equal(t, c.want, lines[0].duration("waited"))
				for _, entry := range join {
					require.Contains(t, lines[0].attrs["unanswered"].String(), entry+": ")
				}
				require.Contains(t, lines[0].attrs["unanswered"].String(), "does not resolve")
				require.EqualValues(t, c.expect, lines[0].number("expect"))

				time.Sleep(10 * time.Minute)
				s := node.Stats()
				require.Equal(t, time.Since(begun), s.Unjoined, "Unjoined continues to grow")
				require.Len(t, s.Cluster.Unanswered, len(join))
				require.Len(t, log.findLines(unmet), 1, "and is logged once")

				startJoining(t, network, "refuses", gossip, weir.Config{Logger: quiet})
				require.True(t, waitFor(30*time.Second, func() bool { return len(node.Members()) == 2 }))
				require.True(t, waitFor(30*time.Second, node.Ready))
				require.Zero(t, node.Stats().Unjoined)
				require.True(t, waitFor(10*time.Second, func() bool { return len(node.Stats().Cluster.Unanswered) == 2 }), "with the next attempt")
			})
		})
	}
}

// The first node of a cluster becomes ready as soon as it meets the second.
func TestNodeIsReadyAfterItMeetsAnotherNode(t *testing.T) {
	inBubblesOfGossip(t, func(t *testing.T, gossip bool) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: latency})
		network.Host("a")
		network.Host("b")
		log := new(logbook)
		join := []string{"a:7946", "b:7946"}
		begun := time.Now()
		a := startJoining(t, network, "a", gossip, weir.Config{Logger: slog.New(log)}, join...)
		require.False(t, a.Ready())
		time.Sleep(4 * time.Second)
		require.False(t, a.Ready())
		b := startJoining(t, network, "b", gossip, weir.Config{Logger: slog.New(log)}, join...)
		readyAfter(t, a)
		readyAfter(t, b)
		require.Less(t, time.Since(begun), 6*time.Second)
		time.Sleep(time.Minute)
		require.Empty(t, log.findLines(unmet))
		require.Empty(t, log.findLines(partial))
	})
}

func TestJoinWithoutOtherNodesDelaysNothing(t *testing.T) {
	inBubblesOfGossip(t, func(t *testing.T, gossip bool) {
		for name, join := range map[string][]string{"no address": nil, "its own address": {"a:7946"}, "a service of itself alone": {"service:7946", "a:7946"}} {
			network := weirtest.NewNetwork(1, weirtest.Link{Latency: latency})
			network.Host("a")
			network.Host("b")
			network.SetName("service", "a")
			log := new(logbook)
			node := startJoining(t, network, "a", gossip, weir.Config{Logger: slog.New(log)}, join...)
			require.True(t, node.Ready(), name)
			network.SetName("service", "a", "b") // no node runs on b
			for range 30 {
				time.Sleep(time.Second)
				require.True(t, node.Ready(), "%s: the node stays ready", name)
			}
			require.Empty(t, log.findLines(unmet), name)
			require.NoError(t, node.Close())
		}
	})
}

func TestPartlyWrongJoinIsLoggedOnce(t *testing.T) {
	inBubblesOfGossip(t, func(t *testing.T, gossip bool) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: latency})
		network.Host("a")
		startJoining(t, network, "a", gossip, weir.Config{Logger: quiet}, "a:7946")
		log := new(logbook)
		node := startJoining(t, network, "b", gossip, weir.Config{Logger: slog.New(log)}, "a:7946", "nowhere.internal")
		require.Less(t, readyAfter(t, node), time.Second)
		time.Sleep(3 * time.Minute)
		lines := log.findLines(partial)
		require.Len(t, lines, 1)
		require.Equal(t, slog.LevelWarn, lines[0].level)
		require.Contains(t, lines[0].attrs["unanswered"].String(), "nowhere.internal: ")
		require.NotContains(t, lines[0].attrs["unanswered"].String(), "a:7946")
		require.Empty(t, log.findLines(unmet))
		require.Zero(t, node.Stats().Unjoined)
	})
}
