package queue_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/queue"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// node contains the queues of a node, and the owner that they ask.
type node struct {
	*queue.Queues
	env.Checks
	env   env.Env
	owner *owner.Owner
	limit bucket.Limit
	asks  atomic.Int64
	late  atomic.Bool // the owner does not answer, so that the share of the node decides
	reset atomic.Bool // the owner has reset the key, so that it is not paused
}

// newNode returns a node that serves a unit each second, and has room for three units.
func newNode(t *testing.T) *node {
	counts := bucket.NewStore(100, bucket.Salt{})
	q := &node{env: env.Env{Clock: env.NewClock(nil)}, limit: bucket.Limit{Algorithm: bucket.LeakyBucket, Rate: 60, Per: time.Minute, Burst: 3}}
	q.owner = owner.New(q.env.Clock, time.Second, counts, countsync.New(1, counts), nil)
	v := (&view.View{View: &cluster.View{Self: 0}, Complete: true}).ReceiveRanges(countsync.All())
	q.env.Store(v)
	q.env.Begin()
	t.Cleanup(func() { _ = q.env.Close(func() error { return nil }) })
	q.Queues = queue.New(queue.Config{Env: &q.env, Checks: q})
	return q
}

func (q *node) Do(_ context.Context, op wire.Op, a *wire.Ask, r *wire.Result) error {
	q.asks.Add(1)
	if q.late.Load() {
		*r = wire.Result{Source: wire.Budget, Granted: a.Units}
		r.Allowed = a.Units > 0
		return nil
	}
	b := *a
	b.Pauses = a.Pauses && !q.reset.Load()
	q.owner.Do(q.env.View(), view.AsOwner, op, &b, q.env.Now(), r)
	return nil
}

func (q *node) Send(op wire.Op, a *wire.Ask) {
	q.owner.Do(q.env.View(), view.AsOwner, op, a, q.env.Now(), new(wire.Result))
}

func (q *node) ask() *wire.Ask {
	return &wire.Ask{ID: bucket.ID{Hi: 1}, Name: "queue", Limit: &q.limit, Units: 1}
}

// wait starts a waiter, and returns a channel for the result.
func (q *node) wait(ctx context.Context) <-chan error {
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
		q, begun := newNode(t), time.Now()
		first, second, third := q.wait(t.Context()), q.wait(t.Context()), q.wait(t.Context())
		for i, done := range []<-chan error{first, second, third} {
			require.NoError(t, <-done)
			require.Equal(t, time.Duration(i)*time.Second, time.Since(begun))
		}
		require.NoError(t, q.env.Close(func() error { return nil }))
		require.Zero(t, q.Len(), "a queue without waiters is deleted")
	})
}

func TestWaiterWithoutPlaceIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newNode(t)
		require.NoError(t, <-q.wait(t.Context()))
		second, third := q.wait(t.Context()), q.wait(t.Context())
		require.EqualValues(t, 2, q.Placed(q.ask()))
		begun := time.Now()
		err := <-q.wait(t.Context())
		require.ErrorIs(t, err, queue.ErrFull)
		require.ErrorContains(t, err, `limit "queue" has its Burst of 3 units waiting`)
		soon, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err = q.Wait(soon, q.ask())
		require.ErrorIs(t, err, queue.ErrFull)
		require.Zero(t, time.Since(begun))
		require.NoError(t, <-second)
		require.NoError(t, <-third)
	})
}

// The owner has the count of the pause. The node, which decides within its share, knows only the denial.
func TestPausedKeyHasNoTurnWithinShare(t *testing.T) {
	for _, c := range []struct {
		name       string
		reset      bool
		turns      []float64 // in seconds since the pause began
		ownerFails time.Duration
	}{
		{"pause in force", false, []float64{5, 5}, 2500 * time.Millisecond},
		{"pause ended by a reset", true, []float64{3, 4}, 3500 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newNode(t)
				a := q.ask()
				a.Pauses, a.Units = true, 5000
				q.owner.Do(q.env.View(), view.AsOwner, wire.OpPause, a, q.env.Now(), new(wire.Result))
				begun, turns := time.Now(), make(chan time.Duration, len(c.turns))
				for range c.turns {
					go func() {
						a := q.ask()
						a.Pauses = true
						_, err := q.Wait(t.Context(), a)
						assert.NoError(t, err)
						turns <- time.Since(begun)
					}()
				}
				time.Sleep(2500 * time.Millisecond)
				q.reset.Store(c.reset)
				time.Sleep(time.Until(begun.Add(c.ownerFails)))
				q.late.Store(true)
				for _, want := range c.turns {
					require.InDelta(t, want, (<-turns).Seconds(), 0.2)
				}
			})
		})
	}
}

func TestWaitersForAHoldHaveTurnsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, turns := newNode(t), []int(nil)
		leaves, leave := context.WithCancel(t.Context())
		for i, ctx := range []context.Context{t.Context(), leaves, t.Context(), leaves} {
			go func() {
				next, err := q.Turn(ctx, bucket.ID{Hi: 1})
				defer next()
				if err == nil {
					turns = append(turns, i)
					time.Sleep(time.Second)
				}
			}()
			synctest.Wait()
		}
		leave()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []int{0, 2}, turns)
		require.Zero(t, q.Len())
	})
}

func TestContendersAreBoundedAndExpire(t *testing.T) {
	var c queue.Contenders
	for i := range uint64(5000) {
		self := queue.Contender{Ticket: queue.Ticket{Number: i}, Units: 1, Arrived: int64(i), Due: 5, Expires: 10}
		c.Record(bucket.ID{Lo: i % 2}, self, 0)
	}
	require.Equal(t, 1<<12, c.Len())
	require.Empty(t, c.Sweep(2, 9))
	require.Len(t, c.Sweep(2, 10), 2)
	require.Zero(t, c.Len())
}

// Many callers enter at the same time, in real time. The order in which they enter may not be the
// order in which they read the clock.
func TestConcurrentWaitersAllHaveAPlace(t *testing.T) {
	t.Parallel()
	q := newNode(t)
	q.limit.Per, q.limit.Burst = 60*time.Hour, 1000
	for try := range uint64(30) {
		ctx, cancel := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		a := q.ask()
		a.ID.Lo = try
		for range 50 {
			clients.Go(func() { _, _ = q.Wait(ctx, a) })
		}
		require.Eventually(t, func() bool { return q.Placed(a) == 49 }, time.Minute, time.Millisecond, "one waiter is served, and all other waiters have a place")
		cancel()
		clients.Wait()
	}
}

func TestWaitersAskTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newNode(t)
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

func TestClosedNodeEndsItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newNode(t)
		require.NoError(t, <-q.wait(t.Context()))
		second := q.wait(t.Context())
		require.NoError(t, q.env.Close(func() error { return nil }))
		require.ErrorIs(t, <-second, env.ErrClosed)
		require.Zero(t, q.Len())
	})
}
