package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

var (
	errFull   = errors.New("full")
	errClosed = errors.New("closed")
)

// queue is the lines of one node, and the owner that they ask.
type queue struct {
	*Queues
	life  env.Life
	owner *owner.Owner
	limit bucket.Limit
	asks  atomic.Int64
}

// newQueue returns one that serves a unit each second, and has room for three.
func newQueue(t *testing.T) *queue {
	clock, counts := env.NewClock(nil), bucket.NewStore(100, bucket.Salt{})
	q := &queue{limit: bucket.Limit{Algorithm: bucket.LeakyBucket, Rate: 60, Per: time.Minute, Burst: 3}}
	q.owner = owner.New(clock, time.Second, counts, countsync.New(1, counts), nil)
	v := &view.View{View: &cluster.View{Self: 0}, Complete: true}
	v.Held = countsync.All()
	q.life.Begin()
	t.Cleanup(func() { _ = q.life.Close(func() error { return nil }) })
	do := func(op wire.Op, a *wire.Ask, r *wire.Result) {
		q.owner.Do(v, view.AsOwner, op, a, clock.Now(), r)
	}
	q.Queues = New(Config{
		Clock: clock, Life: &q.life, Full: errFull, Closed: errClosed,
		Decide: func(_ context.Context, op wire.Op, a *wire.Ask, r *wire.Result) error {
			q.asks.Add(1)
			do(op, a, r)
			return nil
		},
		Tell: func(op wire.Op, a *wire.Ask) { do(op, a, new(wire.Result)) },
	})
	return q
}

func (q *queue) ask() *wire.Ask {
	return &wire.Ask{ID: bucket.ID{Hi: 1}, Name: "queue", Limit: &q.limit, Units: 1}
}

// wait has a waiter wait, and returns what becomes of it.
func (q *queue) wait(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() {
		r, err := q.Wait(ctx, q.ask())
		if err == nil && !r.Allowed {
			err = errors.New("denied")
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

func TestWaitersAreServedInOrderAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, begun := newQueue(t), time.Now()
		first, second, third := q.wait(t.Context()), q.wait(t.Context()), q.wait(t.Context())
		for i, done := range []<-chan error{first, second, third} {
			require.NoError(t, <-done)
			require.Equal(t, time.Duration(i)*time.Second, time.Since(begun))
		}
		require.NoError(t, q.life.Close(func() error { return nil }))
		require.Zero(t, q.Len(), "a line in which nothing waits is none")
	})
}

func TestAWaiterWithoutAPlaceIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t)
		require.NoError(t, <-q.wait(t.Context()))
		second, third := q.wait(t.Context()), q.wait(t.Context())
		require.EqualValues(t, 2, q.Placed(q.ask()))
		begun := time.Now()
		err := <-q.wait(t.Context())
		require.ErrorIs(t, err, errFull)
		require.ErrorContains(t, err, `limit "queue" has its Burst of 3 units waiting`)
		soon, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err = q.Wait(soon, q.ask())
		require.ErrorIs(t, err, errFull)
		require.Zero(t, time.Since(begun))
		require.NoError(t, <-second)
		require.NoError(t, <-third)
	})
}

func TestAWaiterWhoseDeadlineIsBeforeItsTurnIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, begun := newQueue(t), time.Now()
		require.NoError(t, <-q.wait(t.Context()))
		soon, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		require.ErrorIs(t, <-q.wait(soon), context.DeadlineExceeded)
		require.Zero(t, time.Since(begun))
	})
}

func TestAWaiterThatLeavesTakesNoTurnAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, begun := newQueue(t), time.Now()
		require.NoError(t, <-q.wait(t.Context()))
		leaves, leave := context.WithCancel(t.Context())
		second, third := q.wait(leaves), q.wait(t.Context())
		leave()
		require.ErrorIs(t, <-second, context.Canceled)
		require.NoError(t, <-third)
		require.Equal(t, time.Second, time.Since(begun), "it has the turn of the second")
		time.Sleep(2 * Tick)
		require.Zero(t, q.owner.Lines(), "the owner knows that nothing waits")
	})
}

func TestWaitersAskTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t)
		q.limit.Burst = 50
		var all []<-chan error
		for range 50 {
			all = append(all, q.wait(t.Context()))
		}
		before := q.asks.Load()
		for _, done := range all {
			require.NoError(t, <-done)
		}
		require.LessOrEqual(t, q.asks.Load()-before, int64(100), "at most an ask for the units and one when they are due")
	})
}

func TestTheEndOfANodeEndsItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t)
		require.NoError(t, <-q.wait(t.Context()))
		second := q.wait(t.Context())
		require.NoError(t, q.life.Close(func() error { return nil }))
		require.ErrorIs(t, <-second, errClosed)
		require.Zero(t, q.Len())
	})
}
