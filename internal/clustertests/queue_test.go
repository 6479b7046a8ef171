package clustertests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

// overload starts clients on the named nodes in turn, at three times the rate of the queue. It
// returns the number of units that the queue served meanwhile, divided by the number that the
// rate allows. Each client runs the function client.
func overload(names []string, ls map[string]*weir.Limiter, key string, rate int64, lasts time.Duration, client func(wait func(ctx context.Context) error)) float64 {
	var (
		clients sync.WaitGroup
		served  atomic.Int64
	)
	begun := time.Now()
	for i := 0; time.Since(begun) < lasts; i++ {
		l := ls[names[i%len(names)]]
		clients.Go(func() {
			client(func(ctx context.Context) error {
				err := l.Wait(ctx, key, 1)
				if err == nil && time.Since(begun) < lasts {
					served.Add(1)
				}
				return err
			})
		})
		time.Sleep(time.Second / time.Duration(3*rate))
	}
	clients.Wait()
	return float64(served.Load()) / (float64(rate) * lasts.Seconds())
}

// The number of clients that arrive on the three nodes is three times the number that the rate
// allows. Each client leaves after its patience, which is a multiple of the time that a full
// queue takes.
func TestQueueServesAtItsRateDespiteImpatientClients(t *testing.T) {
	parts := []float64{0.05, 0.3, 2, 0.1, 0.7}
	parts = parts[:testenv.PickFull(t, 2, len(parts))]
	queues := []struct {
		rate, burst int64 // the rate in units per second
		lasts       time.Duration
	}{{20, 20, 10 * time.Second}, {100, 200, 5 * time.Second}, {1000, 500, time.Second}}
	queues = queues[:testenv.PickFull(t, 2, len(queues))] // the queues of TestShortQueueServesAtItsRate are as fast
	inBubbles(t, func(t *testing.T, gossip bool) {
		for _, c := range queues {
			for _, part := range parts {
				patience := time.Duration(part * float64(c.burst) / float64(c.rate) * float64(time.Second))
				w := newWorld(t, 3, gossip)
				ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.LeakyBucket, Rate: c.rate, Per: time.Second, Burst: c.burst})
				key := keyOf(t, ls["a"])
				part := overload(w.names, ls, key, c.rate, c.lasts, func(wait func(ctx context.Context) error) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					defer time.AfterFunc(patience, cancel).Stop()
					_ = wait(ctx)
				})
				what := fmt.Sprintf("%d a second, %d at most, patience %v", c.rate, c.burst, patience)
				require.GreaterOrEqual(t, part, 0.95, what)
				require.LessOrEqual(t, part, 1.01, what)
				w.close(t)
			}
		}
	})
}

// The time that a full queue takes is between 4 ms, which is a round trip to the owner, and 100
// ms.
func TestShortQueueServesAtItsRate(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		for _, c := range []struct {
			rate, burst int64
			lasts       time.Duration
		}{{1000, 4, time.Second}, {1000, 8, time.Second}, {10_000, 40, time.Second / 4}, {1000, 100, time.Second}} {
			w := newWorld(t, 3, gossip)
			w.slow("a", "b", 2*time.Millisecond)
			w.slow("a", "c", 2*time.Millisecond)
			ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.LeakyBucket, Rate: c.rate, Per: time.Second, Burst: c.burst})
			key := keyOf(t, ls["a"])
			part := overload(w.names[1:], ls, key, c.rate, c.lasts, func(wait func(ctx context.Context) error) { // no client waits on the owner
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				if err := wait(ctx); err != nil && !errors.Is(err, weir.ErrFull) {
					t.Error(err)
				}
			})
			require.GreaterOrEqual(t, part, 0.95, "%d a second, %d at most", c.rate, c.burst)
			require.LessOrEqual(t, part, 1.02, "%d a second, %d at most", c.rate, c.burst)
			w.close(t)
		}
	})
}

// If a region has waiters, it requests units from the other regions. Checks that do not wait must
// not overtake the waiters.
func TestGlobalQueueServesAtWholeRate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := planet(t, 1, weir.Config{})
		awaitRegions()
		l, err := c.Node("eu1").Limiter(weir.Limit{Name: "test", Algorithm: weir.LeakyBucket, Rate: 30, Per: time.Second, Burst: 60, Scope: weir.Global})
		require.NoError(t, err)
		var (
			clients sync.WaitGroup
			served  atomic.Int64
			passed  atomic.Int64
		)
		ctx, cancel := context.WithCancel(t.Context())
		for range 50 {
			clients.Go(func() {
				for ctx.Err() == nil {
					if l.Wait(ctx, "key", 1) == nil {
						served.Add(1)
					} else {
						time.Sleep(50 * time.Millisecond)
					}
				}
			})
		}
		time.Sleep(10 * time.Second)
		clients.Go(func() {
			for ctx.Err() == nil {
				if d, err := l.Allow(ctx, "key"); err == nil && d.Allowed {
					passed.Add(1)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		served.Store(0)
		time.Sleep(10 * time.Second)
		require.GreaterOrEqual(t, served.Load(), int64(285), "of 300")
		require.LessOrEqual(t, served.Load(), int64(301))
		require.Zero(t, passed.Load())
		cancel()
		clients.Wait()
	})
}

// The waiters that do not leave are served in the order in which they arrived, even if they wait
// on different nodes.
func TestWaitersAreServedInOrderOverAllNodes(t *testing.T) {
	l := weir.Limit{Algorithm: weir.LeakyBucket, Rate: 50, Per: time.Second, Burst: 100}
	inLimitedWorlds(t, 3, l, func(t *testing.T, w *world, ls limiterMap, key string) {
		var (
			clients sync.WaitGroup
			mu      sync.Mutex
			order   []int
		)
		for i := range 90 {
			name, leaves := w.names[i*7%3], i%3 == 1
			clients.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if leaves {
					defer time.AfterFunc(time.Duration(100+i*3)*time.Millisecond, cancel).Stop()
				}
				err := ls[name].Wait(ctx, key, 1)
				if leaves {
					return
				}
				assert.NoError(t, err, i)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			})
			time.Sleep(12 * time.Millisecond)
		}
		clients.Wait()
		require.Len(t, order, 60)
		for at := 1; at < len(order); at++ {
			require.Less(t, order[at-1], order[at], "%v", order)
		}
	})
}

// At most Burst units wait or are being served, on all nodes together.
func TestQueueOverAllNodesIsBoundedByBurst(t *testing.T) {
	l := weir.Limit{Algorithm: weir.LeakyBucket, Rate: 1, Per: time.Second, Burst: 10}
	inLimitedWorlds(t, 3, l, func(t *testing.T, w *world, ls limiterMap, key string) {
		ctx, cancel := context.WithCancel(t.Context())
		var (
			clients      sync.WaitGroup
			full, served atomic.Int64
		)
		for i := range 30 {
			clients.Go(func() {
				switch err := ls[w.names[i%3]].Wait(ctx, key, 1); {
				case err == nil:
					served.Add(1)
				case ctx.Err() == nil:
					assert.ErrorIs(t, err, weir.ErrFull)
					full.Add(1)
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		require.EqualValues(t, 20, full.Load())
		require.EqualValues(t, 1, served.Load())
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 4, served.Load())
		cancel()
		clients.Wait()
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 10, remaining(t, ls["c"], key), "waiters that gave up leave no units in the queue")
	})
}

// A refused waiter takes no room in the queue, so a check that fits is allowed a tenth of a
// second later.
func TestRefusedWaiterTakesNoRoom(t *testing.T) {
	l := weir.Limit{Algorithm: weir.LeakyBucket, Rate: 1, Per: time.Second, Burst: 10}
	inLimitedWorlds(t, 3, l, func(t *testing.T, w *world, ls limiterMap, key string) {
		d := allowed(t, ls["a"], key, 2)
		require.True(t, d.Allowed)
		require.ErrorIs(t, ls["b"].Wait(t.Context(), key, 9), weir.ErrFull)
		time.Sleep(100 * time.Millisecond)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, ls["c"].Wait(short, key, 8), context.DeadlineExceeded, "two waiters come before this one")
		time.Sleep(100 * time.Millisecond)
		d = allowed(t, ls["b"], key, 8)
		require.True(t, d.Allowed)
	})
}

// Each node keeps its own waiters. After the crash of the owner, each node sends the
// requests of its waiters to the member that decides instead of the owner.
func TestWaitersOutliveOwner(t *testing.T) {
	inEachWorld(t, 5, []int64{1, 3}, nil, func(t *testing.T, w *world, units int64) {
		ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.LeakyBucket, Rate: 10, Per: time.Second, Burst: 120})
		key := keyOf(t, ls["a"])
		var (
			clients sync.WaitGroup
			mu      sync.Mutex
			served  []time.Time
		)
		begun := time.Now()
		for i := range 40 / units {
			clients.Go(func() {
				assert.NoError(t, ls[w.names[1+i%4]].Wait(t.Context(), key, units))
				mu.Lock()
				defer mu.Unlock()
				served = append(served, time.Now())
			})
			time.Sleep(12 * time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond)
		w.network.Host("a").Kill()
		clients.Wait()
		for at := 1; at < len(served); at++ {
			apart := served[at].Sub(served[at-1])
			require.GreaterOrEqual(t, apart, time.Duration(units)*100*time.Millisecond-10*time.Millisecond, "the queue keeps its rate")
		}
		require.Less(t, time.Since(begun), 8*time.Second, "a few seconds without an owner")
	})
}
