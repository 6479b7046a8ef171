package weirtest_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

// bothClusters has the functions that return the cluster of a host, with simulated
// membership and with real gossip.
var bothClusters = map[string]func(n *weirtest.Network, host string) cluster.Cluster{
	"simulated": func(n *weirtest.Network, host string) cluster.Cluster { return n.Host(host).Cluster(cluster.Config{}) },
	"gossip": func(n *weirtest.Network, host string) cluster.Cluster {
		return cluster.NewGossip(cluster.Config{
			Name: host + "-1", Bind: host + ":7946", Join: []string{"a:7946"}, Network: n.Host(host).Network(),
			Logger: slog.New(slog.DiscardHandler),
		})
	},
}

// After a cut without a break, a request fails at the end of its wait.
func TestBreakEndsPendingRequestAtOnce(t *testing.T) {
	for membership, start := range bothClusters {
		t.Run(membership, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := weirtest.NewNetwork(1, weirtest.Link{Latency: 10 * milli})
				t.Cleanup(func() { time.Sleep(60 * second) }) // Close does not wait for memberlist's last probes
				f := newFleet(t, n)
				for _, h := range []string{"a", "b", "c"} {
					f.start(h, start(n, h))
				}
				f.awaitConnections(10*second, "a", "b", "c")
				for _, breaks := range []bool{false, true} {
					began := time.Now()
					time.AfterFunc(5*milli, func() {
						n.Cut("a", "b")
						if breaks {
							n.Break("a", "b")
						}
					})
					_, err := f.ask("a", "b", second/10)
					if !breaks {
						require.Equal(t, second/10, elapsed(began))
						require.NotErrorIs(t, err, cluster.ErrBroken)
					} else {
						require.Equal(t, 5*milli, elapsed(began))
						require.ErrorIs(t, err, cluster.ErrBroken)
						_, err = f.ask("a", "b", second/10)
						require.ErrorIs(t, err, cluster.ErrDisconnected)
					}
					_, err = f.ask("a", "c", second/10)
					require.NoError(t, err)
					time.Sleep(second)
					n.Heal()
					f.awaitConnections(5*second, "a", "b", "c")
					answer, err := f.ask("a", "b", second/10)
					require.NoError(t, err)
					require.Equal(t, "hello b", answer)
				}
			})
		})
	}
}

// awaitConnections waits until each host has a direct connection to every other host.
func (f *fleet) awaitConnections(within time.Duration, hosts ...string) {
	f.t.Helper()
	f.await(within, func() string {
		for _, h := range hosts {
			v := f.clusters[h].View()
			if slices.Contains(v.Direct, false) || len(v.Members) < len(hosts) {
				return fmt.Sprintf("%s is not connected to all: %v of %v", h, v.Direct, v.Members)
			}
		}
		return ""
	})
}
