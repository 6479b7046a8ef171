package clustertests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

// pausing admits each check of a key that is not paused.
var pausing = weir.Limit{Name: "test", Algorithm: weir.TokenBucket, Rate: 1000, Burst: 100, Per: time.Second, Pauses: true}

// pauseSlack is the maximum time by which a pause may end early or late, because the time is rounded in the
// count, and copies of the count take time to arrive.
const pauseSlack = 20 * time.Millisecond

// pause pauses a key from now on.
func pause(t *testing.T, l *weir.Limiter, key string, d time.Duration) {
	t.Helper()
	require.NoError(t, l.Pause(t.Context(), key, d))
}

// requirePaused requires that the named nodes deny a key until the time end.
func requirePaused(t *testing.T, ls limiterMap, key string, end time.Time, names ...string) {
	t.Helper()
	requirePausedBetween(t, ls, key, end, end, names...)
}

// requirePausedBetween requires that the named nodes deny a key until a time from first
// to last. If the owner of a key does not answer, the asking node begins the pause
// earlier than the stand-in.
func requirePausedBetween(t *testing.T, ls limiterMap, key string, first, last time.Time, names ...string) {
	t.Helper()
	for _, name := range names {
		d := allowed(t, ls[name], key, 1)
		require.True(t, d.Paused && !d.Allowed && !d.Banned, "%s: %+v", name, d)
		require.GreaterOrEqual(t, d.RetryAfter, time.Until(first)-pauseSlack, name)
		require.LessOrEqual(t, d.RetryAfter, time.Until(last)+pauseSlack, name)
		require.Equal(t, d.RetryAfter, d.ResetAfter)
		require.EqualValues(t, 100, d.Limit)
		require.Zero(t, d.Remaining)
	}
}

// requireResumed requires that the named nodes admit a key.
func requireResumed(t *testing.T, ls limiterMap, key string, names ...string) {
	t.Helper()
	for _, name := range names {
		d := allowed(t, ls[name], key, 1)
		require.True(t, d.Allowed && !d.Paused, "%s: %+v", name, d)
	}
}

func TestFivePausesAtOnceAreOnePause(t *testing.T) {
	inWorlds(t, 5, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, pausing)
		key := keyOf(t, ls["a"])
		requireResumed(t, ls, key, w.names...)
		end := time.Now().Add(5 * time.Second)
		var calls sync.WaitGroup
		for range 3 {
			for _, name := range w.names {
				calls.Go(func() {
					if err := ls[name].Pause(t.Context(), key, 5*time.Second); err != nil {
						t.Error(err)
					}
				})
			}
		}
		calls.Wait()
		for time.Until(end) > time.Millisecond {
			requirePaused(t, ls, key, end, w.names...)
			require.True(t, peek(t, ls["c"], key).Paused)
			time.Sleep(min(100*time.Millisecond, time.Until(end)-time.Millisecond))
		}
		time.Sleep(pauseSlack)
		requireResumed(t, ls, key, w.names...)
		require.EqualValues(t, weir.BanStats{}, w.nodes["b"].Stats().Bans["test"])
	})
}

func TestPauseReachesOtherNodesAtTheirNextRequest(t *testing.T) {
	for _, by := range []string{"a", "b"} { // the owner, and another node
		t.Run(by, func(t *testing.T) {
			inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
				ls := w.limiters(t, pausing)
				key := keyOf(t, ls["a"])
				begun := time.Now()
				pause(t, ls[by], key, time.Minute)
				requirePaused(t, ls, key, begun.Add(time.Minute), w.names...)
				served := w.nodes["a"].Stats().Served
				for range 250 { // for 25 seconds
					requirePaused(t, ls, key, begun.Add(time.Minute), "b", "c")
					time.Sleep(100 * time.Millisecond)
				}
				require.LessOrEqual(t, w.nodes["a"].Stats().Served-served, uint64(4), "each node repeats the denial for ten seconds")
				time.Sleep(time.Until(begun.Add(time.Minute + pauseSlack)))
				requireResumed(t, ls, key, w.names...)
			})
		})
	}
}

func TestPauseLastsUntilLaterEnd(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, pausing)
		key := keyOf(t, ls["a"])
		for _, name := range []string{"b", "a"} {
			end := time.Now().Add(10 * time.Second)
			pause(t, ls[name], key, 10*time.Second)
			time.Sleep(time.Second)
			pause(t, ls["c"], key, time.Second)
			pause(t, ls[name], key, time.Second)
			requirePaused(t, ls, key, end, w.names...)
			time.Sleep(time.Second)
			end = time.Now().Add(20 * time.Second)
			pause(t, ls["c"], key, 20*time.Second)
			time.Sleep(10 * time.Second) // a node asks the owner again after ten seconds
			requirePaused(t, ls, key, end, w.names...)
			time.Sleep(time.Until(end.Add(pauseSlack)))
			requireResumed(t, ls, key, w.names...)
		}
	})
}

func TestResetEndsPause(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, pausing)
		key := keyOf(t, ls["a"])
		for _, by := range w.names {
			end := time.Now().Add(time.Hour)
			pause(t, ls["b"], key, time.Hour)
			requirePaused(t, ls, key, end, w.names...)
			require.NoError(t, ls[by].Reset(t.Context(), key))
			requireResumed(t, ls, key, w.names...)
			time.Sleep(time.Second)
			requireResumed(t, ls, key, w.names...)
		}
	})
}

func TestPauseDeniesAllowAllAndLeasesNothing(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, pausing)
		wide := w.limiters(t, weir.Limit{Name: "wide", Rate: 1000, Per: time.Hour})
		key := keyOf(t, ls["a"])
		rare := w.limiters(t, weir.Limit{Name: "rare", Rate: 1000, Per: time.Hour, Pauses: true})
		for range 100 {
			require.Equal(t, weir.Forwarded, allowed(t, rare["b"], keyOf(t, rare["a"]), 1).Source)
		}
		pause(t, ls["b"], key, time.Minute)
		for _, name := range []string{"a", "b", "c"} {
			ds, err := w.nodes[name].AllowAll(t.Context(), weir.Ask{Limiter: ls[name], Key: key}, weir.Ask{Limiter: wide[name], Key: keyOf(t, wide["a"])})
			require.NoError(t, err)
			require.True(t, ds[0].Paused && ds.Strictest().Paused && !ds[0].Banned && !ds[1].Paused, "%s: %+v", name, ds)
			d, granted, err := ls[name].AllowAtMost(t.Context(), key, 5)
			require.NoError(t, err)
			require.True(t, d.Paused && granted == 0)
		}
		bans, err := w.nodes["b"].Bans(t.Context())
		require.NoError(t, err)
		require.Empty(t, bans.Bans)
		for _, a := range []weir.Ask{{Limiter: ls["a"], Key: key}, {Limiter: wide["a"], Key: keyOf(t, wide["a"])}} {
			ds, err := w.nodes["a"].AllowAll(t.Context(), a)
			require.NoError(t, err)
			require.Equal(t, a.Limiter == ls["a"], ds[0].Paused, "no result is used again")
		}
		_, err = ls["c"].Debit(t.Context(), key, 1)
		require.NoError(t, err)
	})
}

func TestPauseOutlivesItsOwner(t *testing.T) {
	inOwnerChanges(t, func(t *testing.T, w *world, act func() (left []string)) {
		ls := w.limiters(t, pausing)
		key := keyOf(t, ls["a"])
		end := time.Now().Add(2 * time.Minute)
		pause(t, ls["b"], key, 2*time.Minute)
		time.Sleep(100 * time.Millisecond)
		left := act()
		ls = w.limiters(t, pausing)
		for time.Until(end) > time.Second {
			requirePaused(t, ls, key, end, left...)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Until(end.Add(pauseSlack)))
		requireResumed(t, ls, key, left...)
	})
}

func TestPauseOutlivesStopOfAllNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shelves := map[string]*shelf{"a": {}, "b": {}}
		cfg := weir.Config{}
		w := nextWorld(t, cfg, shelves)
		ls := w.limiters(t, pausing)
		key, end := keyOf(t, ls["a"]), time.Now().Add(20*time.Minute)
		pause(t, ls["b"], key, 20*time.Minute)
		w.leaveAll(t)
		time.Sleep(10 * time.Minute)
		w = nextWorld(t, cfg, shelves)
		requirePaused(t, w.limiters(t, pausing), key, end, w.names...)
	})
}

// If the request of a node to the owner is lost, the node denies the key itself. The
// other nodes learn of the pause from the member that decides in place of the owner, and
// the owner learns of the pause once it is connected again.
func TestPauseAppliesWhileOwnerIsDisconnected(t *testing.T) {
	inWorlds(t, 5, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, pausing)
		key := keyOf(t, ls["a"])
		w.network.Split([]string{"a"}, []string{"b", "c", "d", "e"})
		first := time.Now().Add(time.Minute)
		paused := make(chan error)
		go func() { paused <- ls["b"].Pause(t.Context(), key, time.Minute) }()
		time.Sleep(time.Millisecond)
		requirePaused(t, ls, key, first, "b")
		require.NoError(t, <-paused)
		end := time.Now().Add(time.Minute)
		for range 20 {
			requirePausedBetween(t, ls, key, first, end, "b", "c", "d", "e")
			time.Sleep(time.Second)
		}
		w.network.Heal()
		require.True(t, waitFor(30*time.Second, func() bool { return w.agree(w.names...) }))
		time.Sleep(time.Second)
		requirePausedBetween(t, ls, key, first, end, w.names...)
		time.Sleep(time.Until(end.Add(pauseSlack)))
		requireResumed(t, ls, key, w.names...)
	})
}

func TestPauseReachesOwnerThroughAnotherNode(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, pausing)
		key := keyOf(t, ls["a"])
		w.cut("a", "b")
		require.True(t, waitFor(10*time.Second, func() bool {
			begun := time.Now()
			return allowed(t, ls["b"], key, 1).Source == weir.Relayed && time.Since(begun) < timeout/10
		}))
		end := time.Now().Add(time.Minute)
		pause(t, ls["b"], key, time.Minute)
		requirePaused(t, ls, key, end, "a", "c", "b")
	})
}

// Each side of a split knows only its own pauses, and after the heal the later end counts.
func TestPauseWithLaterEndAppliesAfterHeal(t *testing.T) {
	for _, lengths := range [][2]time.Duration{{40 * time.Second, 40 * time.Second}, {90 * time.Second, 30 * time.Second}, {30 * time.Second, 90 * time.Second}, {60 * time.Second, 0}, {0, 60 * time.Second}} {
		t.Run(fmt.Sprint(lengths), func(t *testing.T) {
			inWorlds(t, 5, weir.Config{}, func(t *testing.T, w *world) {
				ls := w.limiters(t, pausing)
				key := keyOf(t, ls["a"])
				pause(t, ls["b"], key, time.Second) // all copies have a common part
				time.Sleep(2 * time.Second)
				sides := [][]string{{"a", "b"}, {"c", "d", "e"}}
				w.network.Split(sides...)
				time.Sleep(5 * time.Second)
				var end time.Time
				for i, d := range lengths {
					if d > 0 {
						if until := time.Now().Add(d); until.After(end) {
							end = until
						}
						for _, name := range sides[i] {
							pause(t, ls[name], key, d)
						}
					} else {
						require.False(t, peek(t, ls[sides[i][0]], key).Paused, "the side does not know of the pause")
					}
				}
				time.Sleep(time.Second)
				w.network.Heal()
				require.True(t, waitFor(20*time.Second, func() bool { return w.agree(w.names...) }))
				time.Sleep(time.Until(end.Add(-5 * time.Second)))
				requirePaused(t, ls, key, end, w.names...)
				time.Sleep(time.Until(end.Add(5 * pauseSlack)))
				requireResumed(t, ls, key, w.names...)
			})
		})
	}
}

// Random nodes pause random keys, while nodes join, leave and crash. A simple model keeps the latest end of
// each key, and each decision must agree with the model.
func TestPausesFollowTheirModelThroughChanges(t *testing.T) {
	const keys, asks = 200, 15
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			if seed > 0 {
				testenv.SkipUnlessFull(t, "the first seed")
			}
			inBubble(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				w := newWorld(t, 5, false)
				ls := w.limiters(t, pausing)
				ends, denied := make([]time.Time, keys), 0
				known := make([]map[string]time.Time, keys) // by key and node: the end of the pause that the node learned last, and may still repeat
				for i := range known {
					known[i] = make(map[string]time.Time)
				}
				for i := range keys * asks {
					if i%(keys*asks/4) == keys*asks/8 {
						time.Sleep(time.Second) // until all replicas have arrived
						w.change(t, rng)
						ls = w.limiters(t, pausing)
					}
					k, by := rng.IntN(keys), w.names[rng.IntN(len(w.names))]
					key := fmt.Sprint("key ", k)
					if rng.IntN(3) == 0 {
						d := time.Duration(1+rng.IntN(600)) * time.Second
						pause(t, ls[by], key, d)
						if end := time.Now().Add(d); end.After(ends[k]) {
							ends[k] = end
						}
						known[k][by] = ends[k] // the owner has told the node
					}
					for time.Until(ends[k]).Abs() < pauseSlack {
						time.Sleep(pauseSlack)
					}
					d := allowed(t, ls[by], key, 1)
					if end := known[k][by]; d.Source == weir.Pushback && !ends[k].Equal(end) && time.Until(end) > 0 {
						require.InDelta(t, time.Until(end), d.RetryAfter, float64(pauseSlack))
						continue
					}
					require.Equal(t, time.Until(ends[k]) > 0, d.Paused, "%s: %+v, %v", key, d, time.Until(ends[k]))
					if known[k][by] = ends[k]; d.Paused {
						require.InDelta(t, time.Until(ends[k]), d.RetryAfter, float64(pauseSlack))
						denied++
					}
					time.Sleep(time.Duration(5+rng.IntN(400)) * time.Millisecond)
				}
				require.Greater(t, denied, keys)
			})
		})
	}
}

// Waiters of a paused key wait until the pause ends. They are then served in the order of
// their arrival, on all nodes, and at the rate of the limit, because no units accumulate
// during the pause.
func TestWaitersResumeInOrderAtTheRate(t *testing.T) {
	for first, name := range []string{"the owner", "another node"} {
		t.Run("first waiter on "+name, func(t *testing.T) { requireOrderOfWaiters(t, first) })
	}
}

// requireOrderOfWaiters requires that the waiters of a paused key resume in order. The argument first is the index
// of the node of the first waiter.
func requireOrderOfWaiters(t *testing.T, first int) {
	inWorlds(t, 4, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.LeakyBucket, Rate: 10, Burst: 100, Per: time.Second, Pauses: true})
		key := keyOf(t, ls["a"])
		require.NoError(t, ls["b"].Wait(t.Context(), key, 1))
		end := time.Now().Add(10 * time.Second)
		pause(t, ls["b"], key, 10*time.Second)
		const waiters = 30
		type service struct {
			waiter int
			at     time.Time
		}
		services := make(chan service, waiters)
		for i := range waiters {
			// The waiters are on the nodes in turn, each time in another order, so that no node has
			// the first waiters.
			l := ls[w.names[(i+i/4+first)%4]]
			go func() {
				if l.Wait(t.Context(), key, 1) == nil {
					services <- service{i, time.Now()}
				}
			}()
			time.Sleep(200 * time.Millisecond)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, ls["c"].Wait(soon, key, 1), context.DeadlineExceeded)
		time.Sleep(time.Until(end.Add(-time.Millisecond)))
		require.Empty(t, services)
		var served []service
		for range waiters {
			served = append(served, <-services)
		}
		for i, s := range served {
			require.InDelta(t, time.Duration(i)*100*time.Millisecond, s.at.Sub(end), float64(30*time.Millisecond), "unit %d after the pause", i)
		}
		order := func(a, b service) int { return a.waiter - b.waiter }
		require.True(t, slices.IsSortedFunc(served, order), "%v", served)
	})
}

func TestPauseStopsPresentWaiters(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.LeakyBucket, Rate: 10, Burst: 100, Per: time.Second, Pauses: true})
		key := keyOf(t, ls["a"])
		served := make(chan time.Time, 90)
		for i := range 90 {
			l := ls[w.names[i%3]]
			go func() {
				if l.Wait(t.Context(), key, 1) == nil {
					served <- time.Now()
				}
			}()
		}
		time.Sleep(2 * time.Second)
		before := len(served)
		require.InDelta(t, 20, before, 2)
		end := time.Now().Add(5 * time.Second)
		pause(t, ls["c"], key, 5*time.Second)
		time.Sleep(time.Until(end.Add(-time.Millisecond)))
		require.LessOrEqual(t, len(served)-before, 2, "units that were granted before")
		time.Sleep(5 * time.Second)
		require.InDelta(t, 50, len(served)-before, 3)
		require.NoError(t, ls["b"].Reset(t.Context(), key))
	})
}
