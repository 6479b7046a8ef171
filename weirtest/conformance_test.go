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
			n := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond, Jitter: time.Millisecond})
			host := func(i int) *weirtest.Host { return n.Host("host" + strconv.Itoa(i)) }
			test(t, abroad(n, clustertest.World{
				Size: 3,
				New: func(i int) cluster.Cluster {
					return host(i).Cluster(cluster.Config{Region: "r", Regions: map[string][]string{"far": {"far.test:7946"}}})
				},
				Freeze: func(i int) func() {
					host(i).Freeze()
					return host(i).Thaw
				},
			}, func(h *weirtest.Host, c cluster.Config) cluster.Cluster { return h.Cluster(c) }))
		})
	})
}

func TestGossipOnASimulatedNetworkConforms(t *testing.T) {
	clustertest.Run(t, func(t *testing.T, test func(*testing.T, clustertest.World)) {
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(func() { time.Sleep(time.Minute) }) // Close does not wait for memberlist's last probes
			n := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond, Jitter: time.Millisecond})
			node := func(h *weirtest.Host, c cluster.Config) cluster.Cluster {
				c.Name, c.Bind, c.Network = h.Name()+"-1", h.Name()+":7946", h.Network()
				c.Logger = slog.New(slog.DiscardHandler)
				return cluster.NewGossip(c)
			}
			host := func(i int) *weirtest.Host { return n.Host("host" + strconv.Itoa(i)) }
			test(t, abroad(n, clustertest.World{
				Size: 3,
				New: func(i int) cluster.Cluster {
					return node(host(i), cluster.Config{
						Region: "r", Regions: map[string][]string{"far": {"far.test:7946"}}, Join: []string{"host0:7946"},
					})
				},
				Freeze: func(i int) func() {
					host(i).Freeze()
					return host(i).Thaw
				},
			}, node))
		})
	})
}

// abroad is w with another region.
func abroad(n *weirtest.Network, w clustertest.World, node func(*weirtest.Host, cluster.Config) cluster.Cluster) clustertest.World {
	host := func(i int) string { return "far" + strconv.Itoa(i) }
	w.Abroad = func(i int, c cluster.Config) cluster.Cluster {
		for j := range 3 {
			for _, link := range [][2]string{{host(i), "host" + strconv.Itoa(j)}, {"host" + strconv.Itoa(j), host(i)}} {
				n.SetLink(link[0], link[1], weirtest.Link{Latency: 100 * time.Millisecond, Jitter: 50 * time.Millisecond, Loss: 0.01})
			}
		}
		return node(n.Host(host(i)), c)
	}
	w.Resolve = func(nodes ...int) {
		var hosts []string
		for _, i := range nodes {
			hosts = append(hosts, host(i))
		}
		n.SetName("far.test", hosts...)
	}
	w.FreezeAbroad = func(i int) func() {
		n.Host(host(i)).Freeze()
		return n.Host(host(i)).Thaw
	}
	return w
}
