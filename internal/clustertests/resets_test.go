package clustertests

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

// These tests check that no crash, freeze, deploy or scale-out resets a count. The bounds are
// those of the table in docs/guarantees.md.

// counted is a key of a limit with an algorithm.
type counted struct {
	algorithm weir.Algorithm
	ls        map[string]*weir.Limiter
	key       string
	admitted  int
}

// ownedBy returns a key of the node for each algorithm, each key with its own limit. The
// keys share a world, because a world for each key takes much longer.
func (w *world) ownedBy(t *testing.T, owner string, l weir.Limit) (all []*counted) {
	for _, algorithm := range algorithms {
		l.Name, l.Algorithm = algorithm.String(), algorithm
		ls := w.limiters(t, l)
		all = append(all, &counted{algorithm: algorithm, ls: ls, key: keyOf(t, ls[owner])})
	}
	return all
}

func TestCrashOfOwnerGivesNoFreshQuota(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 5} {
		t.Run(fmt.Sprint("of ", n), func(t *testing.T) {
			inBubbles(t, func(t *testing.T, gossip bool) {
				for range testenv.PickFull(t, 1, 4) {
					w := newWorld(t, n, gossip)
					all := w.ownedBy(t, "a", weir.Limit{Rate: 100, Per: time.Hour})
					for _, c := range all {
						exhaustAll(t, c.ls, c.key, 100, w.names...)
					}
					time.Sleep(200 * time.Millisecond)
					w.network.Host("a").Kill()
					for range 20 {
						for _, c := range all {
							c.admitted += ask(t, c.ls, c.key, 5, w.names[1:]...)
						}
						time.Sleep(500 * time.Millisecond)
					}
					for _, c := range all {
						require.LessOrEqual(t, c.admitted, 1, c.algorithm)
					}
					w.close(t)
				}
			})
		})
	}
}

// The bound is L + L/16 + 2a·RTT, where a is the number of units per second that all nodes ask
// for.
func TestCrashDuringBurstKeepsBound(t *testing.T) {
	const limit, rtt = 1600, 2 * latency
	some := algorithms[:testenv.PickRace(2, testenv.PickFull(t, 2, 5))]
	inEachWorld(t, 3, some, nil, func(t *testing.T, w *world, algorithm weir.Algorithm) {
		ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: algorithm, Rate: limit, Per: time.Hour})
		key := keyOf(t, ls["a"])
		var granted atomic.Int64
		var wait sync.WaitGroup
		for _, name := range w.names[1:] {
			for range 8 {
				wait.Go(func() {
					for range 400 {
						d, err := ls[name].Allow(t.Context(), key)
						assert.NoError(t, err)
						if d.Allowed {
							granted.Add(1)
						}
						time.Sleep(100 * time.Microsecond)
					}
				})
			}
		}
		time.Sleep(time.Duration(5+slices.Index(some, algorithm)) * time.Millisecond)
		w.network.Host("a").Kill()
		wait.Wait()
		rate := 16 * float64(time.Second) / float64(100*time.Microsecond+rtt) // units per second that all the nodes ask for
		time.Sleep(time.Second)                                               // until all leases have ended
		admitted := int(granted.Load()) + ask(t, ls, key, limit/8, w.names[1:]...)
		bound := limit + limit/16 + int(2*rate*rtt.Seconds()) + 1
		require.LessOrEqual(t, admitted, bound)
		lost := len(w.names[1:]) * limit / 16 // the units of a lease for each node, if the responses with the leases were lost
		require.GreaterOrEqual(t, admitted, limit*97/100-lost)
	})
}

func TestThawedOwnerGivesNoFreshQuota(t *testing.T) {
	inEachWorld(t, 3, numbers(testenv.PickFull(t, 1, 2)), nil, func(t *testing.T, w *world, _ string) {
		all := w.ownedBy(t, "a", weir.Limit{Rate: 100, Per: time.Hour})
		for _, c := range all {
			require.Equal(t, 100, ask(t, c.ls, c.key, 100, w.names...))
		}
		time.Sleep(200 * time.Millisecond)
		knock := func(names ...string) {
			for range 30 {
				for _, c := range all {
					c.admitted += ask(t, c.ls, c.key, 1, names...)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		host := w.network.Host("a")
		host.Freeze()
		knock("b", "c")
		host.Thaw()
		knock(w.names...)
		for _, c := range all {
			require.LessOrEqual(t, c.admitted, 1, c.algorithm)
		}
	})
}

// Once the owner is connected again, its count soon includes the units that the stand-in admitted.
func TestThawedOwnerReceivesUnitsOfStandIn(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		all := w.ownedBy(t, "a", weir.Limit{Rate: 100, Per: time.Hour})
		for _, c := range all {
			require.Equal(t, 30, ask(t, c.ls, c.key, 10, w.names...))
		}
		time.Sleep(200 * time.Millisecond)
		host := w.network.Host("a")
		host.Freeze()
		for _, c := range all {
			require.Equal(t, 40, ask(t, c.ls, c.key, 20, "b", "c"))
		}
		time.Sleep(3 * time.Second)
		host.Thaw()
		require.True(t, waitFor(5*time.Second, func() bool { return w.agree(w.names...) }))
		time.Sleep(time.Second)
		for _, c := range all {
			for name, l := range c.ls {
				require.EqualValues(t, 30, remaining(t, l, c.key), "%v at %s", c.algorithm, name)
			}
			require.Equal(t, 30, ask(t, c.ls, c.key, 30, w.names...))
		}
	})
}

// load is a set of clients that check random keys on the nodes that serve. A check that returns an
// error fails the test.
type load struct {
	*clients
	limit weir.Limit
	when  map[string][]time.Time // the times at which each key was admitted; guarded by mu
}

// load starts the clients. The limit of each key is lower than the number of its checks.
func (w *world) load(t *testing.T) *load {
	keys := testenv.PickRace(40, testenv.PickFull(t, 60, 1000)) // so that some of the keys are checked while authority over them is being transferred
	const number = 10
	pause := 400 * time.Millisecond * number / time.Duration(keys) // 75 checks of each key in Per
	ld := &load{clients: newClients(t), when: make(map[string][]time.Time)}
	ld.limit = weir.Limit{Name: "test", Algorithm: weir.SlidingLog, Rate: 50, Per: 30 * time.Second}
	for i := range keys {
		ld.when[fmt.Sprint("key ", i)] = nil
	}
	for _, name := range w.names {
		ld.serve(w.nodes[name])
	}
	for k := range number {
		random := rand.New(rand.NewPCG(uint64(k), 1))
		ld.add(k, 0, pause, func(*weir.Node) {
			ld.mu.Lock()
			n := ld.serving[random.IntN(len(ld.serving))]
			ld.mu.Unlock()
			key := fmt.Sprint("key ", random.IntN(keys))
			l, err := n.Limiter(ld.limit)
			if err != nil {
				t.Error(err)
				return
			}
			d, err := l.Allow(t.Context(), key)
			assert.NoError(t, err)
			if d.Allowed {
				ld.mu.Lock()
				ld.when[key] = append(ld.when[key], time.Now())
				ld.mu.Unlock()
			}
		})
	}
	return ld
}

// mostWithin returns the largest number of these times in any window of length per.
func mostWithin(per time.Duration, when []time.Time) (most int) {
	slices.SortFunc(when, time.Time.Compare)
	from := 0
	for i := range when {
		for when[i].Sub(when[from]) >= per {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// restart replaces the process on a host as a deploy does.
func (w *world) restart(t *testing.T, ld *load, name string) {
	ld.drain(w.nodes[name])
	w.leave(t, name)
	w.network.Host(name).Kill()
	w.start(t, name, weir.Config{})
	require.True(t, waitFor(10*time.Second, w.nodes[name].Ready), "%s is ready again", name)
	ld.serve(w.nodes[name])
}

// judge requires that no key was granted more than its limit allows, and that all keys together were
// granted at least the given percentage of the units that their limits allow.
func (ld *load) judge(begun time.Time, percent int) {
	ld.end()
	sum := 0
	for key, when := range ld.when {
		require.LessOrEqual(ld.t, mostWithin(ld.limit.Per, when), int(ld.limit.Rate)+1, key)
		sum += len(when)
	}
	windows := time.Since(begun) / ld.limit.Per
	grants := int(windows) * len(ld.when) * int(ld.limit.Rate)
	require.GreaterOrEqual(ld.t, sum, grants*percent/100)
}

func TestRollingRestartResetsNothing(t *testing.T) {
	inWorlds(t, 5, weir.Config{}, func(t *testing.T, w *world) {
		w.ready(t, w.names...)
		begun := time.Now()
		ld := w.load(t)
		time.Sleep(20 * time.Second)
		for _, name := range w.names {
			w.restart(t, ld, name)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Minute + time.Second - time.Since(begun))
		ld.judge(begun, 97)
	})
}

func TestAddingAndRemovingNodesResetsNothing(t *testing.T) {
	testenv.SkipAlike(t, "TestRollingRestartResetsNothing")
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		begun := time.Now()
		ld := w.load(t)
		time.Sleep(20 * time.Second)
		w.names = hosts(6)
		for _, name := range w.names[3:] { // all at once
			w.start(t, name, weir.Config{})
		}
		w.ready(t, w.names...)
		for _, name := range w.names[3:] {
			ld.serve(w.nodes[name])
		}
		time.Sleep(10 * time.Second)
		var leaving sync.WaitGroup
		for _, name := range w.names[:4] {
			ld.drain(w.nodes[name])
		}
		for _, name := range w.names[:4] {
			leaving.Go(func() {
				assert.NoError(t, w.nodes[name].Leave(t.Context()), name)
			})
		}
		leaving.Wait()
		for _, name := range w.names[:4] {
			require.NoError(t, w.nodes[name].Close())
		}
		w.ready(t, w.names[4:]...)
		time.Sleep(90*time.Second + time.Second - time.Since(begun))
		ld.judge(begun, 96) // the names of the nodes decide the ring: the least of 81 runs was 96.97 %
	})
}

func TestChecksAreExactTwoSecondsAfterLinkBreaks(t *testing.T) {
	inEachWorld(t, 3, [][2]string{{"a", "b"}, {"a", "c"}, {"b", "c"}}, nil, func(t *testing.T, w *world, pair [2]string) {
		w.ready(t, w.names...)
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Hour})
		w.cut(pair[0], pair[1])
		ask(t, ls, "another", 1, w.names...)
		time.Sleep(2 * time.Second)
		for _, owner := range w.names {
			require.Equal(t, 100, ask(t, ls, keyOf(t, ls[owner]), 100, w.names...), "%v down, owner %s", pair, owner)
		}
	})
}

// In this test, the clocks of the nodes differ by minutes, and are stepped while nodes
// send counts to each other.
func TestSkewedAndSteppedClocksResetNothing(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		w := emptyWorld(hosts(3), gossip)
		var mu sync.Mutex
		offset := map[string]time.Duration{"a": 0, "b": 7 * time.Minute, "c": -3 * time.Minute}
		for _, name := range w.names {
			w.start(t, name, weir.Config{Now: func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Add(offset[name])
			}})
		}
		w.ready(t, w.names...)
		step := func(name string, by time.Duration) {
			mu.Lock()
			offset[name] += by
			mu.Unlock()
			time.Sleep(time.Second)
		}
		all := w.ownedBy(t, "a", weir.Limit{Rate: 60, Per: time.Hour})
		spend := func(times int) {
			for _, c := range all {
				c.admitted += ask(t, c.ls, c.key, times, w.names...)
			}
		}
		spend(10)
		step("b", -5*time.Minute)
		step("c", 4*time.Minute)
		spend(5)
		step("a", -2*time.Minute)
		spend(5)
		time.Sleep(200 * time.Millisecond)
		w.network.Host("a").Kill()
		time.Sleep(time.Second)
		for _, c := range all {
			require.Equal(t, 60, c.admitted, c.algorithm)
			refilled := 0 // the units that may have drained from a bucket in the meantime
			if c.algorithm == weir.TokenBucket || c.algorithm == weir.LeakyBucket {
				refilled = 1
			}
			require.LessOrEqual(t, ask(t, c.ls, c.key, 60, "b", "c"), refilled, c.algorithm)
		}
	})
}

// If a limit is changed, the units in use are converted only once, even if another node has taken
// over the count.
func TestChangedLimitOutlivesItsOwner(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		old := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.SlidingWindow, Rate: 100, Per: time.Hour, Version: 1})
		key := keyOf(t, old["a"])
		require.Equal(t, 60, ask(t, old, key, 20, w.names...))
		changed := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.TokenBucket, Rate: 90, Per: time.Hour, Burst: 90, Version: 2})
		require.Equal(t, 3, ask(t, changed, key, 1, w.names...))
		time.Sleep(time.Second) // until all leases have ended
		w.network.Host("a").Kill()
		require.EqualValues(t, 27, remaining(t, changed["b"], key))
		require.EqualValues(t, 27, remaining(t, old["c"], key), "the higher Version also applies to a check with the old one")
	})
}

func TestResetReachesAllOrNamesUnreachedMembers(t *testing.T) {
	l := weir.Limit{Algorithm: weir.SlidingLog, Rate: 30, Per: time.Hour}
	inLimitedWorlds(t, 3, l, func(t *testing.T, w *world, ls limiterMap, key string) {
		require.Equal(t, 30, ask(t, ls, key, 20, w.names...))
		time.Sleep(200 * time.Millisecond)
		require.NoError(t, ls["c"].Reset(t.Context(), key))
		require.Equal(t, 30, ask(t, ls, key, 20, w.names...))
		time.Sleep(200 * time.Millisecond)

		// The owner misses a Reset, and learns of it when it thaws.
		w.network.Host("a").Freeze()
		time.Sleep(2 * time.Second)
		var partial *weir.ErrPartial
		require.ErrorAs(t, ls["c"].Reset(t.Context(), key), &partial)
		require.Len(t, partial.Members, 1)
		require.Equal(t, 12, ask(t, ls, key, 6, "b", "c"))
		w.network.Host("a").Thaw()
		require.True(t, waitFor(5*time.Second, func() bool { return w.agree(w.names...) }))
		time.Sleep(time.Second)
		require.Equal(t, 18, ask(t, ls, key, 20, w.names...))
	})
}
