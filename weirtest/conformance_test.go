package weirtest_test

import (
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/weirtest"
)

func TestSoloConforms(t *testing.T) {
	clustertest.Run(t, func(t *testing.T, test func(*testing.T, clustertest.World)) {
		test(t, clustertest.World{Size: 1, New: func(int) cluster.Cluster { return cluster.NewSolo("alone", "r") }})
	})
}

func TestSimulatedClusterConforms(t *testing.T) {
	clustertest.Run(t, func(t *testing.T, test func(*testing.T, clustertest.World)) {
		synctest.Test(t, func(t *testing.T) {
			test(t, worldOf(func(h *weirtest.Host, c cluster.Config) cluster.Cluster { return h.Cluster(c) }))
		})
	})
}

func TestGossipOnASimulatedNetworkConforms(t *testing.T) {
	clustertest.Run(t, func(t *testing.T, test func(*testing.T, clustertest.World)) {
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(func() { time.Sleep(time.Minute) }) // Close does not wait for memberlist's last probes
			test(t, worldOf(func(h *weirtest.Host, c cluster.Config) cluster.Cluster {
				c.Name, c.Bind, c.Network = h.Name()+"-1", h.Name()+":7946", h.Network()
				c.Logger = slog.New(slog.DiscardHandler)
				return cluster.NewGossip(c)
			}))
		})
	})
}

// worldOf returns a world of three nodes in a region, and of further nodes in another
// region. The function node returns the cluster of a node.
func worldOf(node func(*weirtest.Host, cluster.Config) cluster.Cluster) clustertest.World {
	n := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond, Jitter: time.Millisecond})
	host, far := func(i int) string { return "host" + strconv.Itoa(i) }, func(i int) string { return "far" + strconv.Itoa(i) }
	freeze := func(name func(i int) string) func(i int) func() {
		return func(i int) func() {
			n.Host(name(i)).Freeze()
			return n.Host(name(i)).Thaw
		}
	}
	return clustertest.World{
		Size: 3,
		New: func(i int) cluster.Cluster {
			c := cluster.Config{Region: "r", Regions: map[string][]string{"far": {"far.test:7946"}}, Join: []string{"host0:7946"}}
			return node(n.Host(host(i)), c)
		},
		Freeze: freeze(host),
		Abroad: func(i int, c cluster.Config) cluster.Cluster {
			for j := range 3 {
				for _, link := range [][2]string{{far(i), host(j)}, {host(j), far(i)}} {
					n.SetLink(link[0], link[1], weirtest.Link{Latency: 100 * time.Millisecond, Jitter: 50 * time.Millisecond, Loss: 0.01})
				}
			}
			return node(n.Host(far(i)), c)
		},
		FreezeAbroad: freeze(far),
		Resolve: func(nodes ...int) {
			var hosts []string
			for _, i := range nodes {
				hosts = append(hosts, far(i))
			}
			n.SetName("far.test", hosts...)
		},
	}
}
