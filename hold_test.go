package weir

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/internal/wire"
)

// renewing is a crowd in which each member grants all holds and all renewals, and counts the
// requests that it receives.
type renewing struct {
	*crowd
	mu    sync.Mutex
	asked map[wire.Op]int
}

func (c *renewing) Ask(_ context.Context, request, answer []byte, _ time.Duration) ([]byte, error) {
	c.handler.Heard()
	c.mu.Lock()
	defer c.mu.Unlock()
	op := wire.Op(request[0])
	c.asked[op]++
	switch op {
	case wire.OpHold:
		r := wire.Result{Source: wire.Owner}
		r.Allowed = true
		return r.Append(wire.Op(request[0]), wire.AppendAnswer(answer[:0], wire.Done, 1)), nil
	case wire.OpRenew:
		return append(wire.AppendAnswer(answer[:0], wire.Done, 0), make([]byte, 32)...), nil
	}
	return wire.AppendAnswer(answer[:0], wire.Done, 0), nil
}

// A node sends one message a second to each owner to renew all of its holds, regardless of the
// number of holds.
func TestHoldsAreRenewedByOneMessageToEachOwnerASecond(t *testing.T) {
	t.Parallel()
	const members, seconds = 4, 20
	holds := testenv.PickFull(t, 5_000, 100_000)
	synctest.Test(t, func(t *testing.T) {
		c := &renewing{crowd: newCrowd(members, 0), asked: make(map[wire.Op]int)}
		for i := range c.view.Members {
			if i > 0 {
				c.view.Members[i].Peer = c
			}
		}
		n := solo(t, Config{Cluster: c, Logger: quiet, Replicas: -1})
		l := limiter(t, n, Limit{Algorithm: InFlight, Rate: 10})
		var all []*Hold
		for i := range holds {
			h, err := l.Hold(t.Context(), fmt.Sprint(i), 1)
			require.NoError(t, err)
			if h.Decision().Allowed {
				all = append(all, h)
			}
		}
		require.Len(t, all, holds)
		time.Sleep(time.Second)
		c.mu.Lock()
		before := c.asked[wire.OpRenew]
		c.mu.Unlock()
		time.Sleep(seconds * time.Second)
		c.mu.Lock()
		renewals := c.asked[wire.OpRenew] - before
		c.mu.Unlock()
		require.InDelta(t, (members-1)*seconds, renewals, members)
		require.Equal(t, holds, n.Stats().Holds.Held)
		require.Zero(t, n.Stats().Holds.Lost)
		for _, h := range all {
			h.Release()
		}
		require.Zero(t, n.Stats().Holds.Held)
	})
}

// older is a crowd in which the members use a release that does not support holds.
type older struct {
	*crowd
	asked atomic.Int64 // for holds
}

func (c *older) Ask(_ context.Context, request, answer []byte, _ time.Duration) ([]byte, error) {
	c.handler.Heard()
	if wire.Op(request[0]) == wire.OpHold {
		c.asked.Add(1)
	}
	return wire.AppendAnswer(answer[:0], wire.Unknown, 0), nil
}

// During a rollout, a hold is denied at once if the owner of the key uses a release that does not
// support holds.
func TestAHoldIsDeniedAtOnceWhereTheOwnerRunsAnOlderRelease(t *testing.T) {
	for _, policy := range []PartitionPolicy{MajorityShare, FailOpen, FairShare, FailClosed} {
		synctest.Test(t, func(t *testing.T) {
			c := &older{crowd: newCrowd(4, 0)}
			for i := range c.view.Members {
				if i > 0 {
					c.view.Members[i].Peer = c
				}
			}
			n := solo(t, Config{Cluster: c, Logger: quiet, Replicas: -1})
			l := limiter(t, n, Limit{Algorithm: InFlight, Rate: 2, Partition: policy})
			own, others := "", ""
			for i := 0; own == "" || others == ""; i++ {
				if key := fmt.Sprint(i); l.Owner(key).Self {
					own = key
				} else {
					others = key
				}
			}
			begun, asked := time.Now(), c.asked.Load()
			h, err := l.Hold(t.Context(), others, 1)
			require.NoError(t, err)
			require.Zero(t, time.Since(begun))
			require.EqualValues(t, 1, c.asked.Load()-asked)
			d := h.Decision()
			require.False(t, d.Allowed)
			require.Positive(t, d.RetryAfter)
			require.Equal(t, FailedClosed, d.Source)
			h.Release()

			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			asked = c.asked.Load()
			_, err = l.WaitHold(ctx, others, 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.LessOrEqual(t, c.asked.Load()-asked, int64(10*time.Second/d.RetryAfter)+1)

			var held []*Hold // the node grants all units of a key that it owns, because there are no holds on the other members
			for range 2 {
				h, err = l.Hold(t.Context(), own, 1)
				require.NoError(t, err)
				require.True(t, h.Decision().Allowed)
				held = append(held, h)
			}
			time.Sleep(time.Minute)
			for _, h := range held {
				select {
				case <-h.Lost():
					t.Fatal("lost")
				default:
				}
			}
			h, err = l.Hold(t.Context(), own, 1)
			require.NoError(t, err)
			require.False(t, h.Decision().Allowed)
		})
	}
}
