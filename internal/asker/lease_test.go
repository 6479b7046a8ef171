package asker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

const at = int64(time.Hour)

// newLeases returns the leases of a node that knows of no reset.
func newLeases() *leases { return &leases{number: neverReset} }

func neverReset(bucket.ID, int64) uint64 { return owner.NoReset }

// addLease adds a lease for the key of the ask a, which the node has requested at the given time.
func addLease(l *leases, a *wire.Ask, units uint32, term time.Duration, at int64) {
	wants := *a
	l.addWant(&wants, 1000, instant(at), time.Second)
	r := wire.Result{Result: bucket.Result{Allowed: true, Limit: 100, Remaining: 40, ResetAfter: time.Minute, Receipt: 7}, Source: wire.Forwarded, ResetNumber: owner.NoReset}
	r.Lease = wire.Lease{Units: units, Term: uint16(term / time.Millisecond), Until: 3}
	l.learn(&wants, &r, 1, instant(at), instant(at))
}

// requestLease requests a lease of 4 units, calls the function meanwhile, and then records the result of the
// request.
func requestLease(l *leases, reset uint64, meanwhile func()) {
	wants := *someAsk(1)
	l.addWant(&wants, 1000, instant(at), time.Second)
	meanwhile()
	l.learn(&wants, &wire.Result{Lease: wire.Lease{Units: 4, Term: 100, Until: 3}, ResetNumber: reset}, 1, instant(at), instant(at))
}

func TestLeaseIsSpentUntilItExpires(t *testing.T) {
	const ms = int64(time.Millisecond)
	l := newLeases()
	one, three := someAsk(1), someAsk(3)
	var r wire.Result
	require.False(t, l.spend(one, instant(at), &r))
	addLease(l, one, 4, 100*time.Millisecond, at)
	require.True(t, l.spend(three, instant(at+20*ms), &r))
	require.Equal(t, wire.Result{Result: bucket.Result{Allowed: true, Limit: 100, Remaining: 41, ResetAfter: time.Minute - 20*time.Millisecond}, Source: wire.Leased}, r)
	require.False(t, l.spend(three, instant(at+20*ms), &r), "the lease has one unit")
	other := someAsk(1)
	other.Limit = &bucket.Limit{Rate: 101, Per: time.Minute}
	require.False(t, l.spend(other, instant(at+20*ms), &r), "a lease is only for the numbers of its limit")
	other.Limit, other.Leases = one.Limit, false
	require.False(t, l.spend(other, instant(at+20*ms), &r), "a take without Leases spends no units of a lease")
	other = someAsk(1)
	require.False(t, l.spend(other, instant(at+100*ms), &r), "the lease has expired")
	require.True(t, l.spend(other, instant(at+100*ms-1), &r))
	require.False(t, l.spend(other, instant(at+100*ms-1), &r))
}

// Another lease of the set may be valid, so that the set is searched.
func TestLeaseEndsByEitherClock(t *testing.T) {
	const ms = int64(time.Millisecond)
	for name, now := range map[string]countsync.Time{
		"checks read":   {Now: at + 100*ms, Monotonic: at + ms},
		"is steady":     {Now: at + ms, Monotonic: at + 100*ms},
		"steps back by": {Now: at - 100*ms, Monotonic: at + 100*ms},
	} {
		for _, beside := range []bool{false, true} {
			l, other := newLeases(), someAsk(1)
			other.ID.Lo += leaseSets
			addLease(l, someAsk(1), 4, 100*time.Millisecond, at)
			if beside {
				addLease(l, other, 4, 500*time.Millisecond, at)
			}
			require.False(t, l.spend(someAsk(1), now, new(wire.Result)), "the clock that %s", name)
			require.Equal(t, beside, l.spend(other, now, new(wire.Result)), "the clock that %s", name)
		}
	}
}

func TestRefundReturnsToItsLease(t *testing.T) {
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
	addLease(l, someAsk(1), 4, 100*time.Millisecond, at)
	require.True(t, l.spend(someAsk(3), instant(at), r))
	done, over := refunds(2, at)
	require.True(t, done)
	require.False(t, over)
	require.True(t, l.spend(someAsk(2), instant(at), r))
	_, left, over := l.refund(someAsk(4), instant(at))
	require.True(t, over, "only three units were spent, so the lease ends")
	require.Equal(t, []int64{3, 1}, []int64{int64(left.ask.Lent.Units), left.ask.Units})
	require.False(t, l.spend(someAsk(1), instant(at), r))
	not(refunds(1, at))
}

func TestLaterResetEndsALease(t *testing.T) {
	for name, c := range resets {
		t.Run(name, func(t *testing.T) {
			known := c.before
			l, r := newLeases(), new(wire.Result)
			l.number = func(bucket.ID, int64) uint64 { return known }
			requestLease(l, c.owner, func() {})
			if known = c.now; c.now != c.before {
				l.end(someAsk(1).ID, c.now)
			}
			require.Equal(t, c.valid, l.spend(someAsk(1), instant(at+1), r))
			back := l.takeReturns(nil)
			require.Len(t, back, c.back)
			for _, left := range back {
				require.Equal(t, c.owner, left.ask.Spent.ResetNumber, "the owner can identify the count")
			}
		})
	}
}

func TestReturnedLeaseContainsResetNumberOfItsOwner(t *testing.T) {
	l := newLeases()
	requestLease(l, 7, func() {})
	l.stops.Store(true)
	l.sweep(int(someAsk(1).ID.Lo%leaseSets), instant(at+1), time.Second, nil)
	back := l.takeReturns(nil)
	require.Len(t, back, 1)
	require.EqualValues(t, 7, back[0].ask.Spent.ResetNumber)
	require.EqualValues(t, 4, back[0].ask.Units)
}

func TestOnlyOneAskAtATimeRequestsALease(t *testing.T) {
	l := newLeases()
	wants := func(at int64) bool {
		a := someAsk(1)
		_, over := l.addWant(a, 100, instant(at), time.Second)
		require.False(t, over)
		return a.Take.Want.Units > 0
	}
	require.True(t, wants(at))
	require.False(t, wants(at+1))
	require.True(t, wants(at+int64(time.Second)), "after a request without a response, a take asks again")
	l.learn(someAsk(1), new(wire.Result), 1, instant(at), instant(at+int64(time.Second)))
	require.False(t, wants(at+int64(time.Second)+1), "after a refusal, no take asks for refusedFor")
	require.True(t, wants(at+int64(time.Second+refusedFor)))
}

func TestTermOfALeaseDependsOnPace(t *testing.T) {
	for pace, want := range map[float64]wire.Want{
		1:      {Units: 2, Term: 500},
		16:     {Units: 11, Term: 500},
		40:     {Units: 11, Term: 200},
		1000:   {Units: 126, Term: 100},
		100000: {Units: 12501, Term: 100},
		1e12:   {Units: 1<<32 - 1, Term: 100},
	} {
		require.Equal(t, want, wantFor(pace), "%v units a second", pace)
	}
}

func TestFullSetAcceptsNoFurtherLease(t *testing.T) {
	l, r := newLeases(), new(wire.Result)
	in := func(i int) *wire.Ask {
		a := someAsk(1)
		a.ID.Lo += uint64(i) * leaseSets
		return a
	}
	for i := range leaseWays + 1 {
		addLease(l, in(i), 4, 100*time.Millisecond, at+int64(i))
	}
	for i := range leaseWays {
		require.True(t, l.spend(in(i), instant(at+10), r), i)
	}
	require.False(t, l.spend(in(leaseWays), instant(at+10), r))
	require.Len(t, l.takeReturns(nil), 1, "an unexpected lease is returned")
}

func TestRefundEndsAnExpiredLease(t *testing.T) {
	l := newLeases()
	addLease(l, someAsk(1), 4, 100*time.Millisecond, at)
	require.True(t, l.spend(someAsk(3), instant(at), new(wire.Result)))
	done, left, over := l.refund(someAsk(1), instant(at+int64(100*time.Millisecond)))
	require.False(t, done, "the units of an expired lease must not be spent")
	require.True(t, over)
	require.EqualValues(t, 1, left.ask.Units)
	require.EqualValues(t, 3, left.ask.Lent.Units)
}

func TestLeavingNodeReturnsArrivingLeases(t *testing.T) {
	l := newLeases()
	requestLease(l, owner.NoReset, func() { l.stops.Store(true) })
	require.False(t, l.spend(someAsk(1), instant(at), new(wire.Result)))
	require.Len(t, l.takeReturns(nil), 1)
}

func TestPendingReturnsAreBounded(t *testing.T) {
	l := newLeases()
	for range maxReturns + 5 {
		l.giveBack(leaseErrand{})
	}
	require.Len(t, l.takeReturns(nil), maxReturns)
	l.giveBack(leaseErrand{})
	require.Len(t, l.takeReturns(nil), 1)
}
