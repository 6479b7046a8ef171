package owner

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

const pausedAt = int64(time.Hour)

// pauseOf returns an ask that pauses a key for a number of seconds.
func pauseOf(seconds int64) wire.Ask {
	return wire.Ask{ID: bucket.ID{Hi: 1, Lo: 1}, Limit: &bucket.Limit{Rate: 10, Per: time.Minute}, Units: 1000 * seconds, Pauses: true, BansKeys: true}
}

func TestConcurrentPausesDoNotAddUp(t *testing.T) {
	const keys = 3_000
	o, v := newOwner()
	o.counts = bucket.NewStore(2*keys, bucket.Salt{})
	var (
		calls   sync.WaitGroup
		arrived [keys]atomic.Int32
	)
	for range 2 {
		calls.Go(func() {
			for i := range uint64(keys) {
				a := pauseOf(5)
				a.ID.Lo = i
				for arrived[i].Add(1); arrived[i].Load() < 2; { // both calls begin together
					runtime.Gosched()
				}
				o.Do(v, view.AsOwner, wire.OpPause, &a, pausedAt, new(wire.Result))
			}
		})
	}
	calls.Wait()
	for i := range uint64(keys) {
		require.Equal(t, 5*time.Second, o.counts.RecoversIn(pauseID(bucket.ID{Hi: 1, Lo: i}), pausedAt))
	}
}

func TestPauseResultHasRemainingTime(t *testing.T) {
	o, v := newOwner()
	minority := sideOf(5, 0)
	for _, c := range []struct {
		seconds, rest int64
		v             *view.View
		as            view.Standing
	}{{9, 9, v, view.AsOwner}, {5, 9, v, view.AsOwner}, {20, 20, minority, view.AsStandIn}, {1 << 52, 86_400, minority, view.AsSelf}} {
		a, r := pauseOf(c.seconds), wire.Result{}
		o.Do(c.v, c.as, wire.OpPause, &a, pausedAt, &r)
		require.True(t, r.Paused && r.Banned && r.Firm && !r.Allowed)
		require.Equal(t, time.Duration(c.rest)*time.Second, r.RetryAfter)
		require.Equal(t, c.v == minority, r.Source.IsShare())
		for _, op := range []wire.Op{wire.OpTake, wire.OpPeek, wire.OpWait} {
			var denied wire.Result
			o.Do(c.v, c.as, op, &a, pausedAt, &denied)
			require.True(t, denied.Paused && !denied.Allowed)
			require.Equal(t, r.RetryAfter, denied.RetryAfter)
		}
	}
	a := pauseOf(1)
	a.Units = 1
	for _, op := range []wire.Op{wire.OpDebit, wire.OpRefund} {
		var r wire.Result
		o.Do(v, view.AsOwner, op, &a, pausedAt, &r)
		require.False(t, r.Banned, "a pause denies no debits and refunds")
	}
}

// The denial lasts until the later end of the ban and the pause, also if the result has a field of an earlier use.
func TestDenialLastsUntilLaterOfBanAndPause(t *testing.T) {
	o, v := newOwner()
	strikes := bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 1, Per: time.Minute}
	a := pauseOf(10)
	strike := wire.Ask{ID: a.ID, Limit: &strikes, Units: 1, BansKeys: true, Pauses: true, Ban: wire.Ban{time.Minute}}
	take := func(later time.Duration) (r wire.Result) {
		r.Paused = true // left by an earlier use
		one := a
		one.Units = 1
		o.Do(v, view.AsOwner, wire.OpTake, &one, pausedAt+int64(later), &r)
		return r
	}
	o.Do(v, view.AsOwner, wire.OpStrike, &strike, pausedAt, new(wire.Result))
	o.Do(v, view.AsOwner, wire.OpPause, &a, pausedAt, new(wire.Result))
	r := take(0)
	require.True(t, r.Banned && !r.Paused)
	require.Equal(t, time.Minute, r.RetryAfter)
	a.Units = 100_000
	o.Do(v, view.AsOwner, wire.OpPause, &a, pausedAt, new(wire.Result))
	r = take(30 * time.Second)
	require.True(t, r.Banned && r.Paused)
	require.Equal(t, 70*time.Second, r.RetryAfter)
	r = take(100 * time.Second)
	require.True(t, r.Allowed && !r.Paused && !r.Banned)
	require.Equal(t, []bucket.ID{pauseID(a.ID), strikesID(a.ID), earlierID(a.ID), banID(a.ID), a.ID}, CountIDs(&a))
}

func TestPauseOfOneAskDeniesAll(t *testing.T) {
	o, v := newOwner()
	a := pauseOf(60)
	o.Do(v, view.AsOwner, wire.OpPause, &a, pausedAt, new(wire.Result))
	asks := []wire.Ask{a, {ID: bucket.ID{Hi: 2, Lo: 2}, Limit: a.Limit, Units: 1}}
	asks[0].BansKeys, asks[0].Units = false, 1
	results := make([]wire.Result, 2)
	results[1].Paused = true // left by an earlier use
	o.TakeAll(v, view.AsOwner, asks, pausedAt, new(Room), results)
	require.True(t, results[0].Paused && !results[0].Allowed && !results[1].Paused)
	require.Zero(t, o.used(asks[1].ID, pausedAt))
}

// At the end of a pause, a take does not overtake the nodes that wait.
func TestPauseKeepsPlacesOfNodes(t *testing.T) {
	o, v := newOwner()
	l := bucket.Limit{Algorithm: bucket.LeakyBucket, Rate: 1, Per: time.Second, Burst: 10}
	a := pauseOf(5)
	a.Limit = &l
	o.Do(v, view.AsOwner, wire.OpPause, &a, pausedAt, new(wire.Result))
	wait := func(after time.Duration, ticket uint64, waiting uint32, age time.Duration) (r wire.Result) {
		w := a
		w.Units, w.Wait = 1, wire.Wait{Ticket: ticket, Waiting: waiting, Age: age}
		o.Do(v, view.AsOwner, wire.OpWait, &w, pausedAt+int64(after), &r)
		return r
	}
	require.EqualValues(t, 10, wait(time.Second, 1, 7, time.Second).Remaining)
	require.EqualValues(t, 3, wait(2*time.Second, 2, 9, time.Second).Remaining, "Burst less the units that wait elsewhere")
	require.EqualValues(t, 7, wait(4500*time.Millisecond, 1, 7, 4500*time.Millisecond).Remaining, "the other node has only the 3 places that it was given")
	require.EqualValues(t, 2, o.WaitingNodes())
	take, r := a, wire.Result{}
	take.Units = 1
	o.Do(v, view.AsOwner, wire.OpTake, &take, pausedAt+int64(5*time.Second), &r)
	require.True(t, !r.Allowed && !r.Banned)
	require.True(t, wait(5*time.Second, 1, 7, 5*time.Second).Allowed)
	wait(5*time.Second, 1, 0, 0)
	a.Units = 5000
	o.Do(v, view.AsOwner, wire.OpPause, &a, pausedAt+int64(6*time.Second), new(wire.Result))
	wait(7*time.Second, 2, 0, 0)
	require.Zero(t, o.WaitingNodes(), "a node without waiters leaves")
}

// waitOf executes OpWait for a unit, asked by a node whose only waiter arrived at the time arrived. Times count
// from pausedAt.
func waitOf(o *Owner, v *view.View, a wire.Ask, after, arrived time.Duration) (r wire.Result) {
	a.Units, a.Wait = 1, wire.Wait{Ticket: uint64(1 + arrived), Waiting: 1, Age: after - arrived}
	o.Do(v, view.AsOwner, wire.OpWait, &a, pausedAt+int64(after), &r)
	return r
}

// The node with the first waiter is served first, even if its request arrives last, unless that is askLate or more
// after the end of the pause.
func TestFirstWaiterIsServedFirstAfterPause(t *testing.T) {
	for _, late := range []bool{false, true} {
		o, v := newOwner()
		a := pauseOf(5)
		a.Limit = &bucket.Limit{Algorithm: bucket.LeakyBucket, Rate: 1, Per: time.Second, Burst: 10}
		o.Do(v, view.AsOwner, wire.OpPause, &a, pausedAt, new(wire.Result))
		end := 5 * time.Second
		for _, arrived := range []time.Duration{0, time.Second} {
			require.True(t, waitOf(o, v, a, end-time.Second/2, arrived).Paused)
		}
		second := waitOf(o, v, a, end, time.Second)
		require.False(t, second.Allowed)
		require.Equal(t, askLate, second.RetryAfter)
		if !late {
			require.True(t, waitOf(o, v, a, end+askLate-1, 0).Allowed)
		}
		require.Equal(t, late, waitOf(o, v, a, end+askLate, time.Second).Allowed)
	}
}

// A node that waits for the ask of the first node does not open the way for the nodes behind it.
func TestLaterWaitersWaitForFirstAfterPause(t *testing.T) {
	o, v := newOwner()
	a := pauseOf(5)
	a.Limit = &bucket.Limit{Algorithm: bucket.LeakyBucket, Rate: 1, Per: time.Second, Burst: 10}
	o.Do(v, view.AsOwner, wire.OpPause, &a, pausedAt, new(wire.Result))
	end := 5 * time.Second
	order := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}
	for _, arrived := range order {
		require.True(t, waitOf(o, v, a, end-time.Second/2, arrived).Paused)
	}
	for _, arrived := range order[1:] {
		r := waitOf(o, v, a, end, arrived)
		require.False(t, r.Allowed, arrived)
		require.Equal(t, askLate, r.RetryAfter)
	}
	require.True(t, waitOf(o, v, a, end, 0).Allowed)
}

// A node that waits asks again every second, also during a longer pause. So if a reset ends the pause, a
// node that has crashed delays no other node.
func TestResetOfPauseSkipsCrashedNode(t *testing.T) {
	o, v := newOwner()
	a := pauseOf(60)
	a.Limit = &bucket.Limit{Algorithm: bucket.LeakyBucket, Rate: 1, Per: time.Second, Burst: 10}
	o.Do(v, view.AsOwner, wire.OpPause, &a, pausedAt, new(wire.Result))
	for _, arrived := range []time.Duration{0, time.Second / 2} {
		require.True(t, waitOf(o, v, a, time.Second, arrived).Paused)
	}
	a.Pauses = false
	require.False(t, waitOf(o, v, a, 2*time.Second, time.Second/2).Allowed, "the request of the other node is not late yet")
	require.True(t, waitOf(o, v, a, 2*time.Second+askLate, time.Second/2).Allowed)
}
