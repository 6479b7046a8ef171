package weir

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// lender is an owner of everything, without a network.
func lender() (*Node, *view.View) {
	still := func() int64 { return 0 }
	n := &Node{counts: bucket.NewStore(10, bucket.Salt{}), clock: env.OneClock(still), stream: newStream()}
	n.scratches.New = func() any { return new(scratch) }
	n.stream.Stream = countsync.New(1, n.counts)
	n.stream.WhenReset(n.whenReset)
	n.leases.number, n.pushbacks.number = n.resetNumber, n.resetNumber
	v := &view.View{View: &cluster.View{Self: 0}, Complete: true}
	v.Held = countsync.All()
	return n, v
}

// newLeases is of a node that knows of no reset.
func newLeases() *leases { return &leases{number: neverReset} }

func neverReset(bucket.ID, int64) uint64 { return noReset }

// lentTo is a lease of a minute's key, asked for then.
func lentTo(l *leases, a *wire.Ask, units uint32, term time.Duration, at int64) {
	wants := *a
	l.want(&wants, 1000, instant(at), time.Second)
	r := wire.Result{Result: bucket.Result{Allowed: true, Limit: 100, Remaining: 40, ResetAfter: time.Minute, Receipt: 7}, Source: wire.Forwarded, ResetNumber: noReset}
	r.Lease = wire.Lease{Units: units, Term: uint16(term / time.Millisecond), Until: 3}
	l.learn(&wants, &r, 1, instant(at), instant(at))
}

func someAsk(units int64) *wire.Ask {
	return &wire.Ask{ID: bucket.ID{Hi: 1, Lo: 2}, Limit: &bucket.Limit{Rate: 100, Per: time.Minute}, Units: units, Leases: true}
}

func TestALeaseIsSpentUntilItIsOver(t *testing.T) {
	const at, ms = int64(time.Hour), int64(time.Millisecond)
	l := newLeases()
	one, three := someAsk(1), someAsk(3)
	var r wire.Result
	require.False(t, l.spend(one, instant(at), &r))
	lentTo(l, one, 4, 100*time.Millisecond, at)
	require.True(t, l.spend(three, instant(at+20*ms), &r))
	require.Equal(t, wire.Result{Result: bucket.Result{Allowed: true, Limit: 100, Remaining: 41, ResetAfter: time.Minute - 20*time.Millisecond}, Source: wire.Leased}, r)
	require.False(t, l.spend(three, instant(at+20*ms), &r), "it has one unit")
	other := someAsk(1)
	other.Limit = &bucket.Limit{Rate: 101, Per: time.Minute}
	require.False(t, l.spend(other, instant(at+20*ms), &r), "of other numbers")
	other.Limit, other.Leases = one.Limit, false
	require.False(t, l.spend(other, instant(at+20*ms), &r), "of a limit without leases")
	other = someAsk(1)
	require.False(t, l.spend(other, instant(at+100*ms), &r), "by now it is over")
	require.True(t, l.spend(other, instant(at+100*ms-1), &r))
	require.False(t, l.spend(other, instant(at+100*ms-1), &r))
}

func TestALeaseEndsByEitherClock(t *testing.T) {
	const at, ms = int64(time.Hour), int64(time.Millisecond)
	for name, now := range map[string]countsync.Time{
		"checks read":   {Now: at + 100*ms, Steady: at + ms},
		"is steady":     {Now: at + ms, Steady: at + 100*ms},
		"steps back by": {Now: at - 100*ms, Steady: at + 100*ms},
	} {
		l, r := newLeases(), new(wire.Result)
		lentTo(l, someAsk(1), 4, 100*time.Millisecond, at)
		require.False(t, l.spend(someAsk(1), now, r), "the clock that %s", name)
	}
}

func TestARefundGoesBackToTheLeaseThatItIsOf(t *testing.T) {
	const at = int64(time.Hour)
	l, r := newLeases(), new(wire.Result)
	refunds := func(units, at int64) (done, over bool) {
		done, _, over = l.refund(someAsk(units), instant(at))
		return done, over
	}
	not := func(done, over bool) {
		t.Helper()
		require.False(t, done)
		require.False(t, over)
	}
	not(refunds(1, at))
	lentTo(l, someAsk(1), 4, 100*time.Millisecond, at)
	require.True(t, l.spend(someAsk(3), instant(at), r))
	done, over := refunds(2, at)
	require.True(t, done)
	require.False(t, over)
	require.True(t, l.spend(someAsk(2), instant(at), r))
	_, left, over := l.refund(someAsk(4), instant(at))
	require.True(t, over, "three were spent: it ends")
	require.Equal(t, []int64{3, 1}, []int64{int64(left.ask.Lease.Units), left.ask.Units})
	require.False(t, l.spend(someAsk(1), instant(at), r))
	not(refunds(1, at))
}

func TestALeaseIsSpentForAsLongAsNoLaterResetIsKnown(t *testing.T) {
	const at = int64(time.Hour)
	for name, c := range map[string]struct {
		granted     uint64 // the reset number that the owner knew of
		before, now uint64 // the one that this node knows of as the lease comes, and after that
		spent       bool
		back        int // leases that are given back
	}{
		"of a count that was never reset":               {noReset, noReset, noReset, true, 0},
		"reset since, as both know":                     {noReset, noReset, 7, false, 0},
		"by an owner that does not know of a reset":     {noReset, 7, 7, false, 1},
		"by an owner that knows of an earlier one":      {6, 7, 7, false, 1},
		"of the count since the reset":                  {7, 7, 7, true, 0},
		"by an owner that has heard of the reset first": {7, noReset, 7, true, 0},
		"by an owner that has heard of the next first":  {8, 7, 8, true, 0},
		"before the one after the next":                 {8, 7, 9, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			known := c.before
			l, r := newLeases(), new(wire.Result)
			l.number = func(bucket.ID, int64) uint64 { return known }
			wants := *someAsk(1)
			l.want(&wants, 1000, instant(at), time.Second)
			l.learn(&wants, &wire.Result{Lease: wire.Lease{Units: 4, Term: 100, Until: 3}, ResetNumber: c.granted}, 1, instant(at), instant(at))
			if known = c.now; c.now != c.before {
				l.end(someAsk(1).ID, c.now)
			}
			require.Equal(t, c.spent, l.spend(someAsk(1), instant(at+1), r))
			back := l.returns(nil)
			require.Len(t, back, c.back)
			for _, left := range back {
				require.Equal(t, c.granted, left.ask.ResetNumber, "its owner sees which count it is of")
			}
		})
	}
}

func TestWhatIsLeftOfALeaseIsMarkedWithTheResetThatItsOwnerKnew(t *testing.T) {
	const at = int64(time.Hour)
	l := newLeases()
	wants := *someAsk(1)
	l.want(&wants, 1000, instant(at), time.Second)
	l.learn(&wants, &wire.Result{Lease: wire.Lease{Units: 4, Term: 100, Until: 3}, ResetNumber: 7}, 1, instant(at), instant(at))
	l.stops.Store(true)
	l.sweep(int(wants.ID.Lo%leaseSets), instant(at+1), time.Second, nil)
	back := l.returns(nil)
	require.Len(t, back, 1)
	require.EqualValues(t, 7, back[0].ask.ResetNumber)
	require.EqualValues(t, 4, back[0].ask.Units)
}

func TestOneAskAtATimeWantsALease(t *testing.T) {
	const at = int64(time.Hour)
	l := newLeases()
	wants := func(at int64) bool {
		a := someAsk(1)
		_, over := l.want(a, 100, instant(at), time.Second)
		require.False(t, over)
		return a.Lease.Units > 0
	}
	require.True(t, wants(at))
	require.False(t, wants(at+1))
	require.True(t, wants(at+int64(time.Second)), "the answer did not come")
	l.learn(someAsk(1), new(wire.Result), 1, instant(at), instant(at+int64(time.Second)))
	require.False(t, wants(at+int64(time.Second)+1), "nothing was lent")
	require.True(t, wants(at+int64(time.Second+refusedFor)))
}

func TestALeaseLastsUntilAFewAsksAreToBeExpected(t *testing.T) {
	for pace, want := range map[float64]wire.Lease{
		1:      {Units: 2, Term: 500},
		16:     {Units: 11, Term: 500},
		40:     {Units: 11, Term: 200},
		1000:   {Units: 126, Term: 100},
		100000: {Units: 12501, Term: 100},
		1e12:   {Units: 1<<32 - 1, Term: 100},
	} {
		require.Equal(t, want, wanted(pace), "%v units a second", pace)
	}
}

func TestASetFullOfLeasesHasNoRoomForOneMore(t *testing.T) {
	const at = int64(time.Hour)
	l, r := newLeases(), new(wire.Result)
	in := func(i int) *wire.Ask {
		a := someAsk(1)
		a.ID.Lo += uint64(i) * leaseSets
		return a
	}
	for i := range leaseWays + 1 {
		lentTo(l, in(i), 4, 100*time.Millisecond, at+int64(i))
	}
	for i := range leaseWays {
		require.True(t, l.spend(in(i), instant(at+10), r), i)
	}
	require.False(t, l.spend(in(leaseWays), instant(at+10), r))
	require.Len(t, l.returns(nil), 1, "what came all the same goes back")
}

// A third of the time for which the owner has it is left for what comes back, and it has
// as many units as are spent in the rest.
func TestALeaseIsShorterWhereItsLimitRecoversSoon(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		limit  bucket.Limit
		wanted uint16 // ms, with 100 units
		lent   wire.Lease
	}{
		{"and is as wanted where it does not", bucket.Limit{Algorithm: SlidingLog, Rate: 1000, Per: 256 * time.Second}, 500, wire.Lease{Units: 100, Term: 500, Until: stamp(int64(lentFor))}},
		{"and is as wanted where that is no longer", bucket.Limit{Algorithm: SlidingLog, Rate: 1000, Per: 76_800 * ms}, 100, wire.Lease{Units: 100, Term: 100, Until: stamp(int64(300 * ms))}},
		{"of a log", bucket.Limit{Algorithm: SlidingLog, Rate: 1000, Per: 76_800 * ms}, 500, wire.Lease{Units: 40, Term: 200, Until: stamp(int64(300 * ms))}},
		{"of a bucket", bucket.Limit{Algorithm: TokenBucket, Rate: 960, Per: 9600 * ms}, 500, wire.Lease{Units: 40, Term: 200, Until: stamp(int64(300 * ms))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			owner, _ := lender()
			a := ask1(bucket.ID{Hi: 1, Lo: 2}, &c.limit, 0)
			a.Lease = wire.Lease{Units: 100, Term: c.wanted}
			var r wire.Result
			owner.takeLending(&a, &c.limit, 0, &r)
			require.Equal(t, c.lent, r.Lease)
		})
	}
}

// What is over is no more kept from refunds, which may have given it back by then.
func TestWhatIsLeftOfALeaseComesBackUntilItIsOver(t *testing.T) {
	limit := &bucket.Limit{Algorithm: FixedWindow, Rate: 1000, Per: 24 * time.Hour}
	const begun, term, ms = int64(time.Hour), 100 * time.Millisecond, time.Millisecond
	lend := func(t *testing.T, owner *Node, now int64) (left wire.Ask) {
		left = ask1(bucket.ID{Hi: 1, Lo: 2}, limit, 0)
		left.Lease = wire.Lease{Units: 10, Term: uint16(term / ms)}
		var r wire.Result
		owner.takeLending(&left, limit, now, &r)
		require.EqualValues(t, 10, r.Lease.Units)
		require.EqualValues(t, term/ms, r.Lease.Term)
		left = left.Taken(&r)
		left.Units, left.Lease = 10, r.Lease
		left.Lease.Units = 0 // none of it was spent
		return left
	}
	for _, c := range []struct {
		name    string
		after   time.Duration // from when it was granted
		another time.Duration // is lent so long after it, if at all
		stays   int64
	}{
		{name: "at once"},
		{name: "long after its asker's term", after: 5 * term},
		{name: "just before it is over", after: lentFor - ms},
		{name: "as it is over", after: lentFor, stays: 10},
		{name: "as it is over, while another lives", after: lentFor, another: term, stays: 20},
		{name: "long after it was over, while another lives", after: 3 * time.Hour, another: 3*time.Hour - ms, stays: 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			owner, v := lender()
			left := lend(t, owner, begun)
			if c.another > 0 {
				lend(t, owner, begun+int64(c.another))
			}
			now := begun + int64(c.after)
			owner.takeBack(v, &left, now)
			used, _, _ := owner.counts.Used(left.ID, now)
			require.Equal(t, c.stays, used)
		})
	}
	t.Run("but not once the count was reset", func(t *testing.T) {
		owner, v := lender()
		before, now := lend(t, owner, begun), begun+int64(ms)
		owner.stream.Reset(before.ID, begun)
		after := lend(t, owner, now)
		owner.takeBack(v, &before, now)
		used, _, _ := owner.counts.Used(before.ID, now)
		require.EqualValues(t, 10, used)
		owner.takeBack(v, &after, now)
		used, _, _ = owner.counts.Used(before.ID, now)
		require.Zero(t, used)
	})
}

func TestARefundEndsALeaseThatIsOver(t *testing.T) {
	const at = int64(time.Hour)
	l := newLeases()
	lentTo(l, someAsk(1), 4, 100*time.Millisecond, at)
	require.True(t, l.spend(someAsk(3), instant(at), new(wire.Result)))
	done, left, over := l.refund(someAsk(1), instant(at+int64(100*time.Millisecond)))
	require.False(t, done, "its units may not be spent any more")
	require.True(t, over)
	require.EqualValues(t, 1, left.ask.Units)
	require.EqualValues(t, 3, left.ask.Lease.Units)
}

// Another lease of its set may live, so that the set is looked through.
func TestALeaseBesideOneThatLivesEndsByEitherClock(t *testing.T) {
	const at, ms = int64(time.Hour), int64(time.Millisecond)
	for name, now := range map[string]countsync.Time{
		"checks read":   {Now: at + 100*ms, Steady: at + ms},
		"is steady":     {Now: at + ms, Steady: at + 100*ms},
		"steps back by": {Now: at - 100*ms, Steady: at + 100*ms},
	} {
		l, other := newLeases(), someAsk(1)
		other.ID.Lo += leaseSets
		lentTo(l, someAsk(1), 4, 100*time.Millisecond, at)
		lentTo(l, other, 4, 500*time.Millisecond, at)
		require.False(t, l.spend(someAsk(1), now, new(wire.Result)), "the clock that %s", name)
		require.True(t, l.spend(other, now, new(wire.Result)), "the clock that %s", name)
	}
}

func TestANodeThatLeavesKeepsNoLeaseThatComes(t *testing.T) {
	const at = int64(time.Hour)
	l := newLeases()
	wants := *someAsk(1)
	l.want(&wants, 1000, instant(at), time.Second)
	l.stops.Store(true)
	l.learn(&wants, &wire.Result{Lease: wire.Lease{Units: 4, Term: 100, Until: 3}, ResetNumber: noReset}, 1, instant(at), instant(at))
	require.False(t, l.spend(someAsk(1), instant(at), new(wire.Result)))
	require.Len(t, l.returns(nil), 1)
}

func TestWhatWaitsToBeGivenBackIsBounded(t *testing.T) {
	l := newLeases()
	for range maxReturns + 5 {
		l.giveBack(leaseErrand{})
	}
	require.Len(t, l.returns(nil), maxReturns)
	l.giveBack(leaseErrand{})
	require.Len(t, l.returns(nil), 1)
}

func TestWhatIsLentIsKnownUntilTheLastOfItEnds(t *testing.T) {
	const now = int64(time.Hour)
	limit := &bucket.Limit{Algorithm: SlidingLog, Rate: 1000, Per: 256 * time.Second}
	soon := &bucket.Limit{Algorithm: SlidingLog, Rate: 1000, Per: 25_600 * time.Millisecond} // it lends for 100 ms
	n, _ := lender()
	a := ask1(bucket.ID{Hi: 1, Lo: 2}, limit, 0)
	a.Lease = wire.Lease{Units: 50, Term: 500}
	n.takeLending(&a, limit, now, new(wire.Result))
	a.Limit = soon
	var r wire.Result
	n.takeLending(&a, soon, now, &r)
	require.NotZero(t, r.Lease.Units)
	require.EqualValues(t, lentFor, n.lent.of(a.ID, now).Term)
}

// What is lent of a count is known for as long as it lasts, however many others share its
// set.
func TestASetFullOfWhatIsLentLendsOfNoOtherCount(t *testing.T) {
	const now = int64(time.Hour)
	limit := &bucket.Limit{Algorithm: FixedWindow, Rate: 1000, Per: 24 * time.Hour}
	n, _ := lender()
	lends := func(i int, now int64) uint32 {
		a := ask1(bucket.ID{Hi: 1, Lo: uint64(i) * lentSets}, limit, 1)
		a.Lease = wire.Lease{Units: 10, Term: 500}
		var r wire.Result
		n.takeLending(&a, limit, now, &r)
		require.True(t, r.Allowed)
		return r.Lease.Units
	}
	for i := range lentWays {
		require.EqualValues(t, 10, lends(i, now))
	}
	require.Zero(t, lends(lentWays, now))
	for i := range lentWays {
		require.EqualValues(t, 10, n.lent.of(bucket.ID{Hi: 1, Lo: uint64(i) * lentSets}, now).Units)
	}
	require.EqualValues(t, 10, lends(lentWays, now+int64(lentFor)), "they have ended")
}

// Authority moves only when nothing is lent.
func TestANodeThatGivesAuthorityAwayLendsNothing(t *testing.T) {
	const now = int64(time.Hour)
	limit := &bucket.Limit{Algorithm: FixedWindow, Rate: 1000, Per: 24 * time.Hour}
	n, _ := lender()
	a := ask1(bucket.ID{Hi: 1, Lo: 2}, limit, 1)
	a.Lease = wire.Lease{Units: 10, Term: 500}
	var r wire.Result
	require.True(t, n.lent.cease(true, now))
	n.takeLending(&a, limit, now, &r)
	require.True(t, r.Allowed)
	require.Zero(t, r.Lease)
	n.lent.cease(false, now)
	n.takeLending(&a, limit, now, &r)
	require.EqualValues(t, 10, r.Lease.Units)
	require.False(t, n.lent.cease(true, now))
	require.False(t, n.lent.cease(true, now+int64(lentFor)-1))
	require.True(t, n.lent.cease(true, now+int64(lentFor)))
}

// What members give back is bounded by what they were lent, and is for the owner alone.
func TestWhatIsGivenBackOfALease(t *testing.T) {
	const now, lent, taken = int64(time.Hour), 10, 3
	limit := &bucket.Limit{Algorithm: FixedWindow, Rate: 1000, Per: 24 * time.Hour}
	for name, c := range map[string]struct {
		left, spent int64 // as the borrower says
		owns        bool
		times       int
		used        int64 // in the end
	}{
		"is unspent":                                      {lent, 0, true, 1, taken},
		"is unspent in part":                              {4, 6, true, 1, taken + 6},
		"is one unit more than was lent":                  {lent + 1, 0, true, 1, taken + lent},
		"is more than was lent, with what was spent":      {4, 7, true, 1, taken + lent},
		"is far more than was lent":                       {1 << 62, 0, true, 1, taken + lent},
		"would be less than nothing, with what was spent": {1<<63 - 1, 1<<32 - 1, true, 1, taken + lent},
		"comes twice":                                     {lent, 0, true, 2, taken},
		"comes to a member that owns the key no more":     {lent, 0, false, 1, taken + lent},
		"comes again and again in parts, in excess":       {4, 0, true, 5, taken + lent - 8},
	} {
		t.Run(name, func(t *testing.T) {
			n, v := lender()
			if !c.owns {
				v.Held = nil
			}
			id := bucket.ID{Hi: 1, Lo: 2}
			n.counts.Take(id, limit, now, taken)
			a := ask1(id, limit, 0)
			a.Lease = wire.Lease{Units: lent, Term: 500}
			var r wire.Result
			n.takeLending(&a, limit, now, &r)
			require.EqualValues(t, lent, r.Lease.Units)
			back := a.Taken(&r)
			back.Units, back.Lease = c.left, wire.Lease{Units: uint32(c.spent), Term: r.Lease.Term, Until: r.Lease.Until}
			for range c.times {
				n.takeBack(v, &back, now)
			}
			used, _, _ := n.counts.Used(id, now)
			require.Equal(t, c.used, used)
		})
	}
}

func TestARefundTakesNothingThatIsLent(t *testing.T) {
	const now, lent, taken = int64(time.Hour), 10, 3
	for _, algorithm := range []bucket.Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
		for _, refunded := range []int64{1, taken, taken + 1, taken + lent, 500} {
			limit := &bucket.Limit{Algorithm: algorithm, Rate: 1000, Per: 24 * time.Hour}
			n, _ := lender()
			id := bucket.ID{Hi: 1, Lo: 2}
			n.counts.Take(id, limit, now, taken)
			a := ask1(id, limit, 0)
			a.Lease = wire.Lease{Units: lent, Term: 500}
			n.takeLending(&a, limit, now, new(wire.Result))
			refund := ask1(id, limit, refunded)
			n.apply(wire.OpRefund, 0, &refund, limit, now, new(wire.Result))
			used, _, _ := n.counts.Used(id, now)
			require.Equal(t, lent+max(0, taken-refunded), used, "%v, %d units", algorithm, refunded)
		}
	}
}

// A lease is of the member that was asked, so that whoever hands an ask on asks for none.
func TestAnAskThatIsHandedOnWantsNoLease(t *testing.T) {
	limit := &bucket.Limit{Rate: 100, Per: time.Minute, Algorithm: TokenBucket, Burst: 7, Version: 3}
	for name, asks := range map[string]int{"one": 1, "two": 2, "all that a request may have": wire.MaxAsks} {
		for _, op := range []wire.Op{wire.OpTake, wire.OpRefund} { // one is asked, and one told
			t.Run(fmt.Sprint(name, " of ", op), func(t *testing.T) {
				h := wire.Header{Op: op, Hops: wire.MaxHops, Asks: uint8(asks)}
				if op == wire.OpTake {
					h.Wait = time.Second
				}
				var want [][]byte // each without its lease
				request := h.Append(nil)
				for i := range asks {
					a := ask1(bucket.ID{Hi: uint64(i), Lo: 2}, limit, int64(i+1))
					a.Receipt, a.ResetNumber, a.Shadow, a.Partition = 5, 6, true, wire.FailClosed
					want = append(want, a.Append(nil))
					a.Lease = wire.Lease{Units: 1<<32 - 1, Term: 1<<16 - 1, Until: 1<<32 - 1}
					request = a.Append(request)
				}
				n, v := lender()
				n.exchanges.New = func() any { return new(exchange) }
				n.life.Begin()
				to := new(handedOn)
				v.Members, v.Next, v.Hashes = []cluster.Member{{}, {Name: "b", Peer: to}}, []int{0, 1}, []uint64{1, 2}
				n.handOn(v, 1, h, request, nil, func([]byte) {}, n.life.Try)
				require.NoError(t, n.life.Close(func() error { return nil }))
				require.Len(t, to.requests, 1)
				for i := range asks {
					require.Equal(t, want[i], to.requests[0][wire.HeaderBytes+i*wire.AskBytes:][:wire.AskBytes], "ask %d", i)
				}
			})
		}
	}
}

// handedOn is a member that keeps what it is asked and told.
type handedOn struct{ requests [][]byte }

func (p *handedOn) Tell(request []byte) { p.requests = append(p.requests, slices.Clone(request)) }

func (p *handedOn) Protocol() cluster.Protocol { return cluster.Protocol{Version: cluster.Version} }

func (p *handedOn) Ask(_ context.Context, request, _ []byte, _ time.Duration) ([]byte, error) {
	p.Tell(request)
	return nil, cluster.ErrUnheard
}

// Takes, renewals and what is given back cross on their way, and are late. At no time
// may more be spent of leases than the owner has lent and knows of.
func TestWhatIsLentIsKnownToTheOwner(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := &bucket.Limit{Algorithm: FixedWindow, Rate: 1000, Per: time.Hour}
		owner, v := lender()
		id := bucket.ID{Hi: 1, Lo: 2}
		type message struct {
			at  int64
			do  func()
			way int
		}
		var (
			nodes = []*leases{newLeases(), newLeases()}
			under []message // way
			now   = int64(time.Hour)
			spent int64
		)
		send := func(way int, do func()) {
			at := now + rapid.SampledFrom([]int64{0, 1e5, 1e6, 2e7, 2e8, 5e8, 1e9}).Draw(t, "delay")
			for _, m := range under {
				if m.way == way {
					at = max(at, m.at) // one connection each way
				}
			}
			under = append(under, message{at, do, way})
		}
		giveBack := func(node int, left leaseErrand) {
			send(node, func() {
				before, _, _ := owner.counts.Used(id, now)
				owner.takeBack(v, &left.ask, now)
				after, _, _ := owner.counts.Used(id, now)
				require.GreaterOrEqual(t, after, before-left.ask.Units)
			})
		}
		ask := func(node int, a wire.Ask, units int64) {
			sent := now
			send(node, func() {
				r := new(wire.Result)
				a.Units = units
				if a.Lease.Units > 0 {
					owner.takeLending(&a, limit, now, r)
				} else {
					owner.counts.TakeInto(id, limit, now, units, &r.Result)
				}
				if r.Allowed {
					spent += units
				}
				if a.Lease.Units > 0 {
					send(-node-1, func() { nodes[node].learn(&a, r, 1, instant(sent), instant(now)) })
				}
			})
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 1e5, 1e6, 1e7, 5e7, 2e8}).Draw(t, "elapsed")
			for i := 0; i < len(under); i++ {
				if under[i].at <= now {
					do := under[i].do
					under = append(under[:i], under[i+1:]...)
					do()
					i = -1
				}
			}
			node := rapid.IntRange(0, 1).Draw(t, "node")
			l := nodes[node]
			a := ask1(id, limit, rapid.SampledFrom([]int64{1, 1, 1, 5}).Draw(t, "units"))
			switch rapid.SampledFrom([]string{"check", "check", "check", "refund", "sweep"}).Draw(t, "op") {
			case "check":
				if l.spend(&a, instant(now), new(wire.Result)) {
					spent += a.Units
					break
				}
				left, over := l.want(&a, rapid.SampledFrom([]float64{0, 10, 100, 1000}).Draw(t, "pace"), instant(now), time.Second)
				if over {
					giveBack(node, left)
				}
				ask(node, a, a.Units)
			case "refund":
				done, left, over := l.refund(&a, instant(now))
				if done {
					spent -= a.Units
				}
				if over {
					giveBack(node, left)
				}
			case "sweep":
				if l.sets.Load() == nil {
					break
				}
				renew, _ := l.sweep(int(id.Lo), instant(now), time.Second, nil)
				for _, left := range l.returns(nil) {
					giveBack(node, left)
				}
				for _, a := range renew {
					ask(node, a, 0)
				}
			}
			var unspent int64
			for _, l := range nodes {
				if s := l.set(id); s != nil {
					for i := range s.of {
						if e := &s.of[i]; e.past(instant(now)) < e.term() {
							unspent += e.rest
						}
					}
				}
			}
			used, _, _ := owner.counts.Used(id, now)
			require.GreaterOrEqual(t, used, spent+unspent, "all that may be spent counts")
			require.GreaterOrEqual(t, owner.lent.of(id, now).Units, unspent, "and is known to be lent")
		}
	})
}

func ask1(id bucket.ID, l *bucket.Limit, units int64) wire.Ask {
	return wire.Ask{ID: id, Limit: l, Units: units, Leases: true}
}

// A check that a lease admits beside one that its own node decides.
func BenchmarkLeased(b *testing.B) {
	nodes := fleet(b, 2, nil)
	ls := limiters(b, nodes, Limit{Name: "test", Rate: 1e11, Per: time.Second})
	ctx := b.Context()
	for i, name := range []string{"owned", "leased"} {
		b.Run(name, func(b *testing.B) {
			key, hops := ownedBy(b, ls[0], nodes[i]), 0
			for range 1000 {
				if _, err := ls[0].Allow(ctx, key); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				d, err := ls[0].Allow(ctx, key)
				if err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
				if d.Source == Forwarded {
					hops++
				}
			}
			b.ReportMetric(float64(hops)/float64(b.N), "hops/op")
		})
	}
}
