package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/weirtest"
)

// Real memberlist, real frames, virtual time.

var (
	quiet  = slog.New(slog.DiscardHandler)
	secret = [][]byte{[]byte("0123456789abcdef")}
)

// inBubble runs a test in virtual time, and lets memberlist's last probes run
// out before it ends: Close does not wait for them.
func inBubble(t *testing.T, test func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		test(t)
	})
}

type mute struct{}

func (mute) Changed()                          {}
func (mute) Heard()                            {}
func (mute) Serve(b *cluster.Batch)            {}
func (mute) Late(cluster.Peer, []byte, []byte) {}

// steadfast announces Serving whenever it finds itself Joining.
type steadfast struct {
	mute
	cluster.Cluster
}

func (s steadfast) Changed() {
	if v := s.View(); v.Self >= 0 && v.Members[v.Self].State == cluster.Joining {
		if err := s.Announce(cluster.Serving); err != nil && !errors.Is(err, cluster.ErrClosed) {
			panic(err)
		}
	}
}

func hostName(i int) string { return "host" + strconv.Itoa(i) }

// virtual starts member i of a network. Its Join entry is the name that all
// members have together, as with a headless service.
func virtual(t *testing.T, n *weirtest.Network, i int) cluster.Cluster {
	t.Helper()
	return forgetful(t, n, i, 0)
}

// forgetful is virtual with a Forget of its own.
func forgetful(t *testing.T, n *weirtest.Network, i int, forget time.Duration) cluster.Cluster {
	t.Helper()
	c := cluster.NewGossip(cluster.Config{
		Name: fmt.Sprintf("m%02d", i), Bind: hostName(i) + ":7946", Join: []string{"all"},
		Secrets: secret, Forget: forget, Logger: quiet, Network: n.Host(hostName(i)).Network(),
	})
	require.NoError(t, c.Start(context.Background(), steadfast{Cluster: c}))
	return c
}

// states is how each of nodes sees all, by member.
func states(nodes []cluster.Cluster) (all []map[string]cluster.State) {
	for _, c := range nodes {
		seen := make(map[string]cluster.State)
		for _, m := range c.View().Members {
			seen[m.Name] = m.State
		}
		all = append(all, seen)
	}
	return all
}

func agree(nodes []cluster.Cluster, want map[string]cluster.State) bool {
	for _, seen := range states(nodes) {
		if len(seen) != len(want) {
			return false
		}
		for name, s := range want {
			if seen[name] != s {
				return false
			}
		}
	}
	return true
}

// within waits in virtual time until cond holds, and returns how long it took.
func within(t *testing.T, d time.Duration, what string, cond func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !cond() {
		if time.Since(start) > d {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(start)
}

func serving(n int) map[string]cluster.State {
	want := make(map[string]cluster.State)
	for i := range n {
		want[fmt.Sprintf("m%02d", i)] = cluster.Serving
	}
	return want
}

// In a rolling upgrade from version 7 to 8, and from 8 to 9.
func TestGossipOfTwoVersionsConforms(t *testing.T) {
	for _, c := range []struct {
		name       string
		old, young cluster.Speaks
	}{
		{"7 and 8", cluster.Speaks{Before: true}, cluster.Speaks{}},
		{"8 and 9", cluster.Speaks{}, cluster.Speaks{Oldest: 8, Newest: 9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			clustertest.Run(t, func(t *testing.T, test func(*testing.T, clustertest.World)) {
				conforms(t, test, c.old, c.young, c.old)
			})
		})
	}
}

// conforms tests a cluster whose members speak different versions.
func conforms(t *testing.T, test func(*testing.T, clustertest.World), speaks ...cluster.Speaks) {
	inBubble(t, func(t *testing.T) {
		n := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond, Jitter: time.Millisecond})
		test(t, clustertest.World{Size: 3, New: func(i int) cluster.Cluster {
			return cluster.NewGossipThatSpeaks(speaks[i], cluster.Config{
				Name: fmt.Sprintf("m%02d", i), Bind: hostName(i) + ":7946", Join: []string{"host0:7946"},
				Secrets: secret, Forget: 20 * time.Second, Logger: quiet, Network: n.Host(hostName(i)).Network(),
			})
		}, News: time.Minute, Freeze: func(i int) func() {
			n.Host(hostName(i)).Freeze()
			return n.Host(hostName(i)).Thaw
		}})
	})
}

func TestSidesOfASplitHaveOneRosterWithin15sOfItsEnd(t *testing.T) {
	for _, c := range []struct {
		name    string
		n, left int           // members, and how many of them are on the first side
		forget  time.Duration // ten times as long on the smaller side, and twenty for tombstones
		lasts   time.Duration
		shownBy string // in the default run; empty: it is played there
	}{
		{"too short for gossip to notice", 5, 2, 20 * time.Second, 2 * time.Second, ""},
		{"in the middle of noticing", 5, 2, 20 * time.Second, 12 * time.Second, ""},
		{"longer than gossip remembers the dead", 5, 2, 20 * time.Second, 75 * time.Second, ""},
		{"longer than the dead stay in the roster", 4, 1, 5 * time.Second, 90 * time.Second, ""},
		{"longer than tombstones last", 3, 1, 5 * time.Second, 3 * time.Minute, ""},
		{"of ten, one alone", 10, 1, 20 * time.Second, 75 * time.Second, "one alone of four, and a split of five that lasts as long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.shownBy != "" {
				full.Only(t, c.shownBy)
			}
			inBubble(t, func(t *testing.T) {
				net := weirtest.NewNetwork(7, weirtest.Link{Latency: time.Millisecond, Jitter: time.Millisecond})
				var hosts []string
				for i := range c.n {
					hosts = append(hosts, hostName(i))
				}
				net.SetName("all", hosts...)
				var nodes []cluster.Cluster
				for i := range c.n {
					nodes = append(nodes, forgetful(t, net, i, c.forget))
				}
				defer func() {
					for _, c := range nodes {
						require.NoError(t, c.Close())
					}
				}()
				took := within(t, 15*time.Second, "all find all", func() bool { return agree(nodes, serving(c.n)) })
				t.Logf("met after %v", took)
				net.Split(hosts[:c.left], hosts[c.left:])
				within(t, 3*time.Second, "the sides do not hear each other", func() bool {
					return nodes[0].View().Members[c.n-1].State != cluster.Serving
				})
				time.Sleep(c.lasts)
				for i, seen := range states(nodes) {
					for j := range c.n {
						state, in := seen[fmt.Sprintf("m%02d", j)]
						if (i < c.left) == (j < c.left) {
							require.Equal(t, cluster.Serving, state, "%d sees %d", i, j)
						} else {
							require.True(t, !in || state == cluster.Dead || state == cluster.Unheard, "%d sees %d %v", i, j, state)
						}
					}
				}
				net.Heal()
				took = within(t, 15*time.Second, "one roster", func() bool { return agree(nodes, serving(c.n)) })
				t.Logf("one roster %v after the split ended", took)
				time.Sleep(time.Minute)
				require.True(t, agree(nodes, serving(c.n)), "and it stays: %v", states(nodes))
			})
		})
	}
}

func TestDeadAreForgottenByTheLargerSide(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := weirtest.NewNetwork(3, weirtest.Link{Latency: time.Millisecond})
		net.SetName("all", hostName(0), hostName(1), hostName(2))
		var nodes []cluster.Cluster
		for i := range 3 {
			nodes = append(nodes, virtual(t, net, i))
		}
		within(t, 15*time.Second, "all find all", func() bool { return agree(nodes, serving(3)) })
		net.Host(hostName(2)).Freeze()
		require.NoError(t, nodes[2].Close())
		nodes = nodes[:2]
		defer nodes[0].Close()
		defer nodes[1].Close()
		dead := serving(3)
		dead["m02"] = cluster.Dead
		took := within(t, 30*time.Second, "the crash is noticed", func() bool { return agree(nodes, dead) })
		t.Logf("dead after %v", took)
		require.Error(t, nodes[0].Forget("m01"), "a living member is not forgotten")
		time.Sleep(5*time.Minute - 10*time.Second)
		require.True(t, agree(nodes, dead))
		within(t, 20*time.Second, "the dead is forgotten", func() bool { return agree(nodes, serving(2)) })
	})
}

func TestMembersThatAreReplacedElsewhereOneByOneAreForgottenForgetAfterTheLast(t *testing.T) {
	const forget = 2 * time.Minute // from the first death on it would be over 20 s after the last
	inBubble(t, func(t *testing.T) {
		net := weirtest.NewNetwork(3, weirtest.Link{Latency: time.Millisecond})
		var hosts []string
		for i := range 10 {
			hosts = append(hosts, hostName(i))
		}
		net.SetName("all", hosts...)
		var nodes []cluster.Cluster
		for i := range 5 {
			nodes = append(nodes, forgetful(t, net, i, forget))
		}
		within(t, 15*time.Second, "all find all", func() bool { return agree(nodes, serving(5)) })
		for i := range 5 {
			net.Host(hosts[i]).Kill()
			require.NoError(t, nodes[i].Close())
			time.Sleep(20 * time.Second)
			nodes = append(nodes, forgetful(t, net, 5+i, forget))
			defer nodes[5+i].Close()
		}
		want := serving(10)
		for i := range 5 {
			delete(want, fmt.Sprintf("m%02d", i))
		}
		took := within(t, forget+10*time.Second, "the dead are forgotten", func() bool { return agree(nodes[5:], want) })
		require.Greater(t, took, forget-30*time.Second)
		t.Logf("forgotten %v after the last was replaced", took)
	})
}

func TestAnAnnouncementReachesMembersThatDoNotHearTheSender(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := weirtest.NewNetwork(3, weirtest.Link{Latency: time.Millisecond})
		var hosts []string
		for i := range 5 {
			hosts = append(hosts, hostName(i))
		}
		net.SetName("all", hosts...)
		var nodes []cluster.Cluster
		for i := range 5 {
			nodes = append(nodes, virtual(t, net, i))
			defer nodes[i].Close()
		}
		within(t, 15*time.Second, "all find all", func() bool { return agree(nodes, serving(5)) })
		net.Split(hosts[:1], hosts[1:2])
		within(t, 5*time.Second, "they do not hear each other", func() bool { return !nodes[0].View().Direct[1] })
		var worst time.Duration
		for _, s := range []cluster.State{cluster.Leaving, cluster.Serving, cluster.Leaving, cluster.Serving} {
			want := serving(5)
			want["m00"] = s
			require.NoError(t, nodes[0].Announce(s))
			time.Sleep(10 * time.Millisecond)
			for _, c := range nodes[2:] {
				require.Equal(t, s, c.View().Members[0].State, "who hears it knows after a packet's way")
			}
			worst = max(worst, within(t, time.Second, fmt.Sprint("m00 is ", s), func() bool { return agree(nodes, want) }))
			time.Sleep(3 * time.Second)
		}
		t.Logf("known to all after %v at most", worst)
	})
}

func TestForgetReachesEveryone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := weirtest.NewNetwork(3, weirtest.Link{Latency: time.Millisecond})
		net.SetName("all", hostName(0), hostName(1), hostName(2), hostName(3))
		var nodes []cluster.Cluster
		for i := range 4 {
			nodes = append(nodes, virtual(t, net, i))
			defer nodes[i].Close()
		}
		within(t, 15*time.Second, "all find all", func() bool { return agree(nodes, serving(4)) })
		net.Host(hostName(3)).Freeze()
		dead := serving(4)
		dead["m03"] = cluster.Dead
		within(t, 30*time.Second, "the crash is noticed", func() bool { return agree(nodes[:3], dead) })
		require.NoError(t, nodes[0].Forget("m03"))
		took := within(t, 5*time.Second, "it is off every roster", func() bool { return agree(nodes[:3], serving(3)) })
		t.Logf("forgotten everywhere after %v", took)

		net.Host(hostName(3)).Thaw()
		took = within(t, 30*time.Second, "falsely buried, it comes back", func() bool { return agree(nodes, serving(4)) })
		t.Logf("back after %v", took)
	})
}

func TestLeaverStaysAwayAndFollowsTheRoster(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := weirtest.NewNetwork(3, weirtest.Link{Latency: time.Millisecond})
		net.SetName("all", hostName(0), hostName(1), hostName(2), hostName(3))
		var nodes []cluster.Cluster
		for i := range 3 {
			nodes = append(nodes, virtual(t, net, i))
			defer nodes[i].Close()
		}
		within(t, 15*time.Second, "all find all", func() bool { return agree(nodes, serving(3)) })
		require.NoError(t, nodes[2].Leave(context.Background()))
		require.NoError(t, nodes[2].Leave(context.Background()), "Leave may be called again")
		took := within(t, 2*time.Second, "it is off every roster, its own included", func() bool { return agree(nodes, serving(2)) })
		t.Logf("gone everywhere %v after Leave", took)
		v := nodes[2].View()
		require.Equal(t, -1, v.Self)
		require.Equal(t, []bool{true, true}, v.Direct, "it still hears the others")

		nodes = append(nodes, virtual(t, net, 3))
		defer nodes[3].Close()
		want := serving(2)
		want["m03"] = cluster.Serving
		within(t, 10*time.Second, "it sees who comes", func() bool { return agree(nodes, want) })
		time.Sleep(3 * time.Minute)
		require.True(t, agree(nodes, want), "it does not come back by itself: %v", states(nodes))
	})
}

func TestNameThatResolvesLaterIsJoined(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := weirtest.NewNetwork(3, weirtest.Link{Latency: time.Millisecond})
		nodes := []cluster.Cluster{virtual(t, net, 0), virtual(t, net, 1)}
		defer nodes[0].Close()
		defer nodes[1].Close()
		for _, c := range nodes {
			require.Contains(t, c.Stats().JoinError, `"all" does not resolve`)
		}
		time.Sleep(time.Minute)
		net.SetName("all", hostName(1), hostName(0))
		within(t, 10*time.Second, "they find each other", func() bool { return agree(nodes, serving(2)) })
		within(t, 10*time.Second, "the error goes", func() bool {
			return nodes[0].Stats().JoinError == "" && nodes[1].Stats().JoinError == ""
		})
	})
}

// A process that is restarted at once is back before gossip misses it: whoever
// finds another member at its address knows that it is gone.
func TestRestartAtOnceTakesTheDeadsPlaceAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := weirtest.NewNetwork(3, weirtest.Link{Latency: time.Millisecond})
		net.SetName("all", hostName(0), hostName(1), hostName(2))
		var nodes []cluster.Cluster
		for i := range 3 {
			nodes = append(nodes, virtual(t, net, i))
		}
		within(t, 15*time.Second, "all find all", func() bool { return agree(nodes, serving(3)) })
		net.Host(hostName(2)).Kill()
		require.NoError(t, nodes[2].Close())
		again := cluster.NewGossip(cluster.Config{
			Name: "m02 again", Bind: hostName(2) + ":7946", Join: []string{"all"},
			Secrets: secret, Logger: quiet, Network: net.Host(hostName(2)).Network(),
		})
		require.NoError(t, again.Start(context.Background(), steadfast{Cluster: again}))
		nodes[2] = again
		for _, n := range nodes {
			defer n.Close()
		}
		want := serving(2)
		want["m02 again"] = cluster.Serving
		took := within(t, 2*time.Second, "the new one has taken its place", func() bool { return agree(nodes, want) })
		t.Logf("after %v", took)
	})
}
