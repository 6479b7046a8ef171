package clustertests

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// carried contains the sealed texts of clients' holds, one hold for each key. All nodes have the same
// Seed, so each node can open the text of a hold that another node has granted.
type carried struct {
	t     *testing.T
	w     *world
	limit weir.Limit
	texts map[string]string // the texts of holds, keyed by the key of the hold
}

func newCarried(t *testing.T, nodes int, gossip bool, limit weir.Limit) *carried {
	limit.Name, limit.Algorithm = "in flight", weir.InFlight
	return &carried{t, newWorldOf(t, nodes, gossip, seeded), limit, make(map[string]string)}
}

// inEachCarried runs a test for each of the values, each time with new nodes and the
// given limit.
func inEachCarried[T any](t *testing.T, nodes int, limit weir.Limit, values []T, test func(t *testing.T, c *carried, value T)) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		for _, value := range values {
			c := newCarried(t, nodes, gossip, limit)
			test(t, c, value)
			c.w.close(t)
		}
	})
}

func (c *carried) limiter(name string) *weir.Limiter {
	c.t.Helper()
	l, err := c.w.nodes[name].Limiter(c.limit)
	require.NoError(c.t, err)
	return l
}

// takeHold creates the hold of a key at a node.
func (c *carried) takeHold(name, key string, ttl time.Duration) {
	c.t.Helper()
	text, d, err := c.limiter(name).HoldFor(c.t.Context(), key, 1, ttl)
	require.NoError(c.t, err)
	require.True(c.t, d.Allowed, key)
	c.texts[key] = text
}

func (c *carried) renew(name, key string, ttl time.Duration) error {
	c.t.Helper()
	return c.limiter(name).RenewHold(c.t.Context(), key, c.texts[key], ttl)
}

func (c *carried) release(name, key string) {
	c.t.Helper()
	require.NoError(c.t, c.limiter(name).ReleaseHold(c.t.Context(), key, c.texts[key]))
}

// free reports whether a node grants another unit of a key. The unit is released at once.
func (c *carried) free(name, key string) bool {
	c.t.Helper()
	h, err := c.limiter(name).Hold(c.t.Context(), key, 1)
	require.NoError(c.t, err)
	h.Release()
	return h.Decision().Allowed
}

// One of two nodes stands in for the frozen owner, and asks the other nodes for their
// holds before it grants units.
func TestClientHoldTakesNoLongerThanTimeout(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		c := newCarried(t, 3, gossip, weir.Limit{Rate: 5})
		keys := keysOf(c.limiter("b"), 8)
		for _, key := range keys {
			c.takeHold("b", key, time.Hour)
		}
		time.Sleep(2 * time.Second) // members on new connections get extra time to answer
		c.w.network.Host("b").Freeze()
		var (
			all  sync.WaitGroup
			done [2]atomic.Int32 // holds and renewals
		)
		for i, key := range keys {
			asks := c.limiter("ac"[i%2:][:1])
			for op, f := range []func() bool{
				func() bool {
					_, d, err := asks.HoldFor(t.Context(), key, 1, time.Hour)
					return err == nil && d.Allowed
				},
				func() bool { return asks.RenewHold(t.Context(), key, c.texts[key], time.Hour) == nil },
			} {
				all.Go(func() {
					begun := time.Now()
					if f() {
						done[op].Add(1)
					}
					assert.LessOrEqual(t, time.Since(begun), timeout, "op %d of %q", op, key)
				})
			}
		}
		all.Wait()
		require.NotZero(t, done[0].Load(), "the stand-in has time to answer its own callers")
		require.NotZero(t, done[1].Load())
		c.w.close(t)
	})
}

// The node that asked, the owner, and another node are frozen in turn.
func TestClientHoldSurvivesFreezeUntilReleased(t *testing.T) {
	inEachCarried(t, 4, weir.Limit{Rate: 1}, []bool{false, true}, func(t *testing.T, c *carried, whileFrozen bool) {
		for _, frozen := range []string{"a", "b", "c"} {
			key := keyOf(t, c.limiter("b"))
			c.takeHold("a", key, time.Hour)
			c.w.network.Host(frozen).Freeze()
			time.Sleep(3 * time.Second)
			require.NoError(t, c.renew("d", key, time.Hour))
			require.False(t, c.free("d", key))
			if whileFrozen {
				c.release("d", key)
				require.True(t, waitFor(10*time.Millisecond, func() bool { return c.free("d", key) }), "%s is frozen", frozen)
			}
			c.w.network.Host(frozen).Thaw()
			time.Sleep(3 * time.Second)
			if !whileFrozen {
				require.False(t, c.free("d", key))
				c.release("d", key)
			}
			for range 20 {
				time.Sleep(time.Second)
				require.True(t, c.free("d", key), "%s was frozen", frozen)
			}
			require.ErrorIs(t, c.renew("a", key, time.Hour), weir.ErrExpired)
		}
	})
}

func TestClientHoldExpiresAfterItsTTL(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		c := newCarried(t, 3, gossip, weir.Limit{Rate: 1})
		for _, name := range []string{"a", "b"} {
			key := keyOf(t, c.limiter("a"))
			begun := time.Now()
			c.takeHold(name, key, time.Second)
			granted := make(chan time.Time)
			go func() {
				h, err := c.limiter("c").WaitHold(t.Context(), key, 1)
				if err == nil && h.Decision().Allowed {
					granted <- time.Now()
					h.Release()
				}
				close(granted)
			}()
			time.Sleep(time.Second - time.Since(begun) - 2*time.Millisecond)
			require.NoError(t, c.renew("b", key, time.Second))
			renewed := time.Now()
			require.InDelta(t, time.Second, (<-granted).Sub(renewed), float64(20*time.Millisecond))
			<-granted
			time.Sleep(200 * time.Millisecond)
			for _, other := range c.w.names {
				require.ErrorIs(t, c.renew(other, key, time.Minute), weir.ErrExpired)
			}
			require.True(t, c.free("b", key))
		}
	})
}

// A crash of the owner loses neither a hold after HoldFor has returned, nor its release
// after ReleaseHold has returned.
func TestClientHoldIsReplicatedAtOnce(t *testing.T) {
	inEachCarried(t, 4, weir.Limit{Rate: 1}, []string{"a", "b"}, func(t *testing.T, c *carried, asks string) {
		held, ended := "", ""
		for _, key := range keysOf(c.limiter("a"), 2) {
			held, ended = ended, key
		}
		c.takeHold(asks, ended, time.Hour)
		begun := time.Now()
		c.takeHold(asks, held, time.Hour)
		require.LessOrEqual(t, time.Since(begun), 5*latency, "a round trip, and the work")
		c.release(asks, ended)
		c.w.network.Host("a").Kill()
		if asks == "b" { // not the owner
			time.Sleep(3 * time.Second)
		}
		for _, name := range []string{"b", "c", "d"} {
			require.False(t, c.free(name, held))
		}
		require.NoError(t, c.renew("c", held, time.Hour))
		require.True(t, waitFor(3*time.Second, func() bool { return c.free("c", ended) }))
	})
}

func TestCanceledWaitersDelayNoOtherWaiter(t *testing.T) {
	inEachCarried(t, 3, weir.Limit{Rate: 8}, []string{"a", "b"}, func(t *testing.T, c *carried, owner string) {
		key := keyOf(t, c.limiter(owner))
		ctx := t.Context()
		all, err := c.limiter("a").Hold(ctx, key, 8)
		require.NoError(t, err)
		require.True(t, all.Decision().Allowed)
		gone := make(chan struct{})
		waits, cancel := context.WithCancel(ctx)
		for _, name := range []string{"b", "b", "c"} {
			go func() {
				_, _ = c.limiter(name).WaitHold(waits, key, 1)
				gone <- struct{}{}
			}()
			time.Sleep(20 * time.Millisecond)
		}
		behind := make(chan time.Time)
		go func() {
			h, err := c.limiter("a").WaitHold(ctx, key, 8)
			if err == nil {
				behind <- time.Now()
				h.Release()
			}
			close(behind)
		}()
		time.Sleep(100 * time.Millisecond)
		cancel()
		for range 3 {
			<-gone
		}
		begun := time.Now()
		all.Release()
		require.LessOrEqual(t, (<-behind).Sub(begun), 11*time.Millisecond, "the waiters before this one have given up")
		<-behind
		time.Sleep(2 * latency)
		h, err := c.limiter("a").Hold(ctx, key, 4)
		require.NoError(t, err)
		require.True(t, h.Decision().Allowed)
	})
}

// Without a majority, FailClosed renews no hold, and does not end the hold.
func TestFailClosedRenewsClientHoldWithMajorityOnly(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		c := newCarried(t, 3, gossip, weir.Limit{Rate: 1, Partition: weir.FailClosed})
		c.takeHold("a", "key", 20*time.Second)
		c.w.network.Split([]string{"a"}, []string{"b", "c"})
		time.Sleep(5 * time.Second)
		require.ErrorIs(t, c.renew("a", "key", 20*time.Second), weir.ErrUnavailable)
		require.NoError(t, c.renew("b", "key", 20*time.Second))
		c.w.network.Heal()
		time.Sleep(16 * time.Second)
		require.False(t, c.free("a", "key"))
		require.NoError(t, c.renew("a", "key", 20*time.Second))
	})
}
