package owner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/queue"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// The reference is another store, which takes the units that its own Peek has just reported as
// remaining. The owner must grant the same number. The owner decides with the whole limit, or with the share
// of a node in a partition.
func TestTakeAtMostSpendsRemainingUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, whole := newOwner()
		reference := bucket.NewStore(10, bucket.Salt{})
		l := bucket.Limit{
			Algorithm: rapid.SampledFrom([]bucket.Algorithm{bucket.SlidingWindow, bucket.SlidingLog, bucket.FixedWindow, bucket.TokenBucket, bucket.LeakyBucket}).Draw(t, "algorithm"),
			Rate:      rapid.Int64Range(1, 20).Draw(t, "rate"), Per: time.Duration(rapid.Int64Range(1e6, 1e9).Draw(t, "per")),
		}
		if l.Algorithm != bucket.LeakyBucket {
			l.Keep = rapid.Int64Range(0, l.Rate-1).Draw(t, "keep")
		}
		v, as, part := whole, view.AsOwner, l
		if rapid.Bool().Draw(t, "in a share") {
			v, as = sideOf(4, 0, 1, 2), view.AsSelf
			s, _ := v.Share(as, bucket.ID{}, wire.FairShare)
			part = s.Limit(&l)
		}
		now := int64(time.Hour)
		for range rapid.IntRange(1, 12).Draw(t, "asks") {
			now += rapid.Int64Range(0, int64(l.Per)/4).Draw(t, "step")
			a := wire.Ask{Limit: &l, Units: rapid.Int64Range(1, 30).Draw(t, "units"), AtMost: true, Partition: wire.FairShare}
			a.Take.Want = wire.Want{Units: uint32(rapid.IntRange(0, 1).Draw(t, "want")), Term: 100}
			want := min(a.Units, reference.Peek(bucket.ID{}, &part, now, 1).Remaining)
			var r wire.Result
			o.Do(v, as, wire.OpTake, &a, now, &r)
			require.Equal(t, want > 0, r.Allowed)
			if !r.Allowed {
				require.Equal(t, v.RetryAfter(as, r.Source, reference.Peek(bucket.ID{}, &part, now, 1).RetryAfter), r.RetryAfter)
				continue
			}
			require.Equal(t, want, a.GrantedUnits(wire.OpTake, &r))
			require.Equal(t, reference.Take(bucket.ID{}, &part, now, want).Remaining, r.Remaining)
			used, _, _ := reference.Used(bucket.ID{}, now)
			require.Equal(t, used, o.used(bucket.ID{}, now))
		}
	})
}

func TestTakeAtMostIsDeniedBehindWaiters(t *testing.T) {
	o, v := newOwner()
	l := bucket.Limit{Algorithm: bucket.LeakyBucket, Rate: 10, Per: time.Second}
	s := o.queues.lock(bucket.ID{})
	s.Record(bucket.ID{}, queue.Contender{Ticket: queue.Ticket{Number: 1}, Units: 1, Expires: int64(time.Hour)}, 0)
	s.mu.Unlock()
	o.queues.contenders.Add(1)
	var r wire.Result
	o.Do(v, view.AsOwner, wire.OpTake, &wire.Ask{Limit: &l, Units: 5, AtMost: true}, 0, &r)
	require.False(t, r.Allowed)
	require.Zero(t, o.used(bucket.ID{}, 0))
}
