package owner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// A node with a share of zero grants no units. A debit or a refund is counted whatever the share
// is, because the service has already spent or returned the units.
func TestDebitsAndRefundsAreCountedWithoutShare(t *testing.T) {
	for _, policy := range []wire.Policy{wire.FairShare, wire.MajorityShare, wire.FailClosed} {
		for _, algorithm := range windowsAndBuckets {
			limit := bucket.Limit{Algorithm: algorithm, Rate: 2, Per: time.Hour, Version: 1}
			if limit.IsBucket() {
				limit.Burst = 2
			}
			n, _ := newOwner()
			v, now := sideOf(5, 0), int64(time.Hour)
			a := wire.Ask{ID: bucket.ID{Hi: 1 << 63, Lo: 2}, Limit: &limit, Partition: policy, Units: 1}
			do := func(op wire.Op, units int64) (r wire.Result) {
				a := a
				a.Units = units
				n.Do(v, view.AsSelf, op, &a, now, &r)
				return r
			}
			used := func() int64 { return n.used(a.ID, now) }
			require.False(t, do(wire.OpTake, 1).Allowed, "%v %v", policy, algorithm)
			require.Zero(t, used(), "%v %v", policy, algorithm)
			do(wire.OpDebit, 2)
			require.EqualValues(t, 2, used(), "%v %v", policy, algorithm)
			do(wire.OpRefund, 1)
			require.EqualValues(t, 1, used(), "%v %v", policy, algorithm)
			judge, _ := n.counts.Judge(a.ID)
			require.Equal(t, limit.Rate, judge.Rate, "%v %v: the count recovers like the whole limit", policy, algorithm)
			now += int64(2 * limit.Per)
			require.Zero(t, used(), "%v %v", policy, algorithm)
		}
	}
}

// If two resets happen at the same time, or if the clock is set back between them, the difference
// of their numbers is 1.
func TestReceiptOfPreviousResetIsVoid(t *testing.T) {
	for _, op := range []wire.Op{wire.OpRefund, wire.OpDebit} {
		limit := limitOf(bucket.FixedWindow)
		n, v := newOwner()
		id, now := bucket.ID{Hi: 1, Lo: 2}, int64(time.Hour)
		first := n.stream.Reset(id, now)
		granted := wire.Result{ResetNumber: n.ResetNumber(id, now)}
		n.Do(v, view.AsOwner, wire.OpTake, &wire.Ask{ID: id, Limit: &limit, Units: 20}, now, &granted)
		a := wire.Ask{ID: id, Limit: &limit, Units: 5}.WithReceipt(&granted)
		n.Do(v, view.AsOwner, op, &a, now, new(wire.Result))
		require.NotEqualValues(t, 20, n.used(id, now), "a receipt from after the reset is valid")

		require.Equal(t, first+1, n.stream.Reset(id, now))
		n.Do(v, view.AsOwner, wire.OpTake, &wire.Ask{ID: id, Limit: &limit, Units: 7}, now, new(wire.Result))
		var r wire.Result
		n.Do(v, view.AsOwner, op, &a, now, &r)
		require.EqualValues(t, 7, n.used(id, now))
		require.False(t, r.Allowed, "a debit that was not counted is not Allowed, so that a late result is not refunded")
	}
}

func TestTakesTogetherWaitAsLongAsSingleTake(t *testing.T) {
	o, _ := newOwner()
	v, now := sideOf(5, 0, 1), int64(time.Hour)
	a := wire.Ask{ID: bucket.ID{Hi: 1 << 63, Lo: 2}, Limit: &bucket.Limit{Algorithm: bucket.LeakyBucket, Rate: 10, Per: time.Second, Burst: 10}, Partition: wire.FairShare, Units: 1}
	var single wire.Result
	o.Do(v, view.AsSelf, wire.OpTake, &a, now, &single)
	require.True(t, single.Allowed)
	wait := a
	wait.Units, wait.Wait = 1, wire.Wait{Ticket: 1, Waiting: 1}
	o.Do(v, view.AsSelf, wire.OpWait, &wait, now, new(wire.Result))
	a.Units = 1
	o.Do(v, view.AsSelf, wire.OpTake, &a, now, &single)
	require.False(t, single.Allowed)
	together := make([]wire.Result, 1)
	o.TakeAll(v, view.AsSelf, []wire.Ask{a}, now, new(Room), together)
	require.Equal(t, single.RetryAfter, together[0].RetryAfter)
	require.Equal(t, single.ResetAfter, together[0].ResetAfter)
}
