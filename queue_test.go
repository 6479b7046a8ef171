package weir_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// Clients come at three times the rate to three nodes, and leave when they have waited for
// their patience, a part of what the whole queue takes.
func TestAnImpatientQueueServesAtItsRate(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, gossip bool) {
		for _, c := range []struct {
			rate, burst int64 // in a second
			lasts       time.Duration
		}{{20, 20, 10 * time.Second}, {100, 200, 5 * time.Second}, {1000, 500, time.Second}} {
			for _, part := range []float64{0.05, 0.1, 0.3, 0.7, 2} {
				patience := time.Duration(part * float64(c.burst) / float64(c.rate) * float64(time.Second))
				w := newWorld(t, 3, gossip)
				ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.LeakyBucket, Rate: c.rate, Per: time.Second, Burst: c.burst})
				key := keyOf(t, ls["a"])
				var (
					clients sync.WaitGroup
					served  atomic.Int64
				)
				begun := time.Now()
				for i := 0; time.Since(begun) < c.lasts; i++ {
					name := w.names[i%3]
					clients.Go(func() {
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						leaves := time.AfterFunc(patience, cancel)
						defer leaves.Stop()
						if ls[name].Wait(ctx, key, 1) == nil && time.Since(begun) < c.lasts {
							served.Add(1)
						}
					})
					time.Sleep(time.Second / time.Duration(3*c.rate))
				}
				clients.Wait()
				part := float64(served.Load()) / (float64(c.rate) * c.lasts.Seconds())
				what := fmt.Sprintf("%d a second, %d at most, patience %v", c.rate, c.burst, patience)
				t.Logf("%s: %.1f %% of the rate", what, 100*part)
				require.GreaterOrEqual(t, part, 0.95, what)
				require.LessOrEqual(t, part, 1.01, what)
				w.close(t)
			}
		}
	})
}

// Those that stay are served in order of arrival, whichever node they wait on and whoever
// leaves meanwhile.
func TestWaitersThatStayAreServedInOrderOverAllNodes(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, gossip bool) {
		w := newWorld(t, 3, gossip)
		ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.LeakyBucket, Rate: 50, Per: time.Second, Burst: 100})
		key := keyOf(t, ls["a"])
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
				if err != nil {
					t.Error(i, err)
				}
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
func TestAQueueIsFullOverAllNodes(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, gossip bool) {
		w := newWorld(t, 3, gossip)
		ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.LeakyBucket, Rate: 1, Per: time.Second, Burst: 10})
		key := keyOf(t, ls["a"])
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
					require.ErrorIs(t, err, weir.ErrFull)
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
		d, err := ls["c"].Peek(t.Context(), key)
		require.NoError(t, err)
		require.EqualValues(t, 10, d.Remaining, "all that left have left no trace")
	})
}

// What waits is known to the waiters' own nodes: they ask whoever answers by then.
func TestWaitersOutliveTheOwner(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, gossip bool) {
		for _, units := range []int64{1, 3} {
			w := newWorld(t, 5, gossip)
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
					if err := ls[w.names[1+i%4]].Wait(t.Context(), key, units); err != nil {
						t.Error(err)
					}
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
				require.GreaterOrEqual(t, apart, time.Duration(units)*100*time.Millisecond-10*time.Millisecond, "the rate is kept to")
			}
			require.Less(t, time.Since(begun), 8*time.Second, "a few seconds without an owner")
			w.close(t)
		}
	})
}
