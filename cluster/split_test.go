package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/testenv"
)

// These tests use memberlist and real frames, in virtual time.

var (
	quiet  = slog.New(slog.DiscardHandler)
	secret = [][]byte{[]byte("0123456789abcdef")}
)

// inBubble runs a test in virtual time, and waits for the end of the last probes of memberlist,
// because Close does not.
func inBubble(t *testing.T, test func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		test(t)
	})
}

// onChange is a handler that handles only Changed.
type onChange func()

func (f onChange) Changed()                              { f() }
func (onChange) Answered()                               {}
func (onChange) Serve(*cluster.Batch)                    {}
func (onChange) HandleLate(cluster.Peer, []byte, []byte) {}

var mute = onChange(func() {})

// steadfast announces Serving whenever it finds itself Joining.
type steadfast struct {
	onChange
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

func memberName(i int) string { return fmt.Sprintf("m%02d", i) }

// setAll makes the name "all" resolve to the first n hosts, and returns their names.
func (h hosts) setAll(n int) (names []string) {
	for i := range n {
		names = append(names, hostName(i))
	}
	h.SetName("all", names...)
	return names
}

// startMember starts a node that joins by the name "all", as with a headless service.
func (h hosts) startMember(t *testing.T, i int, forget time.Duration) cluster.Cluster {
	t.Helper()
	cfg := h.configure(hostName(i), config(""))
	cfg.Name, cfg.Join, cfg.Forget = memberName(i), []string{"all"}, forget
	c := cluster.NewGossip(cfg)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.NoError(t, c.Start(context.Background(), steadfast{Cluster: c}))
	return c
}

// startMembers starts n members and waits until every roster contains all of them as Serving.
func (h hosts) startMembers(t *testing.T, n int, forget time.Duration) (nodes []cluster.Cluster) {
	t.Helper()
	h.setAll(n)
	for i := range n {
		nodes = append(nodes, h.startMember(t, i, forget))
	}
	waitFor(t, 15*time.Second, "all members find each other", func() bool { return rostersAre(nodes, servingMembers(n)) })
	return nodes
}

// memberStates returns the states of all members in the views of nodes, by member.
func memberStates(nodes []cluster.Cluster) (all []map[string]cluster.State) {
	for _, c := range nodes {
		seen := make(map[string]cluster.State)
		for _, m := range c.View().Members {
			seen[m.Name] = m.State
		}
		all = append(all, seen)
	}
	return all
}

func rostersAre(nodes []cluster.Cluster, want map[string]cluster.State) bool {
	return !slices.ContainsFunc(memberStates(nodes), func(seen map[string]cluster.State) bool { return !maps.Equal(seen, want) })
}

// waitFor waits in virtual time until cond holds, and returns how long it took.
func waitFor(t *testing.T, d time.Duration, what string, cond func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !cond() {
		require.LessOrEqual(t, time.Since(start), d, "not within %v: %s", d, what)
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(start)
}

func servingMembers(n int) map[string]cluster.State {
	want := make(map[string]cluster.State)
	for i := range n {
		want[memberName(i)] = cluster.Serving
	}
	return want
}

// The members are in a rolling upgrade from version 1 to 2.
func TestGossipOfTwoVersionsConforms(t *testing.T) {
	old, young := cluster.Speaks{}, cluster.Speaks{Oldest: 1, Newest: 2}
	clustertest.Run(t, func(t *testing.T, test func(*testing.T, clustertest.World)) {
		onHosts(t, func(t *testing.T, h hosts) {
			test(t, clustertest.World{Size: 3, New: func(i int) cluster.Cluster {
				cfg := h.configure(hostName(i), config(""))
				cfg.Name, cfg.Join, cfg.Forget = memberName(i), []string{"host0:7946"}, 20*time.Second
				return cluster.NewGossipThatSpeaks([]cluster.Speaks{old, young, old}[i], cfg)
			}, News: time.Minute, Freeze: func(i int) func() {
				h.Host(hostName(i)).Freeze()
				return h.Host(hostName(i)).Thaw
			}})
		})
	})
}

func TestRostersAgreeWithin15sAfterSplit(t *testing.T) {
	for _, c := range []struct {
		name    string
		n, left int           // members, and how many of them are on the first side
		forget  time.Duration // Config.Forget: a smaller side waits ten times as long, and tombstones last twenty times as long
		lasts   time.Duration
		shownBy string // the cases of the default run that show the same; empty for a case of the default run
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
				testenv.SkipUnlessFull(t, c.shownBy)
			}
			onHosts(t, func(t *testing.T, h hosts) {
				nodes := h.startMembers(t, c.n, c.forget)
				all := h.setAll(c.n)
				h.Split(all[:c.left], all[c.left:])
				waitFor(t, 3*time.Second, "the sides are disconnected", func() bool {
					return nodes[0].View().Members[c.n-1].State != cluster.Serving
				})
				time.Sleep(c.lasts)
				for i, seen := range memberStates(nodes) {
					for j := range c.n {
						state, in := seen[memberName(j)]
						if (i < c.left) == (j < c.left) {
							require.Equal(t, cluster.Serving, state, "%d sees %d", i, j)
						} else {
							require.True(t, !in || state == cluster.Dead || state == cluster.Missing, "%d sees %d %v", i, j, state)
						}
					}
				}
				h.Heal()
				waitFor(t, 15*time.Second, "one roster", func() bool { return rostersAre(nodes, servingMembers(c.n)) })
				time.Sleep(time.Minute)
				require.True(t, rostersAre(nodes, servingMembers(c.n)), "and it stays: %v", memberStates(nodes))
			})
		})
	}
}

func TestReplacedDeadMembersAreForgottenAfterForget(t *testing.T) {
	const forget = 90 * time.Second // the first death is 40 s before the last
	onHosts(t, func(t *testing.T, h hosts) {
		nodes := h.startMembers(t, 3, forget)
		h.setAll(6)
		for i := range 3 {
			h.Host(hostName(i)).Kill()
			require.NoError(t, nodes[i].Close())
			time.Sleep(20 * time.Second)
			nodes = append(nodes, h.startMember(t, 3+i, forget))
		}
		want := servingMembers(6)
		for i := range 3 {
			delete(want, memberName(i))
		}
		took := waitFor(t, forget+10*time.Second, "the dead are forgotten", func() bool { return rostersAre(nodes[3:], want) })
		require.Greater(t, took, forget-30*time.Second)
	})
}

func TestAnnouncementReachesDisconnectedMembers(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		nodes := h.startMembers(t, 5, 0)
		h.Split([]string{hostName(0)}, []string{hostName(1)})
		waitFor(t, 5*time.Second, "m00 and m01 are disconnected", func() bool { return !nodes[0].View().Direct[1] })
		for _, s := range []cluster.State{cluster.Leaving, cluster.Serving, cluster.Leaving, cluster.Serving} {
			want := servingMembers(5)
			want["m00"] = s
			require.NoError(t, nodes[0].Announce(s))
			time.Sleep(10 * time.Millisecond)
			for _, c := range nodes[2:] {
				require.Equal(t, s, c.View().Members[0].State, "a connected member knows after one latency")
			}
			waitFor(t, time.Second, fmt.Sprint("m00 is ", s), func() bool { return rostersAre(nodes, want) })
			time.Sleep(3 * time.Second)
		}
	})
}

func TestForgottenMemberLeavesAllRosters(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		nodes := h.startMembers(t, 4, 0)
		h.Host(hostName(3)).Freeze()
		dead := servingMembers(4)
		dead["m03"] = cluster.Dead
		waitFor(t, 30*time.Second, "the crash is noticed", func() bool { return rostersAre(nodes[:3], dead) })
		require.NoError(t, nodes[0].Forget("m03"))
		waitFor(t, 5*time.Second, "m03 is in no roster", func() bool { return rostersAre(nodes[:3], servingMembers(3)) })
		h.Host(hostName(3)).Thaw()
	})
}

// A leaver does not return by itself, and its Close does not make it dead.
func TestLeaverStaysAwayAndFollowsTheRoster(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		nodes := h.startMembers(t, 3, 0)
		leaver := nodes[2]
		require.NoError(t, leaver.Leave(context.Background()))
		require.NoError(t, leaver.Leave(context.Background()), "Leave may be called again")
		waitFor(t, 2*time.Second, "the leaver is in no roster, not even its own", func() bool { return rostersAre(nodes, servingMembers(2)) })
		v := leaver.View()
		require.Equal(t, -1, v.Self)
		require.Equal(t, []bool{true, true}, v.Direct, "the leaver is still connected to the other members")

		h.setAll(4)
		nodes = append(nodes, h.startMember(t, 3, 0))
		want := servingMembers(2)
		want["m03"] = cluster.Serving
		waitFor(t, 10*time.Second, "the leaver sees the new member", func() bool { return rostersAre(nodes, want) })
		stays := func(nodes []cluster.Cluster, d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				require.True(t, rostersAre(nodes, want), "%v", memberStates(nodes))
			}
		}
		stays(nodes, 75*time.Second) // gossip has forgotten the dead by then
		require.NoError(t, leaver.Close())
		stays([]cluster.Cluster{nodes[0], nodes[1], nodes[3]}, 30*time.Second)
	})
}

func TestNameThatResolvesLaterIsJoined(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		nodes := []cluster.Cluster{h.startMember(t, 0, 0), h.startMember(t, 1, 0)}
		for _, c := range nodes {
			require.Contains(t, c.Stats().JoinError, `"all" does not resolve`)
		}
		time.Sleep(time.Minute)
		h.setAll(2)
		waitFor(t, 10*time.Second, "they find each other", func() bool { return rostersAre(nodes, servingMembers(2)) })
		waitFor(t, 10*time.Second, "the error goes", func() bool {
			return nodes[0].Stats().JoinError == "" && nodes[1].Stats().JoinError == ""
		})
	})
}

// A process that is restarted at once returns before gossip detects its death. A node that finds a new
// member at the address of a member knows that the old member is gone.
func TestRestartedMemberReplacesOldMember(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		nodes := h.startMembers(t, 3, 0)
		h.Host(hostName(2)).Kill()
		require.NoError(t, nodes[2].Close())
		cfg := h.configure(hostName(2), config(""))
		cfg.Name, cfg.Join = "m02 again", []string{"all"}
		again := cluster.NewGossip(cfg)
		defer again.Close()
		require.NoError(t, again.Start(context.Background(), steadfast{Cluster: again}))
		nodes[2] = again
		want := servingMembers(2)
		want["m02 again"] = cluster.Serving
		waitFor(t, 2*time.Second, "the new member has replaced the old member", func() bool { return rostersAre(nodes, want) })
	})
}
