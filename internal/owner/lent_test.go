package owner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

const now = int64(time.Hour)

var daily = &bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 1000, Per: 24 * time.Hour}

// lend takes units for a node that also requests a lease, and returns the ask of the node and the
// result.
func lend(n *Owner, id bucket.ID, l *bucket.Limit, now, take int64, want wire.Want) (a wire.Ask, r wire.Result) {
	a = askFor(id, l, take)
	a.Take.Want = want
	n.takeLending(&a, l, now, &r)
	return a, r
}

// The borrower may spend the units during two thirds of the lease. The last third is for the
// return of unspent units. If the lease is shortened, it has proportionally fewer units.
func TestLeaseIsShorterIfItsLimitRecoversSoon(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		limit  bucket.Limit
		wanted uint16 // ms, with 100 units
		lent   wire.Lease
	}{
		{"limit that recovers slowly", bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 1000, Per: 256 * time.Second}, 500, wire.Lease{Units: 100, Term: 500, Until: stamp(int64(lentFor))}},
		{"wanted term shorter than the limit allows", bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 1000, Per: 76_800 * ms}, 100, wire.Lease{Units: 100, Term: 100, Until: stamp(int64(300 * ms))}},
		{"log", bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 1000, Per: 76_800 * ms}, 500, wire.Lease{Units: 40, Term: 200, Until: stamp(int64(300 * ms))}},
		{"bucket", bucket.Limit{Algorithm: bucket.TokenBucket, Rate: 960, Per: 9600 * ms}, 500, wire.Lease{Units: 40, Term: 200, Until: stamp(int64(300 * ms))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			owner, _ := newOwner()
			_, r := lend(owner, bucket.ID{Hi: 1, Lo: 2}, &c.limit, 0, 0, wire.Want{Units: 100, Term: c.wanted})
			require.Equal(t, c.lent, r.Lease)
		})
	}
}

// Refunds do not spare the units of an expired lease, so that a refund may already have returned
// these units.
func TestUnspentLeaseIsReturnedUntilItExpires(t *testing.T) {
	const begun, term, ms = now, 100 * time.Millisecond, time.Millisecond
	lendTen := func(t *testing.T, owner *Owner, now int64) wire.Ask {
		left, r := lend(owner, bucket.ID{Hi: 1, Lo: 2}, daily, now, 0, wire.Want{Units: 10, Term: uint16(term / ms)})
		require.EqualValues(t, 10, r.Lease.Units)
		require.EqualValues(t, term/ms, r.Lease.Term)
		left = left.WithReceipt(&r)
		left.Units, left.Lent.Until = 10, r.Lease.Until // all units are unspent
		return left
	}
	for _, c := range []struct {
		name    string
		after   time.Duration // time since the lease was granted
		another time.Duration // time from the first lease to another lease, if any
		stays   int64
	}{
		{name: "at once"},
		{name: "long after the term of the borrower", after: 5 * term},
		{name: "just before the lease expires", after: lentFor - ms},
		{name: "when the lease expires", after: lentFor, stays: 10},
		{name: "when the lease expires, with another valid lease", after: lentFor, another: term, stays: 20},
		{name: "long after the lease has expired, with another valid lease", after: 3 * time.Hour, another: 3*time.Hour - ms, stays: 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			owner, v := newOwner()
			left := lendTen(t, owner, begun)
			if c.another > 0 {
				lendTen(t, owner, begun+int64(c.another))
			}
			now := begun + int64(c.after)
			owner.Reclaim(v, &left, now)
			require.Equal(t, c.stays, owner.used(left.ID, now))
		})
	}
	t.Run("after a reset", func(t *testing.T) {
		owner, v := newOwner()
		before, now := lendTen(t, owner, begun), begun+int64(ms)
		owner.stream.Reset(before.ID, begun)
		after := lendTen(t, owner, now)
		owner.Reclaim(v, &before, now)
		require.EqualValues(t, 10, owner.used(before.ID, now))
		owner.Reclaim(v, &after, now)
		require.Zero(t, owner.used(before.ID, now))
	})
}

func TestLentUnitsAreKnownUntilLastLeaseEnds(t *testing.T) {
	limit := &bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 1000, Per: 256 * time.Second}
	soon := &bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 1000, Per: 25_600 * time.Millisecond} // leases of at most 100 ms
	n, _ := newOwner()
	lend(n, bucket.ID{Hi: 1, Lo: 2}, limit, now, 0, wire.Want{Units: 50, Term: 500})
	a, r := lend(n, bucket.ID{Hi: 1, Lo: 2}, soon, now, 0, wire.Want{Units: 50, Term: 500})
	require.NotZero(t, r.Lease.Units)
	require.EqualValues(t, lentFor, n.lent.leaseOf(a.ID, now).Term)
}

// If all entries of a set are in use, the owner lends no units from a further count of the set
// until a lease ends. So the owner never forgets lent units that the borrower may not have spent.
func TestFullLeaseSetLendsFromNoOtherCount(t *testing.T) {
	n, _ := newOwner()
	lends := func(i int, now int64) uint32 {
		_, r := lend(n, bucket.ID{Hi: 1, Lo: uint64(i) * lentSets}, daily, now, 1, wire.Want{Units: 10, Term: 500})
		require.True(t, r.Allowed)
		return r.Lease.Units
	}
	for i := range lentWays {
		require.EqualValues(t, 10, lends(i, now))
	}
	require.Zero(t, lends(lentWays, now))
	for i := range lentWays {
		require.EqualValues(t, 10, n.lent.leaseOf(bucket.ID{Hi: 1, Lo: uint64(i) * lentSets}, now).Units)
	}
	require.EqualValues(t, 10, lends(lentWays, now+int64(lentFor)), "the leases have ended")
}

// A node does not transfer its authority while it has lent units.
func TestNodeLendsNothingBeforeAHandOver(t *testing.T) {
	n, _ := newOwner()
	want := wire.Want{Units: 10, Term: 500}
	require.True(t, n.Cease(true, now))
	_, r := lend(n, bucket.ID{Hi: 1, Lo: 2}, daily, now, 1, want)
	require.True(t, r.Allowed)
	require.Zero(t, r.Lease)
	n.Cease(false, now)
	_, r = lend(n, bucket.ID{Hi: 1, Lo: 2}, daily, now, 1, want)
	require.EqualValues(t, 10, r.Lease.Units)
	require.False(t, n.Cease(true, now))
	require.False(t, n.Cease(true, now+int64(lentFor)-1))
	require.True(t, n.Cease(true, now+int64(lentFor)))
}

// Returned units are limited to the lent units, and only the owner accepts them.
func TestReclaimBoundsReturnedUnits(t *testing.T) {
	const lent, taken = 10, 3
	for name, c := range map[string]struct {
		left, spent int64 // unspent and spent units, as reported by the borrower
		owns        bool
		times       int
		used        int64 // used units at the end
	}{
		"unspent lease":                                 {lent, 0, true, 1, taken},
		"partly spent lease":                            {4, 6, true, 1, taken + 6},
		"one unit more than lent":                       {lent + 1, 0, true, 1, taken + lent},
		"more units than lent, including spent units":   {4, 7, true, 1, taken + lent},
		"far more units than lent":                      {1 << 62, 0, true, 1, taken + lent},
		"sum that overflows":                            {1<<63 - 1, 1<<32 - 1, true, 1, taken + lent},
		"two reports":                                   {lent, 0, true, 2, taken},
		"report to a former owner":                      {lent, 0, false, 1, taken + lent},
		"several partial reports that exceed the lease": {4, 0, true, 5, taken + lent - 8},
	} {
		t.Run(name, func(t *testing.T) {
			n, v := newOwner()
			v.Complete = false // the owner also accepts them if a member is missing
			if !c.owns {
				v = v.WithStates(v.Excess())
				v.Settled = false // the view has no ring
			}
			id := bucket.ID{Hi: 1, Lo: 2}
			n.counts.Take(id, daily, now, taken)
			a, r := lend(n, id, daily, now, 0, wire.Want{Units: lent, Term: 500})
			require.EqualValues(t, lent, r.Lease.Units)
			back := a.WithReceipt(&r)
			back.Units, back.Lent = c.left, wire.Lent{Units: uint32(c.spent), Until: r.Lease.Until}
			for range c.times {
				n.Reclaim(v, &back, now)
			}
			require.Equal(t, c.used, n.used(id, now))
		})
	}
}

func TestRefundSparesLentUnits(t *testing.T) {
	const lent, taken = 10, 3
	for _, algorithm := range []bucket.Algorithm{bucket.FixedWindow, bucket.SlidingWindow, bucket.SlidingLog} {
		for _, refunded := range []int64{1, taken, taken + 1, taken + lent, 500} {
			limit := &bucket.Limit{Algorithm: algorithm, Rate: 1000, Per: 24 * time.Hour}
			n, _ := newOwner()
			id := bucket.ID{Hi: 1, Lo: 2}
			n.counts.Take(id, limit, now, taken)
			lend(n, id, limit, now, 0, wire.Want{Units: lent, Term: 500})
			refund := askFor(id, limit, refunded)
			n.apply(wire.OpRefund, &refund, limit, now, new(wire.Result))
			require.Equal(t, lent+max(0, taken-refunded), n.used(id, now), "%v, %d units", algorithm, refunded)
		}
	}
}
