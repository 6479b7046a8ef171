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
	"github.com/weir-go/weir/weirtest"
)

// flood checks a key about perSecond times a second, at random times and at random nodes.
// It calls the function use with each decision, and with the time at which the check
// began.
func flood(t *testing.T, ls map[string]*weir.Limiter, key string, perSecond int, lasts time.Duration, names []string, use func(name string, d weir.Decision, asked time.Time)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(perSecond), 7))
	end := time.Now().Add(lasts)
	for time.Now().Before(end) {
		time.Sleep(time.Duration(rng.Int64N(2 * int64(time.Second) / int64(perSecond))))
		name, asked := names[rng.IntN(len(names))], time.Now()
		d, err := ls[name].Allow(t.Context(), key)
		require.NoError(t, err)
		use(name, d, asked)
	}
}

// counting returns an argument of flood that adds the number of allowed checks to admitted.
func counting(admitted *int) func(string, weir.Decision, time.Time) {
	return func(_ string, d weir.Decision, _ time.Time) {
		if d.Allowed {
			*admitted++
		}
	}
}

// withoutHop returns the fraction of decisions that cost no hop.
func withoutHop(of map[weir.Source]int) float64 {
	sum := 0
	for _, n := range of {
		sum += n
	}
	return float64(of[weir.Owner]+of[weir.Leased]+of[weir.Pushback]) / float64(sum)
}

// The four nodes together check the key at twice the rate of the limit.
func TestHotKeyIsExactAndCostsFewHops(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				const rate = 1000
				per, few := time.Second, 6
				if algorithm == weir.SlidingLog {
					per, few = 10*time.Second, 20 // two windows
				}
				seconds := testenv.PickFull(t, few, 30)
				w := newWorld(t, 4, false)
				l := weir.Limit{Name: "hot", Algorithm: algorithm, Rate: rate * int64(per/time.Second), Per: per}
				ls := w.limiters(t, l)
				key := keyOf(t, ls["a"])
				var at []time.Time
				sources := make(map[weir.Source]int)
				flood(t, ls, key, 2*rate, time.Duration(seconds)*time.Second, w.names, func(_ string, d weir.Decision, asked time.Time) {
					sources[d.Source]++
					if d.Allowed {
						at = append(at, asked)
					}
				})
				most := l.Rate // maximum number of units in any Per
				due := rate * seconds
				switch algorithm {
				case weir.FixedWindow, weir.SlidingWindow:
					most *= 2
				case weir.TokenBucket, weir.LeakyBucket:
					most *= 2
					due += rate
				}
				for i := range at {
					j, _ := slices.BinarySearchFunc(at, at[i].Add(per-time.Millisecond), time.Time.Compare) // a check takes up to a millisecond
					require.LessOrEqual(t, int64(j-i), most)
				}
				t.Logf("%d admitted of %d due, %.1f %% without a hop: %v", len(at), due, 100*withoutHop(sources), sources)
				require.LessOrEqual(t, len(at), due+rate/100)
				require.GreaterOrEqual(t, float64(len(at)), 0.99*float64(due))
				if algorithm == weir.FixedWindow || algorithm == weir.SlidingLog {
					require.Greater(t, withoutHop(sources), 0.9)
				} else { // if single units recover, there are never enough units to lend, so each unit costs about a hop
					require.Less(t, float64(sources[weir.Forwarded]), 1.2*float64(len(at)))
				}
			})
		})
	}
}

// A key that is checked at half the rate of its limit is never denied, and costs few hops, even if
// it is checked only a few times a second.
func TestKeyBelowItsLimitStaysLeased(t *testing.T) {
	t.Parallel()
	type row struct {
		algorithm weir.Algorithm
		perSecond int     // the sum of the checks on the four nodes
		least     float64 // fraction without a hop
	}
	rows := []row{{weir.SlidingWindow, 16, 0.75}, {weir.SlidingWindow, 40, 0.93}}
	for _, algorithm := range algorithms[:testenv.PickFull(t, 2, len(algorithms))] { // TestHotKeyIsExactAndCostsFewHops has all of them
		rows = append(rows, row{algorithm, 1000, 0.97})
	}
	for _, c := range rows {
		t.Run(fmt.Sprint(c.algorithm, " ", c.perSecond), func(t *testing.T) {
			inWorlds(t, 4, weir.Config{}, func(t *testing.T, w *world) {
				per := 5 * time.Second
				if c.algorithm == weir.SlidingLog {
					per *= 2
				}
				l := weir.Limit{Name: "warm", Algorithm: c.algorithm, Rate: int64(2*c.perSecond) * int64(per/time.Second), Per: per}
				ls := w.limiters(t, l)
				key := keyOf(t, ls["a"])
				sources := make(map[weir.Source]int)
				lasts := max(2*per, min(4000/time.Duration(c.perSecond)*time.Second, time.Minute))
				flood(t, ls, key, c.perSecond, lasts, w.names, func(name string, d weir.Decision, _ time.Time) {
					require.True(t, d.Allowed, name)
					require.LessOrEqual(t, d.Remaining, l.Rate)
					require.Positive(t, d.ResetAfter)
					sources[d.Source]++
				})
				t.Logf("%.1f %% without a hop: %v", 100*withoutHop(sources), sources)
				require.Greater(t, withoutHop(sources), c.least)
			})
		})
	}
}

// heat takes units of a key at a node until the node has a lease, and returns the number of
// units.
func heat(t *testing.T, l *weir.Limiter, key string) (asked int) {
	t.Helper()
	for range 100 {
		d := allowed(t, l, key, 1)
		require.True(t, d.Allowed)
		if asked++; d.Source == weir.Leased {
			return asked
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the owner lends no units")
	return 0
}

// A node is denied the units that another node has leased, but only until these units
// return.
func TestUnusedLeasedUnitsReturnToTheOwner(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			l := weir.Limit{Algorithm: algorithm, Rate: 100, Per: time.Hour}
			inLimitedWorlds(t, 3, l, func(t *testing.T, w *world, ls limiterMap, key string) {
				admitted := heat(t, ls["b"], key)
				for _, name := range []string{"c", "a"} {
					for {
						d := allowed(t, ls[name], key, 1)
						if !d.Allowed {
							require.NotEqual(t, weir.Pushback, d.Source)
							require.LessOrEqual(t, d.RetryAfter, 750*time.Millisecond, "no longer than the lease")
							require.GreaterOrEqual(t, d.ResetAfter, d.RetryAfter)
							require.False(t, allowed(t, ls[name], key, 1).Source == weir.Pushback, "the denial is not cached")
							break
						}
						admitted++
					}
				}
				require.Less(t, admitted, 100)
				d := peek(t, ls["c"], key)
				require.LessOrEqual(t, d.RetryAfter, 750*time.Millisecond)
				ds, err := w.nodes["c"].AllowAll(t.Context(), weir.Ask{Limiter: ls["c"], Key: key}, weir.Ask{Limiter: ls["c"], Key: "another"})
				require.NoError(t, err)
				require.LessOrEqual(t, ds[0].RetryAfter, 750*time.Millisecond)
				time.Sleep(d.RetryAfter)
				admitted += ask(t, ls, key, 100, "c", "a")
				require.Equal(t, 100, admitted)
				require.Equal(t, weir.Pushback, allowed(t, ls["c"], key, 1).Source, "the denial is firm now")
				require.Equal(t, weir.Forwarded, allowed(t, ls["b"], key, 100).Source)
				require.Equal(t, weir.Pushback, allowed(t, ls["b"], key, 100).Source)
			})
		})
	}
}

// With leases, a greedy node leaves other nodes about as many units as without leases.
func TestGreedyNodeStarvesNoOtherNode(t *testing.T) {
	testenv.SkipAlike(t, "TestHotKeyIsExactAndCostsFewHops")
	t.Parallel()
	lasts := time.Duration(testenv.PickFull(t, 8, 20)) * time.Second
	granted := func(noLeases bool) (modest float64) {
		playBubble(t, func(t *testing.T) {
			w := newWorld(t, 4, false)
			ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.TokenBucket, Rate: 1000, Per: time.Second, Burst: 5000, NoLeases: noLeases})
			key := keyOf(t, ls["a"])
			rng := rand.New(rand.NewPCG(1, 2))
			asks, of := 0, make(map[string]int)
			for begun := time.Now(); time.Since(begun) < lasts; {
				time.Sleep(time.Duration(rng.Int64N(int64(400 * time.Microsecond)))) // 5,000 a second
				name := "b"
				if rng.IntN(50) == 0 {
					name = "c"
					asks++
				}
				if allowed(t, ls[name], key, 1).Allowed {
					of[name]++
				}
			}
			modest = float64(of["c"]) / float64(asks)
			t.Logf("without leases %v: the modest node was granted %.1f %% of %d asks, all %d units", noLeases, 100*modest, asks, of["b"]+of["c"])
		})
		return modest
	}
	require.Greater(t, granted(false), 0.8*granted(true))
}

// resetClients check a key while the key is reset, until end is called.
type resetClients struct {
	asking          sync.WaitGroup
	done            chan struct{}
	began, returned atomic.Bool  // whether Reset was called, and whether the last call has returned
	all, admitted   atomic.Int64 // units granted since the call of Reset, and since the last return
	leased          atomic.Int64 // decisions of leases
}

// add starts a goroutine that takes units from a limiter. The goroutine pauses before
// each check, and for longer after a denial.
func (c *resetClients) add(t *testing.T, l *weir.Limiter, key string, pause time.Duration) {
	c.asking.Go(func() {
		for {
			select {
			case <-c.done:
				return
			case <-time.After(pause):
			}
			since, after := c.began.Load(), c.returned.Load()
			d, err := l.Allow(t.Context(), key)
			assert.NoError(t, err)
			if d.Allowed && since {
				c.all.Add(1)
			}
			if d.Allowed && after {
				c.admitted.Add(1)
			}
			if d.Source == weir.Leased {
				c.leased.Add(1)
			}
			if !d.Allowed { // more denials would only take time
				time.Sleep(5 * time.Millisecond)
			}
		}
	})
}

// end stops the clients, and waits until all leases have expired.
func (c *resetClients) end() {
	close(c.done)
	c.asking.Wait()
	time.Sleep(time.Second)
}

// A reset reaches the borrower and the owner at different times. The borrower continues to send
// checks in between.
func TestLimitAppliesWhicheverNodeLearnsOfResetFirst(t *testing.T) {
	const slow, limit = 60 * time.Millisecond, 1000
	inBubbles(t, func(t *testing.T, gossip bool) {
		for name, c := range map[string]struct {
			resets string      // the node that calls Reset; a owns the key, and b borrows units
			slow   [][2]string // the slow links
		}{
			"the borrower, by a little":        {"c", nil},
			"the borrower":                     {"c", [][2]string{{"c", "a"}}},
			"the owner":                        {"c", [][2]string{{"c", "b"}}},
			"the borrower, which resets it":    {"b", [][2]string{{"b", "c"}}},
			"the owner, which resets it":       {"a", [][2]string{{"a", "b"}}},
			"the borrower, far from its owner": {"c", [][2]string{{"c", "a"}, {"b", "a"}, {"a", "b"}}},
		} {
			for _, algorithm := range []weir.Algorithm{weir.FixedWindow, weir.SlidingWindow} {
				w := newWorld(t, 3, gossip)
				if len(c.slow) == 0 {
					w.network.SetLink("c", "a", weirtest.Link{Latency: latency + time.Millisecond})
				}
				for _, link := range c.slow {
					w.network.SetLink(link[0], link[1], weirtest.Link{Latency: slow})
				}
				ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: algorithm, Rate: limit, Per: time.Hour})
				key := keyOf(t, ls["a"])
				heat(t, ls["b"], key)
				clients := resetClients{done: make(chan struct{})}
				for range 4 {
					clients.add(t, ls["b"], key, 200*time.Microsecond)
				}
				time.Sleep(20 * time.Millisecond)
				clients.began.Store(true)
				require.NoError(t, ls[c.resets].Reset(t.Context(), key))
				clients.returned.Store(true)
				time.Sleep(2 * time.Second)
				clients.end()
				left := int64(ask(t, ls, key, limit, "a"))
				require.LessOrEqual(t, clients.admitted.Load()+left, int64(limit), "%s learns of the reset first, %v", name, algorithm)
				require.GreaterOrEqual(t, clients.all.Load()+left, int64(limit-4), "except for checks in progress: %s learns of the reset first, %v", name, algorithm)
				require.NotZero(t, clients.leased.Load())
				w.close(t)
			}
		}
	})
}

func TestRefundOfLeasedUnitsCostsNoHop(t *testing.T) {
	inLimitedWorlds(t, 3, weir.Limit{Rate: 100, Per: time.Hour}, func(t *testing.T, w *world, ls limiterMap, key string) {
		spent := heat(t, ls["b"], key)
		served := w.nodes["a"].Stats().Served
		require.NoError(t, ls["b"].Refund(t.Context(), key, 1))
		require.Equal(t, served, w.nodes["a"].Stats().Served)
		time.Sleep(time.Second)
		require.EqualValues(t, 100-spent+1, remaining(t, ls["b"], key))
		heat(t, ls["b"], key)
		require.NoError(t, ls["b"].Refund(t.Context(), key, 90))
		time.Sleep(time.Second)
		require.EqualValues(t, 100, remaining(t, ls["b"], key), "the rest of the lease returns as well")
	})
}

func TestNoLeasesMakesOwnerDecide(t *testing.T) {
	inLimitedWorlds(t, 3, weir.Limit{Rate: 1000, Per: time.Hour, NoLeases: true}, func(t *testing.T, w *world, ls limiterMap, key string) {
		for range 300 {
			require.Equal(t, weir.Forwarded, allowed(t, ls["b"], key, 1).Source)
			time.Sleep(time.Millisecond)
		}
	})
}

// A lease ends at the latest with its window.
func TestNoLeaseOutlivesItsWindow(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.FixedWindow, Rate: 500, Per: time.Second, Scope: weir.Global}) // the windows of a Global limit begin at whole seconds
		key := keyOf(t, ls["a"])
		admitted := make(map[int64]int)
		flood(t, ls, key, 3000, 20*time.Second, w.names, func(_ string, d weir.Decision, asked time.Time) {
			if d.Allowed {
				admitted[asked.Unix()]++
			}
		})
		delete(admitted, time.Now().Unix()) // the current second is incomplete
		for second, n := range admitted {
			require.LessOrEqual(t, n, 502, "second %d", second) // a check counts in the window in which it arrives
			require.GreaterOrEqual(t, n, 490, "second %d", second)
		}
	})
}

// A crash of the owner or of a borrower changes the number of admitted units by no more than the
// leases and the checks under way.
func TestCrashLosesAtMostLeasedUnits(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"a", "b"} { // the owner, and the node with the most leases
		for _, algorithm := range algorithms[:testenv.PickFull(t, 2, len(algorithms))] { // TestCrashOfOwnerGivesNoFreshQuota has all of them
			t.Run(fmt.Sprint(lost, " ", algorithm), func(t *testing.T) {
				const rate = 3200
				limit := weir.Limit{Algorithm: algorithm, Rate: rate, Per: time.Hour}
				inLimitedWorlds(t, 4, limit, func(t *testing.T, w *world, ls limiterMap, key string) {
					admitted := 0
					count := counting(&admitted)
					flood(t, ls, key, 4000, 400*time.Millisecond, []string{"b", "b", "b", "c"}, count)
					w.network.Host(lost).Kill()
					var left []string
					for _, name := range w.names {
						if name != lost {
							left = append(left, name)
						}
					}
					flood(t, ls, key, 4000, 400*time.Millisecond, left, count)
					flood(t, ls, key, 1000, 2*time.Second, left, count) // the leases are returned within a second
					require.LessOrEqual(t, admitted, rate+rate/16+4000*4*int(latency)/int(time.Second)+2)
					require.GreaterOrEqual(t, admitted, rate-rate/16*2)
				})
			})
		}
	}
}

// A leaver hands over a count while units of the count are leased.
func TestHandOverKeepsLeasedUnits(t *testing.T) {
	some := algorithms[:testenv.PickFull(t, 2, len(algorithms))]
	inEachWorld(t, 3, some, nil, func(t *testing.T, w *world, algorithm weir.Algorithm) {
		l := weir.Limit{Name: "test", Algorithm: algorithm, Rate: 1600, Per: time.Hour}
		ls := w.limiters(t, l)
		key := keyOf(t, ls["a"])
		admitted := 0
		count := counting(&admitted)
		flood(t, ls, key, 1000, 200*time.Millisecond, w.names, count)
		left := make(chan error)
		go func() { left <- w.nodes["a"].Leave(t.Context()) }()
		flood(t, ls, key, 300, 3*time.Second, w.names, count)
		require.NoError(t, <-left)
		flood(t, ls, key, 1000, 3*time.Second, []string{"b", "c"}, count)
		require.InDelta(t, 1600, admitted, 4) // the limit recovers about three units in that time
	})
}

func TestStatsOfBothNodesShowLeases(t *testing.T) {
	inLimitedWorlds(t, 2, weir.Limit{Rate: 1e6, Per: time.Hour}, func(t *testing.T, w *world, ls limiterMap, key string) {
		for range 200 {
			allowed(t, ls["b"], key, 1)
			time.Sleep(time.Millisecond)
		}
		lender, borrower := w.nodes["a"].Stats().Leases, w.nodes["b"].Stats().Leases
		require.Positive(t, borrower.HeldUnits)
		require.GreaterOrEqual(t, lender.LentUnits, borrower.HeldUnits, "the lender counts all units that the borrower may spend")
		require.Zero(t, lender.HeldUnits)
		require.Zero(t, borrower.LentUnits)
		time.Sleep(2 * time.Second)
		require.Zero(t, w.nodes["a"].Stats().Leases)
		require.Zero(t, w.nodes["b"].Stats().Leases)
	})
}
