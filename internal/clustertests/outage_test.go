package clustertests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// stalls is the maximum time, from the first check on, in which checks wait for a frozen member.
// After that time the member counts as stalled.
const stalls = 200*time.Millisecond + timeout

func TestChecksSoonSkipLostOwner(t *testing.T) {
	t.Parallel()
	sizes := []int{2, 3, 7}
	for _, n := range sizes[:testenv.PickFull(t, 2, len(sizes))] {
		for fault, strike := range map[string]func(*weirtest.Host){
			"killed": (*weirtest.Host).Kill, "frozen": (*weirtest.Host).Freeze,
		} {
			t.Run(fmt.Sprint(fault, " of ", n), func(t *testing.T) {
				limit := weir.Limit{Rate: 1_000_000, Per: time.Hour}
				inLimitedWorlds(t, n, limit, func(t *testing.T, w *world, ls limiterMap, key string) {
					host := w.network.Host("a")
					time.Sleep(2 * time.Second) // members on new connections get extra time to answer
					strike(host)
					sources := []weir.Source{weir.StandIn}
					if n == 2 { // half a roster is no majority, once the owner is missing
						sources = []weir.Source{weir.StandIn, weir.Budget}
					}
					began := make(map[string]time.Time)
					for round := range 1000 {
						for _, name := range w.names[1:] {
							begun := time.Now()
							if round == 0 {
								began[name] = begun
							}
							d, err := ls[name].Allow(t.Context(), key)
							took := time.Since(begun)
							require.NoError(t, err)
							require.True(t, d.Allowed)
							require.LessOrEqual(t, took, timeout, "round %d at %s", round, name)
							if fault == "killed" && round > 0 || begun.Sub(began[name]) > stalls {
								require.Contains(t, sources, d.Source, "round %d at %s", round, name)
								require.LessOrEqual(t, took, 4*latency, "round %d at %s waits for more than the stand-in", round, name)
							}
						}
						time.Sleep(2 * time.Millisecond)
					}
					d := allowed(t, ls["b"], key, 1)
					require.Equal(t, sources[len(sources)-1], d.Source)
					host.Thaw()
				})
			})
		}
	}
}

// Nodes may try to reach the dead node through each other, until they know that there is no route.
// They must not become disconnected because of these requests.
func TestDeathDisconnectsNoOtherMember(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		w.setLinks(weirtest.Link{Latency: 900 * time.Microsecond, Jitter: 400 * time.Microsecond})
		ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.SlidingLog, Rate: 1000, Per: time.Hour})
		for i := range 200 {
			if i == 100 {
				w.network.Host("a").Kill()
			}
			for k := range 10 {
				ask(t, ls, fmt.Sprint(k), 1, "b", "c")
			}
			time.Sleep(10 * time.Millisecond)
			for _, name := range []string{"b", "c"} {
				for _, m := range w.nodes[name].Members() {
					require.True(t, m.Name[0] == 'a' || m.State == weir.Serving, "%s takes %s for %v, %v after the death", name, m.Name, m.State, time.Duration(i-99)*10*time.Millisecond)
				}
			}
		}
		w.close(t)
	})
}

func TestBrokenLinkCostsOneHop(t *testing.T) {
	l := weir.Limit{Algorithm: weir.SlidingLog, Rate: 100, Per: time.Hour, NoLeases: true}
	inLimitedWorlds(t, 3, l, func(t *testing.T, w *world, ls limiterMap, key string) {
		w.cut("a", "b")
		_, err := ls["b"].Peek(t.Context(), key)
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		admitted := 0
		denied := make(map[string]bool)
		for range 100 {
			for name, l := range ls {
				d := allowed(t, l, key, 1)
				way := map[string]weir.Source{"a": weir.Owner, "b": weir.Relayed, "c": weir.Forwarded}[name]
				if denied[name] && name != "a" {
					way = weir.Pushback
				}
				require.Equal(t, way, d.Source)
				if d.Allowed {
					admitted++
				}
				denied[name] = !d.Allowed
			}
		}
		require.Equal(t, 100, admitted)
	})
}

// A node sends each check only once, even if the caller gives up early. If the grant arrives after
// the deadline, the node refunds the units to the member that granted them.
func TestShortDeadlinesSpendNothingTwice(t *testing.T) {
	inLimitedWorlds(t, 3, weir.Limit{Rate: 90_000, Per: time.Hour}, func(t *testing.T, w *world, ls limiterMap, key string) {
		var wait sync.WaitGroup
		for range 500 {
			wait.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Microsecond)
				defer cancel()
				begun := time.Now()
				d, err := ls["b"].Allow(ctx, key)
				if err != nil || !d.Allowed || d.Source != weir.Budget || time.Since(begun) > 100*time.Microsecond {
					t.Error(d, err, time.Since(begun))
				}
			})
		}
		wait.Wait()
		time.Sleep(time.Second)
		var spent int64
		for _, l := range ls {
			d := peek(t, l, key)
			require.NotEqual(t, weir.Budget, d.Source, "a short deadline does not make the owner missing")
			spent = d.Limit - d.Remaining
		}
		require.EqualValues(t, 500, spent, "late grants of the owner are refunded, and grants of the share are counted")
		require.EqualValues(t, 500, w.nodes["b"].Stats().LateUnits)
		require.EqualValues(t, 500, w.nodes["b"].Stats().Decisions[weir.Budget].Allowed)
	})
}

func TestCanceledCheckSpendsNothing(t *testing.T) {
	inLimitedWorlds(t, 2, weir.Limit{Rate: 100, Per: time.Hour}, func(t *testing.T, w *world, ls limiterMap, key string) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(latency, cancel)
		d, err := ls["b"].Allow(ctx, key)
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, d.Allowed)
		time.Sleep(time.Second)
		d = peek(t, ls["a"], key)
		require.EqualValues(t, 100, d.Remaining)
	})
}

func TestLateGrantOfSlowOwnerIsRefunded(t *testing.T) {
	inLimitedWorlds(t, 2, weir.Limit{Rate: 100, Per: time.Hour}, func(t *testing.T, w *world, ls limiterMap, key string) {
		time.Sleep(2 * time.Second) // members on new connections get extra time to answer
		w.network.SetLink("a", "b", weirtest.Link{Latency: 200 * time.Millisecond})
		begun := time.Now()
		d := allowed(t, ls["b"], key, 7)
		require.Equal(t, weir.StandIn, d.Source)
		require.LessOrEqual(t, time.Since(begun), timeout)
		time.Sleep(time.Second)
		d = peek(t, ls["a"], key)
		require.EqualValues(t, 93, d.Remaining, "the grant of the owner is refunded, and the grant of the stand-in is reported")
		require.EqualValues(t, 7, w.nodes["b"].Stats().LateUnits)
	})
}

// An owner applies the refund of a late grant even if no other member is connected. No other member
// can apply the refund.
func TestDisconnectedOwnerAppliesLateRefund(t *testing.T) {
	inLimitedWorlds(t, 2, weir.Limit{Rate: 100, Per: time.Hour}, func(t *testing.T, w *world, ls limiterMap, key string) {
		// The answer and the pings of a arrive after a has heard no member for a second.
		w.network.SetLink("a", "b", weirtest.Link{Latency: 1200 * time.Millisecond})
		d := allowed(t, ls["b"], key, 7)
		require.NotEqual(t, weir.Forwarded, d.Source)
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 7, w.nodes["b"].Stats().LateUnits)
		w.network.SetLink("a", "b", weirtest.Link{Latency: latency})
		w.ready(t, w.names...)
		time.Sleep(time.Second)
		require.EqualValues(t, 93, remaining(t, ls["a"], key))
	})
}

// A caller may give up before it receives an answer, and the members may become disconnected
// several times. The limit has NoLeases, because the units of a late lease may stay spent. No message
// takes 3 s, because a member closes a connection on which no message arrives for 3 s, and a refund
// that is under way there is lost.
func TestLateAnswersSpendEachUnitOnce(t *testing.T) {
	t.Parallel()
	const longest = 2500 * time.Millisecond
	for seed := range uint64(testenv.PickFull(t, 8, 300)) {
		playBubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			drawn := func(mean time.Duration) time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }
			w := newWorld(t, 2, false)
			l := weir.Limit{Name: "test", Algorithm: algorithms[seed%2], Rate: 100_000, Per: time.Hour, NoLeases: true}
			ls := w.limiters(t, l)
			key := keyOf(t, ls["a"])
			var wait sync.WaitGroup
			var granted atomic.Int64
			for range 5 {
				w.network.SetLink("a", "b", weirtest.Link{Latency: min(drawn(400*time.Millisecond), longest)})
				w.network.SetLink("b", "a", weirtest.Link{Latency: min(drawn(400*time.Millisecond), longest)})
				for range 40 {
					at, patience := time.Duration(r.Int64N(int64(500*time.Millisecond))), drawn(20*time.Millisecond)
					wait.Go(func() {
						time.Sleep(at)
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						defer cancel()
						if d, err := ls["b"].Allow(ctx, key); err != nil || !d.Allowed {
							t.Errorf("seed %d: %v is not granted: %v", seed, d, err)
						}
						granted.Add(1)
					})
				}
				time.Sleep(500 * time.Millisecond)
			}
			w.slow("a", "b", latency)
			wait.Wait()
			time.Sleep(20 * time.Second)
			require.EqualValues(t, granted.Load(), l.Rate-remaining(t, ls["a"], key), "%v with the seed %d", l.Algorithm, seed)
		})
	}
}

// If the latency of a link is greater than Timeout, the members stay connected, and the replicas
// still arrive.
func TestSlowSuccessorReceivesReplicas(t *testing.T) {
	inWorlds(t, 2, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 1_000_000, Per: time.Hour, Partition: weir.FailOpen})
		own, others := keyOf(t, ls["a"]), keyOf(t, ls["b"])
		w.network.SetLink("a", "b", weirtest.Link{Latency: 170 * time.Millisecond})
		const every, last = 25 * time.Millisecond, time.Second
		const asks = 10 * int64(time.Second/every)
		for range asks {
			for _, key := range []string{own, others} {
				allowed(t, ls["a"], key, 1)
			}
			time.Sleep(every)
		}
		require.NoError(t, w.nodes["a"].Close())
		time.Sleep(2 * time.Second)
		require.GreaterOrEqual(t, used(t, ls["b"], own), asks-int64(last/every))
	})
}

// A node sends replicas directly to a slow successor, even if there are other paths to it. A frame
// that is sent through other members would be late.
func TestReplicasTakeDirectPathToSlowSuccessor(t *testing.T) {
	inWorlds(t, 5, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 1_000_000, Per: time.Hour, Partition: weir.FailOpen})
		for i, a := range w.names {
			for _, b := range w.names[i+1:] {
				w.network.SetLink(a, b, weirtest.Link{Latency: 70 * time.Millisecond, Jitter: 17 * time.Millisecond})
			}
		}
		for begun, i := time.Now(), 0; time.Since(begun) < 20*time.Second; i++ {
			for _, name := range w.names {
				allowed(t, ls[name], fmt.Sprint(i%100), 1)
			}
			time.Sleep(25 * time.Millisecond)
			for _, n := range w.nodes {
				require.LessOrEqual(t, n.Stats().Stream.Lag, time.Second, "the replica is acknowledged within a second")
			}
		}
	})
}

// If the owner has stalled, it executes all requests later. No other member may apply the refund in
// the meantime.
func TestRefundToStalledOwnerIsAppliedOnce(t *testing.T) {
	inLimitedWorlds(t, 3, weir.Limit{Rate: 100, Per: time.Hour}, func(t *testing.T, w *world, ls limiterMap, key string) {
		d := allowed(t, ls["b"], key, 50)
		require.Equal(t, weir.Forwarded, d.Source)
		w.network.SetLink("b", "a", weirtest.Link{Latency: 200 * time.Millisecond})
		require.NoError(t, ls["b"].Refund(t.Context(), key, 10))
		w.network.SetLink("b", "a", weirtest.Link{Latency: latency})
		time.Sleep(2 * time.Second)
		d = peek(t, ls["a"], key)
		require.EqualValues(t, 60, d.Remaining)
	})
}

func TestRefundOfDebtIsForwarded(t *testing.T) {
	inLimitedWorlds(t, 3, weir.Limit{Rate: 100, Per: time.Hour}, func(t *testing.T, w *world, ls limiterMap, key string) {
		d, err := ls["b"].Debit(t.Context(), key, 300)
		require.NoError(t, err)
		require.Equal(t, weir.Forwarded, d.Source)
		require.False(t, d.Allowed)
		require.NoError(t, ls["c"].Refund(t.Context(), key, 300))
		d = allowed(t, ls["a"], key, 100)
		require.True(t, d.Allowed)
		require.Zero(t, d.Remaining, "units that the debt does not contain are not refunded")
	})
}

// A relay must not count as stalled if it does not answer a relayed check in time.
func TestSlowRelayDoesNotCountAsStalled(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Hour, NoLeases: true})
		far, near := keyOf(t, ls["a"]), keyOf(t, ls["c"])
		w.cut("a", "b")
		time.Sleep(3 * time.Second)
		for range 20 {
			w.network.SetLink("c", "b", weirtest.Link{Latency: 75 * time.Millisecond})
			begun := time.Now()
			d := allowed(t, ls["b"], far, 1)
			require.Contains(t, []weir.Source{weir.StandIn, weir.Budget}, d.Source)
			require.LessOrEqual(t, time.Since(begun), timeout)
			w.network.SetLink("c", "b", weirtest.Link{Latency: latency})
			time.Sleep(100 * time.Millisecond)
			d = allowed(t, ls["b"], near, 1)
			require.Equal(t, weir.Forwarded, d.Source)
		}
	})
}

// Wait does not treat an outage as a full queue. The check is retried until the owner answers.
func TestWaitOutlastsOutage(t *testing.T) {
	l := weir.Limit{Algorithm: weir.LeakyBucket, Rate: 10, Per: time.Second, Partition: weir.FailClosed}
	inLimitedWorlds(t, 2, l, func(t *testing.T, w *world, ls limiterMap, key string) {
		w.network.Host("a").Freeze()
		begun := time.Now()
		time.AfterFunc(3*time.Second, w.network.Host("a").Thaw)
		time.Sleep(time.Second) // a is missing after that
		require.NoError(t, ls["b"].Wait(t.Context(), key, 1))
		require.GreaterOrEqual(t, time.Since(begun), 3*time.Second)
		require.LessOrEqual(t, time.Since(begun), 6*time.Second)
	})
}

// The RetryAfter of a share may be an hour, but the owner may return within seconds.
func TestWaitRetriesWhenOutageEnds(t *testing.T) {
	l := weir.Limit{Algorithm: weir.SlidingWindow, Rate: 10, Per: time.Hour}
	inLimitedWorlds(t, 2, l, func(t *testing.T, w *world, ls limiterMap, key string) {
		w.network.Host("a").Freeze()
		time.Sleep(time.Second) // a is missing after that
		begun := time.Now()
		time.AfterFunc(2*time.Second, w.network.Host("a").Thaw)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, ls["b"].Wait(ctx, key, 8), "above b's share")
		require.GreaterOrEqual(t, time.Since(begun), 2*time.Second)
		require.LessOrEqual(t, time.Since(begun), 5*time.Second)
	})
}

// keysOf returns the given number of keys that a node owns.
func keysOf(owner *weir.Limiter, count int) (keys []string) {
	for i := 0; len(keys) < count; i++ {
		if key := fmt.Sprint("key ", i); owner.Owner(key).Self {
			keys = append(keys, key)
		}
	}
	return keys
}

// The stand-in is connected to the owner, and the asker is not. The stand-in must not execute a refund or
// a strike that it has forwarded, because the owner may have executed it or may do so later. If both
// members execute a debit, one of the two debits is refunded.
func TestForwardedRefundsDebitsAndStrikesApplyOnce(t *testing.T) {
	t.Parallel()
	const limit, spent, units, late = 100, 50, 30, 40 * time.Millisecond
	const tooMany = limit - spent + 1
	refund := func(t *testing.T, l *weir.Limiter, key string) {
		require.NoError(t, l.Refund(t.Context(), key, units))
	}
	debit := func(t *testing.T, l *weir.Limiter, key string) {
		_, err := l.Debit(t.Context(), key, units)
		require.NoError(t, err)
	}
	deny := func(t *testing.T, l *weir.Limiter, key string) {
		require.False(t, allowed(t, l, key, tooMany).Allowed)
	}
	for name, c := range map[string]struct {
		there, back time.Duration
		change      func(t *testing.T, l *weir.Limiter, key string)
		left        int
		denials     int64 // number of denials that ban a key, 0 for no ban
	}{
		"a refund, its answer is late": {0, late, refund, limit - spent + units, 0},
		"a refund that is late":        {late, 0, refund, limit - spent + units, 0},
		"a debit, its answer is late":  {0, late, debit, limit - spent - units, 0},
		"a debit that is late":         {late, 0, debit, limit - spent - units, 0},
		"a strike, its answer is late": {0, late, deny, 0, 3},
		"a strike that is late":        {late, 0, deny, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			inEachWorld(t, 3, algorithms, nil, func(t *testing.T, w *world, algorithm weir.Algorithm) {
				l := weir.Limit{Name: "test", Algorithm: algorithm, Rate: limit, Per: 24 * time.Hour}
				if c.denials > 0 {
					l.Ban = weir.Ban{Denials: c.denials, Within: time.Hour, For: weir.BanLengths{time.Hour}}
				}
				ls := w.limiters(t, l)
				keys := keysOf(ls["b"], 10)
				requireAdmits(t, spent, ls, keys, spent, "b")
				time.Sleep(200 * time.Millisecond) // the copies are there
				w.cut("a", "b")
				w.network.SetLink("c", "b", weirtest.Link{Latency: c.there})
				w.network.SetLink("b", "c", weirtest.Link{Latency: c.back})
				time.Sleep(1300 * time.Millisecond) // a has detected that the link is down, and does not yet ask through c
				for _, key := range keys {
					c.change(t, ls["a"], key)
				}
				time.Sleep(200 * time.Millisecond)
				w.network.Heal()
				w.ready(t, w.names...)
				time.Sleep(time.Second)
				for _, key := range keys {
					for denial := int64(2); denial <= c.denials; denial++ { // a has sent the strike of the first denial
						deny(t, ls["b"], key)
						require.Equal(t, denial == c.denials, peek(t, ls["b"], key).Banned, "%v, %s, denial %d", algorithm, key, denial)
					}
					require.Equal(t, c.left, ask(t, ls, key, limit, "b"), "%v, %s", algorithm, key)
				}
			})
		})
	}
}
