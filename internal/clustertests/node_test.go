package clustertests

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// A node that starts alone can serve at once. If several nodes start together, one of them begins
// after the time in which it could learn of serving nodes, and the other nodes join it.
func TestFirstNodesAreReadySoon(t *testing.T) {
	inBubblesOfGossip(t, func(t *testing.T, gossip bool) {
		for n, soon := range map[int]time.Duration{1: 0, 2: 2 * time.Second, 3: 2 * time.Second, 5: 2 * time.Second} {
			for _, expect := range []int{0, n} {
				w := emptyWorld(nil, gossip)
				begun := time.Now()
				w.startTogether(t, weir.Config{Expect: expect}, hosts(n)...)
				ready := func() bool {
					for _, node := range w.nodes {
						if !node.Ready() {
							return false
						}
					}
					return w.agree(w.names...)
				}
				if soon == 0 {
					require.True(t, ready(), "a node that starts alone")
					require.Zero(t, time.Since(begun))
				}
				require.True(t, waitFor(20*time.Second, ready))
				require.LessOrEqual(t, time.Since(begun), soon)
				ls := w.limiters(t, weir.Limit{Name: "test", Rate: 10, Per: time.Hour})
				require.Equal(t, 10, ask(t, ls, "key", 10, w.names...))
				w.close(t)
			}
		}
	})
}

// After a heal, there may be no member that has authority for the ranges of a member that crashed
// during the split. A node that starts at this time could wait for another member to hand over
// these ranges, although that member does not have them and treats the joiner as their owner.
// Checks must be passed on to a member that answers them, both during the joins and afterwards.
func TestJoinersDoNotWaitForEachOther(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		w.network.Split([]string{"a"}, []string{"b"}, []string{"c"})
		time.Sleep(2 * time.Second)
		w.network.Host("c").Kill()
		w.network.Heal()
		time.Sleep(time.Second)
		w.start(t, "c", weir.Config{})
		time.Sleep(2 * time.Second)
		w.start(t, "d", weir.Config{})
		time.Sleep(2 * time.Second)
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Hour})
		passed := func() (n uint64) {
			for _, name := range w.names {
				n += w.nodes[name].Stats().Passed
			}
			return n
		}
		keys := testenv.PickFull(t, 16, 80) // there are always ten rounds, because the nodes join in this time
		for round := range 10 {
			for key := range keys {
				for _, name := range w.names {
					check := func() uint64 {
						before := passed()
						allowed(t, ls[name], fmt.Sprint(key), 1)
						return passed() - before
					}
					// c and d begin to serve in the same millisecond. A check in this millisecond meets nodes
					// that do not know it yet, and may be passed on once more.
					n := check()
					if n == 4 {
						n = check()
					}
					require.LessOrEqual(t, n, uint64(3), "key %d of %s, round %d", key, name, round)
				}
			}
			time.Sleep(2 * time.Second)
		}
		require.True(t, w.agree(w.names...), "all have joined")
	})
}

// If all members of a side have crashed and restarted, one of them stands in for the side. The side
// has a single FailOpen limit, and not a limit for each member.
func TestNewSideAgreesOnStandIn(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		w.network.Split([]string{"a"}, []string{"b", "c"})
		for _, name := range []string{"b", "c"} {
			time.Sleep(3 * time.Second)
			w.network.Host(name).Kill()
			time.Sleep(3 * time.Second)
			w.start(t, name, weir.Config{})
		}
		time.Sleep(3 * time.Second)
		ls := w.limiters(t, weir.Limit{Name: "open", Rate: 100, Per: time.Hour, Partition: weir.FailOpen})
		shared := w.limiters(t, weir.Limit{Name: "shared", Rate: 100, Per: time.Hour})
		for i := range 10 {
			require.Equal(t, 100, ask(t, ls, fmt.Sprint(i), 100, "b", "c"))
			require.Equal(t, 0, ask(t, shared, fmt.Sprint(i), 1, "b", "c"), "restarted nodes have no weight")
		}
		w.network.Heal()
		require.True(t, waitFor(30*time.Second, func() bool { return w.agree(w.names...) }))
		for i := range 10 {
			require.Equal(t, 0, ask(t, ls, fmt.Sprint(i), 1, w.names...), "the units of the stand-in count")
		}
	})
}

func TestLoneNodeServesItsShareOfExpect(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := emptyWorld(hosts(3), true)
		w.network.Split([]string{"a"}, []string{"b"}, []string{"c"})
		for _, name := range w.names {
			w.start(t, name, weir.Config{Expect: 3})
		}
		admitted := func(l weir.Limit) (total int64) {
			for _, limiter := range w.limiters(t, l) {
				for range 200 {
					d := allowed(t, limiter, "k", 1)
					if d.Allowed {
						total++
					}
				}
			}
			return total
		}
		require.EqualValues(t, 99, admitted(weir.Limit{Name: "shared", Rate: 100, Per: time.Hour}))
		require.EqualValues(t, 0, admitted(weir.Limit{Name: "closed", Rate: 100, Per: time.Hour, Partition: weir.FailClosed}))
		require.EqualValues(t, 300, admitted(weir.Limit{Name: "open", Rate: 100, Per: time.Hour, Partition: weir.FailOpen}))
		require.NotEmpty(t, w.nodes["b"].Stats().Cluster.JoinError)

		w.network.Heal()
		require.True(t, waitFor(20*time.Second, func() bool { return w.agree(w.names...) }), "the nodes try to join again")
		require.EqualValues(t, 100, admitted(weir.Limit{Name: "whole", Rate: 100, Per: time.Hour}))
	})
}

// If a node is restarted and cannot reach any other member, it has no counts. After the heal, the
// units of both sides are counted once.
func TestDisconnectedStartLosesNoUnit(t *testing.T) {
	inBubblesOfGossip(t, func(t *testing.T, gossip bool) {
		const keys = 60 // so that each node is the successor for some of them
		for _, n := range []int{3, 2, 5}[:testenv.PickRace(1, testenv.PickFull(t, 2, 3))] {
			w := newWorld(t, n, gossip)
			limit := weir.Limit{Name: "test", Algorithm: weir.SlidingLog, Rate: 10_000, Per: time.Hour, Partition: weir.FailOpen}
			ls := w.limiters(t, limit)
			admitted := make([]int, keys)
			fill(t, ls, admitted, 3, w.names...)
			time.Sleep(200 * time.Millisecond)
			w.network.Host("a").Kill()
			w.network.Split([]string{"a"}, w.names[1:])
			time.Sleep(2 * time.Second)
			fill(t, ls, admitted, 3, w.names[1:]...)
			w.start(t, "a", weir.Config{})
			ls = w.limiters(t, limit)
			time.Sleep(2 * time.Second)
			fill(t, ls, admitted, 3, w.names...)
			w.network.Heal()
			w.ready(t, w.names...)
			time.Sleep(20 * time.Second)
			for i := range admitted {
				for _, name := range w.names {
					d := peek(t, ls[name], fmt.Sprint(i))
					require.EqualValues(t, admitted[i], 10_000-d.Remaining, "key %d of %s of %d: %v", i, name, n, d.Source)
				}
			}
			w.close(t)
		}
	})
}

// A joiner serves only after it has received the counts of the ranges that it will own or stand in
// for.
func TestJoinerHasCountsBeforeItServes(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		const keys = 4000
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 10, Per: time.Hour})
		requireAdmits(t, 1, ls, numbers(keys), 1, "a")
		d := w.start(t, "d", weir.Config{})
		require.True(t, waitFor(10*time.Second, func() bool {
			for _, m := range d.Members() {
				if m.Self {
					return m.State == weir.Serving
				}
			}
			return false
		}))
		require.Greater(t, d.Stats().Keys, keys*2/4*85/100, "the joiner owns a quarter of the keys, and stands in for a quarter")
		w.ready(t, w.names...)
	})
}

// Each key has a member with authority, at whatever time a joiner crashes.
func TestFailedJoinLeavesNoKeyWithoutAuthority(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		moments := testenv.PickFull(t, 5, 18)
		for moment := range moments {
			after := time.Duration(moment) * 400 * time.Millisecond / time.Duration(moments)
			w := newWorld(t, 3, gossip)
			ls := w.limiters(t, weir.Limit{Name: "test", Rate: 20, Per: time.Hour})
			const keys = 20
			requireAdmits(t, 10, ls, numbers(keys), 5, "a", "b")
			time.Sleep(200 * time.Millisecond)
			w.network.Host("d")
			w.names = append(w.names, "d")
			time.AfterFunc(after, w.network.Host("d").Kill)
			var starting sync.WaitGroup
			starting.Go(func() { w.tryStart(t, "d", weir.Config{}) }) // the kill may interrupt the start
			time.Sleep(after + time.Second)
			for i := range keys {
				require.LessOrEqual(t, ask(t, ls, fmt.Sprint(i), 10, "a", "b", "c"), 10, "killed after %v", after)
			}
			time.Sleep(10 * time.Second)
			for i := range keys {
				for _, name := range []string{"a", "b", "c"} {
					d := peek(t, ls[name], fmt.Sprint(i))
					require.Zero(t, d.Remaining, "killed after %v", after)
					require.Less(t, d.Source, weir.Budget, "killed after %v: a member answers for key %d", after, i)
				}
			}
			starting.Wait()
			w.close(t)
		}
	})
}

// When Leave returns, the next owners have the counts of the leaver. The leaver forwards the checks
// of its callers, and the requests that it still receives.
func TestLeaverHandsOverAndForwardsChecks(t *testing.T) {
	inEachWorld(t, 3, []int{1, -1}, withReplicas, func(t *testing.T, w *world, replicas int) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 30, Per: time.Hour})
		const keys = 100
		requireAdmits(t, 15, ls, numbers(keys), 5, w.names...)
		require.NoError(t, w.nodes["a"].Leave(t.Context()))
		require.False(t, w.nodes["a"].Ready())
		requireRemaining(t, 15, ls, numbers(keys), w.names...)
		requireAdmits(t, 15, ls, numbers(keys), 10, w.names...)
		require.NoError(t, w.nodes["a"].Leave(t.Context()), "a second Leave has no effect")
	})
}

// If the next owner is missing, a leaver hands over to another node, which may crash before the
// owner returns. Then any node with a replica sends the counts to the owner.
func TestHandedOverCountsOutliveTheirReceiver(t *testing.T) {
	inWorlds(t, 4, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Hour})
		const keys = 60
		w.network.Split([]string{"a", "b", "c"}, []string{"d"})
		time.Sleep(3 * time.Second)
		requireAdmits(t, 60, ls, numbers(keys), 20, "a", "b", "c")
		w.leave(t, "a")
		w.network.Host("a").Kill()
		time.Sleep(time.Second)
		w.network.Host("b").Kill()
		time.Sleep(2 * time.Second)
		w.network.Heal()
		time.Sleep(20 * time.Second)
		for i := range keys {
			for _, name := range []string{"c", "d"} {
				require.LessOrEqual(t, remaining(t, ls[name], fmt.Sprint(i)), int64(40), "key %d at %s", i, name)
			}
		}
	})
}

// If a clock is set back, a member that is missing must not be considered connected. A node that
// was cut off still knows that other members may have the counts of a leaver.
func TestSteppedBackClockCountsNothingTwice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := emptyWorld(hosts(3), false)
		var back atomic.Int64
		for _, name := range w.names {
			w.start(t, name, weir.Config{Now: func() time.Time {
				if name == "c" {
					return time.Now().Add(-time.Duration(back.Load()))
				}
				return time.Now()
			}})
		}
		w.ready(t, w.names...)
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Hour})
		const keys = 60
		requireAdmits(t, 30, ls, numbers(keys), 10, w.names...)
		time.Sleep(time.Second)
		w.network.Split([]string{"a", "b"}, []string{"c"})
		cut := time.Now()
		time.Sleep(3 * time.Second)
		w.leave(t, "a")
		w.network.Host("a").Kill()
		time.Sleep(time.Second)
		back.Store(int64(time.Since(cut) - 800*time.Millisecond))
		time.AfterFunc(200*time.Millisecond, w.network.Heal)
		w.startTogether(t, weir.Config{}, "d") // this start makes c check again which members it hears
		require.True(t, waitFor(40*time.Second, func() bool { return w.agree("b", "c", "d") }))
		time.Sleep(2 * time.Second)
		requireRemaining(t, 70, ls, numbers(keys), "c")
	})
}

// A member is not missing if it has answered a check too late. A leaver must wait for such a
// member.
func TestLeaverWaitsForLateMember(t *testing.T) {
	inEachWorld(t, 2, []int{1, -1}, withReplicas, func(t *testing.T, w *world, replicas int) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 30, Per: time.Hour})
		key, other := keyOf(t, ls["a"]), keyOf(t, ls["b"])
		require.Equal(t, 30, ask(t, ls, key, 30, w.names...))
		w.network.SetLink("b", "a", weirtest.Link{Latency: 200 * time.Millisecond})
		allowed(t, ls["a"], other, 1)
		w.network.SetLink("b", "a", weirtest.Link{Latency: latency})
		require.NoError(t, w.nodes["a"].Leave(t.Context()))
		require.NoError(t, w.nodes["a"].Close())
		w.network.Host("a").Kill()
		time.Sleep(3 * time.Second)
		require.Zero(t, ask(t, ls, key, 30, "b"), "replicas %d", replicas)
	})
}

// If the goodbye of a leaver is lost, the leaver sends another, and may receive checks until then.
// The node reports the units that it grants on its own in this time, although it is no longer in
// the roster.
func TestUnitsGrantedAfterLostGoodbyeAreCounted(t *testing.T) {
	inWorlds(t, 2, weir.Config{}, func(t *testing.T, w *world) {
		w.network.Host("b").Kill()
		time.Sleep(3 * time.Second)
		w.start(t, "c", weir.Config{}) // c has no authority while b is missing
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Hour, Partition: weir.FailOpen})
		w.network.Split([]string{"a"}, []string{"c"})
		left := make(chan error, 1)
		go func() { left <- w.nodes["c"].Leave(t.Context()) }()
		time.Sleep(100 * time.Millisecond)
		for range 7 {
			d := allowed(t, ls["c"], "key", 1)
			require.True(t, d.Allowed)
			require.Equal(t, weir.FailedOpen, d.Source)
		}
		w.network.Heal()
		require.NoError(t, <-left)
		require.True(t, waitFor(2*time.Second, func() bool {
			d, err := ls["a"].Peek(t.Context(), "key")
			return err == nil && d.Remaining == 93
		}))
	})
}

// A hand-over continues after the context of Leave has expired. A second call of Leave
// waits for the hand-over.
func TestCanceledLeaveContinues(t *testing.T) {
	inEachWorld(t, 3, []int{1, -1}, withReplicas, func(t *testing.T, w *world, replicas int) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 30, Per: time.Hour})
		const keys = 100
		requireAdmits(t, 15, ls, numbers(keys), 5, w.names...)
		ctx, cancel := context.WithTimeout(t.Context(), latency)
		require.ErrorIs(t, w.nodes["a"].Leave(ctx), context.DeadlineExceeded)
		cancel()
		requireAdmits(t, 3, ls, numbers(keys), 1, w.names...)
		time.Sleep(time.Second)
		requireRemaining(t, 12, ls, numbers(keys), w.names...)
		require.NoError(t, w.nodes["a"].Leave(t.Context()))
		require.True(t, waitFor(time.Second, func() bool { return w.agree("b", "c") }))
	})
}

// A hand-over continues even if it takes longer than the time for which Leave waits.
func TestLongHandOverLosesNoUnit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorldOf(t, 3, false, weir.Config{Replicas: -1})
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 10, Per: time.Hour})
		keys := keysOf(ls["a"], 10_000)
		for _, key := range keys {
			_, err := ls["a"].Debit(t.Context(), key, 3)
			require.NoError(t, err)
		}
		time.Sleep(time.Second)
		w.slow("a", "b", 400*time.Millisecond)
		w.slow("a", "c", 400*time.Millisecond)
		begun := time.Now()
		require.ErrorContains(t, w.nodes["a"].Leave(t.Context()), "in time")
		require.GreaterOrEqual(t, time.Since(begun), 10*time.Second)
		time.Sleep(8 * time.Second)
		w.setLinks(weirtest.Link{Latency: latency})
		require.NoError(t, w.nodes["a"].Leave(t.Context()))
		time.Sleep(time.Second)
		for i, key := range keys {
			require.EqualValues(t, 7, remaining(t, ls[w.names[i%3]], key), key)
		}
	})
}

// A leaver may receive a call of AllowAll after it has handed over the keys to two different
// members. All granted units are counted at the new owners, although the leaver is closed at once.
func TestUnitsGrantedByLeaverAreCounted(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 1000, Per: time.Hour})
		keys := keysOf(ls["a"], 20)
		require.Equal(t, len(keys), askAll(t, w.nodes["b"], ls["b"], keys...))
		time.Sleep(time.Second)
		var asking sync.WaitGroup
		for i := range 40 {
			asking.Go(func() {
				time.Sleep(time.Duration(i+1) * latency / 8)
				assert.Equal(t, len(keys), askAll(t, w.nodes["b"], ls["b"], keys...))
			})
		}
		time.Sleep(2 * latency)
		w.leave(t, "a")
		asking.Wait()
		time.Sleep(time.Second)
		requireRemaining(t, 1000-41, ls, keys, "b", "c")
	})
}

// If the next owner is missing, a leaver hands over to the stand-in of this owner. The leaver
// forwards the requests that it still receives to the stand-in.
func TestLeaverForwardsChecksToStandIn(t *testing.T) {
	inWorlds(t, 4, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 1000, Per: time.Hour})
		const keys = 60
		time.Sleep(time.Second)
		w.network.Host("d").Kill()
		time.Sleep(3 * time.Second)
		used := make([]int, keys)
		var asking sync.WaitGroup
		for i := range keys {
			asking.Go(func() {
				time.Sleep(time.Duration(i+1) * latency / 15)
				used[i] = ask(t, ls, fmt.Sprint(i), 1, "b")
			})
		}
		time.Sleep(2 * latency)
		w.leave(t, "a")
		asking.Wait()
		time.Sleep(time.Second)
		for i := range keys {
			for _, name := range []string{"b", "c"} {
				require.EqualValues(t, 1000-used[i], remaining(t, ls[name], fmt.Sprint(i)), "key %d at %s", i, name)
			}
		}
	})
}

// Node a restarts at once. When its successor b leaves, b does not know whether another member has
// the ranges of the previous process. For some of these counts b has the only replica.
func TestLeaverWaitsForUncertainCounts(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Hour})
		const keys = 60
		for i := range keys {
			exhaustAll(t, ls, fmt.Sprint(i), 100, "a", "b", "c")
		}
		time.Sleep(time.Second)
		w.network.Host("a").Kill()
		require.NoError(t, w.nodes["a"].Close())
		w.start(t, "a", weir.Config{})
		time.Sleep(500 * time.Millisecond)
		w.leave(t, "b")
		time.Sleep(3 * time.Second)
		requireRemaining(t, 0, ls, numbers(keys), "c")
	})
}

// Node b is lost, and a leaves while b restarts. With three nodes, c is the successor of b and must
// wait for the counts of a. With two nodes, a is the last serving member and must wait for b.
func TestLeaverHandsOverToRestartingOwner(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{3, 2} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			inWorlds(t, nodes, weir.Config{}, func(t *testing.T, w *world) {
				l, a := weir.Limit{Name: "test", Rate: 100, Per: time.Hour}, w.nodes["a"]
				const keys = 60
				requireAdmits(t, 20, w.limiters(t, l), numbers(keys), 10, "a", "b")
				time.Sleep(time.Second)
				require.NoError(t, w.nodes["b"].Close())
				w.network.Host("b").Kill()
				time.Sleep(500 * time.Millisecond) // b is missing, and still in the roster
				var starting sync.WaitGroup
				starting.Go(func() {
					_, err := w.tryStart(t, "b", weir.Config{})
					assert.NoError(t, err)
				})
				require.NoError(t, a.Leave(t.Context()))
				starting.Wait()
				require.NoError(t, a.Close())
				time.Sleep(3 * time.Second)
				limiter, err := w.nodes["b"].Limiter(l)
				require.NoError(t, err)
				requireRemaining(t, 80, limiterMap{"b": limiter}, numbers(keys), "b")
			})
		})
	}
}

// askAll requests a unit of each key in one AllowAll, and returns the number of granted units.
func askAll(t *testing.T, n *weir.Node, l *weir.Limiter, keys ...string) (granted int) {
	asks := make([]weir.Ask, len(keys))
	for i, key := range keys {
		asks[i] = weir.Ask{Limiter: l, Key: key}
	}
	ds, err := n.AllowAll(t.Context(), asks...)
	assert.NoError(t, err)
	if ds.Allowed() {
		granted = len(ds)
	}
	return granted
}

func TestClosedNodeReturnsErrClosed(t *testing.T) {
	n, err := weir.Start(t.Context(), weir.Config{})
	require.NoError(t, err)
	l, err := n.Limiter(weir.Limit{Name: "test", Rate: 10, Per: time.Second})
	require.NoError(t, err)
	require.True(t, n.Ready())
	require.NoError(t, n.Close())
	require.NoError(t, n.Close(), "again")
	_, err = l.Allow(t.Context(), "k")
	require.ErrorIs(t, err, weir.ErrClosed)
	_, err = n.AllowAll(t.Context(), weir.Ask{Limiter: l})
	require.ErrorIs(t, err, weir.ErrClosed)
	require.ErrorIs(t, l.Wait(t.Context(), "k", 1), weir.ErrClosed)
	require.ErrorIs(t, l.Refund(t.Context(), "k", 1), weir.ErrClosed)
	require.ErrorIs(t, l.Reset(t.Context(), "k"), weir.ErrClosed)
	_, err = n.Limiter(l.Limit())
	require.ErrorIs(t, err, weir.ErrClosed)
	require.False(t, n.Ready())
}

// A leaver that has to send a large number of counts over a slow link keeps authority
// until it has sent them. The nodes that wait for authority must not take it earlier.
func TestLeaverKeepsAuthorityDuringHandOver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const limit = 100
		w := newWorldOf(t, 3, false, weir.Config{Replicas: -1, Timeout: 5 * time.Second})
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: limit, Per: time.Hour})
		keys := keysOf(ls["a"], 20_000)
		for _, key := range keys[1:] {
			_, err := ls["a"].Debit(t.Context(), key, 1)
			require.NoError(t, err)
		}
		key := keys[0]
		time.Sleep(time.Second)
		for _, other := range w.names[1:] {
			w.slow("a", other, 250*time.Millisecond)
		}
		admitted := ask(t, ls, key, 45, "a", "b")
		begun := time.Now()
		require.ErrorContains(t, w.nodes["a"].Leave(t.Context()), "in time")
		for time.Since(begun) < 20*time.Second {
			admitted += ask(t, ls, key, 1, w.names...)
			time.Sleep(time.Second)
		}
		require.Equal(t, limit, admitted)
		require.False(t, w.nodes["b"].Ready() && w.nodes["c"].Ready(), "they wait")
		require.NoError(t, w.nodes["a"].Leave(t.Context()))
		require.True(t, waitFor(time.Second, func() bool { return w.nodes["b"].Ready() && w.nodes["c"].Ready() }))
		require.Zero(t, ask(t, ls, key, 1, w.names[1:]...))
	})
}

// The owner of a count already has the units in the replica of a member that leaves, so
// no other member sends these units to the owner.
func TestOwnerReceivesNoReplicasOfLeaver(t *testing.T) {
	inWorlds(t, 4, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.SlidingLog, Rate: 1000, Per: time.Hour})
		fill(t, ls, make([]int, 200), 1, w.names...)
		time.Sleep(200 * time.Millisecond)
		require.NoError(t, w.nodes["b"].Leave(t.Context()))
		time.Sleep(500 * time.Millisecond)
		for _, name := range []string{"a", "c", "d"} {
			require.Zero(t, w.nodes[name].Stats().Stream.Tallies, "at %s", name)
		}
	})
}
