package weir

import (
	"context"
	"fmt"
	"sync"
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
	c.handler.Answered()
	c.mu.Lock()
	defer c.mu.Unlock()
	op := wire.Op(request[0])
	c.asked[op]++
	switch op {
	case wire.OpHold:
		r := wire.Result{Source: wire.Owner}
		r.Allowed = true
		return r.Append(wire.Op(request[0]), wire.AppendResponse(answer[:0], wire.Done, 1)), nil
	case wire.OpRenew:
		return append(wire.AppendResponse(answer[:0], wire.Done, 0), make([]byte, 32)...), nil
	}
	return wire.AppendResponse(answer[:0], wire.Done, 0), nil
}

// A node sends one message a second to each owner to renew all of its holds, regardless of the
// number of holds.
func TestHoldsAreRenewedInOneMessagePerOwner(t *testing.T) {
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
