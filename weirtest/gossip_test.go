package weirtest_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

// gossip is a real cluster for a host of the network.
func gossip(n *weirtest.Network, host, incarnation string, join ...string) cluster.Cluster {
	return cluster.NewGossip(cluster.Config{
		Name:    host + "-" + incarnation,
		Bind:    host + ":7946",
		Join:    join,
		Region:  "r",
		Logger:  slog.New(slog.DiscardHandler),
		Network: n.Host(host).Network(),
	})
}

func TestGossipThroughASplitAndACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := weirtest.NewNetwork(1, weirtest.Link{Latency: milli, Jitter: milli})
		f := newFleet(t, n)
		defer time.Sleep(60 * second) // Close does not wait for memberlist's last probes
		defer f.close()
		hosts := []string{"a", "b", "c", "d", "e"}
		n.SetName("weir.internal", hosts...)
		for _, h := range hosts {
			f.start(h, gossip(n, h, "1", "weir.internal"))
		}
		whole := "a-1 serving, b-1 serving, c-1 serving, d-1 serving, e-1 serving"
		t.Log("met after", f.becomes(whole, 10*second, hosts...))

		n.Split(hosts[:2], hosts[2:])
		t.Log("the minority saw the split after",
			f.becomes("a-1 serving, b-1 serving, c-1 unheard, d-1 unheard, e-1 unheard", 2*second, "a", "b"))
		time.Sleep(75 * second)
		n.Heal()
		healed := time.Now()
		f.hearEachOther(5*second, hosts...)
		t.Log("heard each other again after", time.Since(healed))
		f.becomes(whole, 15*second-time.Since(healed), hosts...)
		t.Log("one roster again after", time.Since(healed))

		n.Host("c").Kill()
		start := time.Now()
		_, err := f.ask("a", "c", 10*milli)
		require.Error(t, err)
		require.LessOrEqual(t, took(start), 10*milli)
		_, err = f.ask("a", "c", 10*milli)
		require.ErrorIs(t, err, cluster.ErrUnheard)
		t.Log("dead after", f.becomes(strings.Replace(whole, "c-1 serving", "c-1 dead", 1), 60*second, "a", "b", "d", "e"))
		f.start("c", gossip(n, "c", "2", "weir.internal"))
		f.becomes(strings.Replace(whole, "c-1", "c-2", 1), 15*second, hosts...)

		n.Host("d").Freeze()
		_, err = f.ask("a", "d", 10*milli)
		require.ErrorIs(t, err, cluster.ErrTimeout)
		time.Sleep(200 * milli)
		start = time.Now()
		_, err = f.ask("a", "d", 10*milli)
		require.ErrorIs(t, err, cluster.ErrStalled)
		require.Zero(t, took(start))
		t.Log("missed after", f.becomes(strings.Replace(strings.Replace(whole, "c-1", "c-2", 1), "d-1 serving", "d-1 unheard", 1), second, "a"))
		_, err = f.ask("a", "d", 10*milli)
		require.ErrorIs(t, err, cluster.ErrUnheard)
		time.Sleep(3 * second)
		n.Host("d").Thaw()
		f.hearEachOther(5*second, hosts...)
	})
}

// A cut alone is silent: the ask fails when its wait has passed.
func TestACutThatBreaksConnectionsFailsAnAskAtOnce(t *testing.T) {
	for membership, start := range map[string]func(n *weirtest.Network, host string) cluster.Cluster{
		"simulated": func(n *weirtest.Network, host string) cluster.Cluster { return n.Host(host).Cluster(cluster.Config{}) },
		"gossip":    func(n *weirtest.Network, host string) cluster.Cluster { return gossip(n, host, "1", "weir.internal") },
	} {
		t.Run(membership, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := weirtest.NewNetwork(1, weirtest.Link{Latency: 10 * milli})
				f := newFleet(t, n)
				defer time.Sleep(60 * second) // Close does not wait for memberlist's last probes
				defer f.close()
				n.SetName("weir.internal", "a", "b", "c")
				for _, h := range []string{"a", "b", "c"} {
					f.start(h, start(n, h))
				}
				f.hearEachOther(10*second, "a", "b", "c")
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
						require.Equal(t, second/10, took(began))
						require.NotErrorIs(t, err, cluster.ErrBroken)
					} else {
						require.Equal(t, 5*milli, took(began))
						require.ErrorIs(t, err, cluster.ErrBroken)
						_, err = f.ask("a", "b", second/10)
						require.ErrorIs(t, err, cluster.ErrUnheard)
					}
					_, err = f.ask("a", "c", second/10)
					require.NoError(t, err)
					time.Sleep(second)
					n.Heal()
					f.hearEachOther(5*second, "a", "b", "c")
					answer, err := f.ask("a", "b", second/10)
					require.NoError(t, err)
					require.Equal(t, "hello b", answer)
				}
			})
		})
	}
}

// hearEachOther waits until every host hears every other itself.
func (f *fleet) hearEachOther(within time.Duration, hosts ...string) {
	f.t.Helper()
	start := time.Now()
	for {
		deaf := ""
		for _, h := range hosts {
			v := f.clusters[h].View()
			for j, heard := range v.Direct {
				if !heard {
					deaf = h + " does not hear " + v.Members[j].Name
				}
			}
			if len(v.Members) < len(hosts) {
				deaf = h + " misses members"
			}
		}
		if deaf == "" {
			return
		}
		if time.Since(start) > within {
			f.t.Fatalf("after %v %s", within, deaf)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
