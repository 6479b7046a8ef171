package owner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// The count of the member with authority may arrive between a grant of this node and its refund. If the count was
// in transit for longer than the previous time, its windows and entries begin later on this node.
func TestRefundFindsUnitsOfStandInAfterImport(t *testing.T) {
	for _, algorithm := range windowsAndBuckets {
		limit := limitOf(algorithm)
		for _, stoodIn := range []bool{true, false} {
			n, v := newOwner()
			id, now := bucket.ID{Hi: 1, Lo: 2}, int64(time.Hour)
			authority, state := bucket.NewStore(1, bucket.Salt{}), new(bucket.Count)
			arrives := func(after time.Duration, onTop int64) {
				authority.Export(id, now, bucket.Mark{}, state)
				now += int64(after)
				n.counts.Import(id, state, now, onTop)
			}
			authority.Take(id, &limit, now, 10)
			arrives(time.Millisecond, 0)
			now += int64(time.Millisecond)
			a, r := wire.Ask{ID: id, Limit: &limit, Partition: wire.FailOpen, Units: 3}, wire.Result{}
			n.Do(v, view.AsStandIn, wire.OpTake, &a, now, &r)
			require.True(t, r.Allowed)
			require.True(t, r.StoodIn)
			r.StoodIn = stoodIn
			authority.Take(id, &limit, now, 20)
			arrives(70*time.Millisecond, 3) // the units granted on this node are in its tally
			refund := a.WithReceipt(&r)
			n.Do(v, v.Standing(id), wire.OpRefund, &refund, now, new(wire.Result))
			used := n.used(id, now)
			if stoodIn || limit.IsBucket() {
				require.EqualValues(t, 30, used, algorithm)
			} else {
				require.EqualValues(t, 33, used, "%v: a receipt that was given with authority is exact", algorithm)
			}
			now += int64(limit.Per) // units that are used from now on do not belong to the receipt
			n.counts.Take(id, &limit, now, 40)
			before := n.used(id, now)
			n.Do(v, v.Standing(id), wire.OpRefund, &refund, now, new(wire.Result))
			require.Equal(t, before, n.used(id, now), algorithm)
		}
	}
}

// The asking node learns how long ago the window of a receipt began, even if no unit is left.
func TestTakeStatesTheAgeOfItsWindow(t *testing.T) {
	for _, algorithm := range []bucket.Algorithm{bucket.SlidingWindow, bucket.FixedWindow} {
		n, v := newOwner()
		limit, start := limitOf(algorithm), int64(7*time.Hour)
		a := askFor(bucket.ID{Hi: 1, Lo: 2}, &limit, 50)
		for _, into := range []time.Duration{0, 20 * time.Minute} {
			var r wire.Result
			n.Do(v, view.AsOwner, wire.OpTake, &a, start+int64(into), &r)
			r = wire.ParseResult(r.Append(wire.OpTake, wire.AppendResponse(nil, wire.Done, 1)), wire.OpTake, 0)
			require.True(t, r.Allowed)
			require.Equal(t, into, r.Age, algorithm)
		}
	}
}

var windowsAndBuckets = []bucket.Algorithm{bucket.SlidingWindow, bucket.SlidingLog, bucket.FixedWindow, bucket.TokenBucket, bucket.LeakyBucket}

// limitOf returns a limit of 100 units an hour.
func limitOf(algorithm bucket.Algorithm) bucket.Limit {
	limit := bucket.Limit{Algorithm: algorithm, Rate: 100, Per: time.Hour, Version: 1}
	if limit.IsBucket() {
		limit.Burst = 100
	}
	return limit
}

// The member that has authority now has received the count from the granting member, which
// has a different clock.
func TestReceiptWithAgeIsValidOnAnyMember(t *testing.T) {
	for _, algorithm := range windowsAndBuckets {
		for _, op := range []wire.Op{wire.OpRefund, wire.OpDebit} {
			limit := limitOf(algorithm)
			first, v := newOwner()
			second, _ := newOwner()
			id, now, ahead := bucket.ID{Hi: 1, Lo: 2}, int64(time.Hour), int64(3*time.Hour)
			var granted wire.Result
			first.Do(v, view.AsOwner, wire.OpTake, &wire.Ask{ID: id, Limit: &limit, Units: 20}, now, &granted)
			state := new(bucket.Count)
			first.counts.Export(id, now, bucket.Mark{}, state)
			now += int64(70 * time.Millisecond)
			second.counts.Import(id, state, now+ahead, 0)
			now += int64(time.Second)
			a := wire.Ask{ID: id, Limit: &limit, Units: 5}.WithReceipt(&granted)
			a.Spent.Age = time.Duration(now - int64(a.Spent.Receipt))
			second.Do(v, view.AsOwner, op, &a, now+ahead, new(wire.Result))
			used := second.used(id, now+ahead)
			want := int64(15)
			if op == wire.OpDebit {
				want = 25
			}
			require.Equal(t, want, used, "%v", algorithm)
		}
	}
}
