package countsync

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

// visitHoldings visits the holdings of all regions until takes need only the store.
func (w *globe) visitHoldings() {
	for range 3 * visitParts {
		w.now += int64(ExchangeEvery)
		for _, r := range w.regions {
			r.holdings.Due(r.time(), func(bucket.ID) bool { return true })
		}
	}
}

// takesByStore asks for 0 units, and reports whether the store had the part that judges.
func (r *region) takesByStore(t *testing.T) bool {
	l := r.whole()
	var res bucket.Result
	id, now := anID, r.time()
	knew := now.Monotonic < r.holdings.partsUntil.Load() && r.store.TakePart(id, &l, now.Now, 0, &res)
	r.holdings.TakeUnits(id, &l, now, 0, &res)
	require.True(t, res.Allowed)
	return knew
}

// If a part has not changed since the last take, the store judges by the part, without the
// holding. This is true whether the region has more units than initially, fewer, or as many.
func TestTakeIsJudgedByPartInTheStore(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a bucket.Algorithm) {
		w, from, to := twoRegions(bucket.Limit{Algorithm: a, Rate: 100, Per: time.Hour})
		w.visitHoldings()
		require.False(t, from.takesByStore(t), "there was no ask yet")
		from.ask(1)
		to.ask(1)
		w.visitHoldings()
		require.True(t, from.takesByStore(t))
		require.True(t, to.takesByStore(t))

		st := Statement{ID: anID, Limit: from.whole(), Number: 1 << 62, Wants: 30, Demand: 1e6, Holding: 50}
		answer := to.serve(t, from, st)
		require.Positive(t, answer.Granted)
		require.False(t, to.takesByStore(t), "it has granted some of that")
		require.True(t, to.takesByStore(t))
		l := to.whole()
		var res bucket.Result
		to.holdings.TakeUnits(anID, &l, to.time(), 0, &res)
		require.EqualValues(t, 50-answer.Granted, res.Limit)
	})
}

// TakeAll also needs only the store if it has the parts, and takes either all asks or no asks.
func TestTakeAllUsesPartsInTheStore(t *testing.T) {
	w, from, _ := twoRegions(bucket.Limit{Rate: 100, Per: time.Hour})
	w.visitHoldings()
	l, own := from.whole(), bucket.Limit{Rate: 70, Per: time.Hour}
	other, regional := bucket.ID{Hi: 1, Lo: 2}, bucket.ID{Hi: 3, Lo: 4}
	wholes := []*bucket.Limit{&l, nil, &l}
	answers := make([]bucket.Result, 3)
	asks := func(units int64) []bucket.Ask {
		return []bucket.Ask{{ID: anID, Units: units}, {ID: regional, Limit: &own, Units: 1}, {ID: other, Units: 1}}
	}
	_, known := from.store.TakeAllParts(asks(1), wholes, w.now, answers)
	require.False(t, known, "there was no ask yet")
	require.True(t, from.holdings.TakeAll(asks(10), wholes, from.time(), answers))
	for _, c := range []struct {
		units int64
		all   bool
		used  int64
	}{{10, true, 20}, {31, false, 20}, {30, true, 50}} {
		all, known := from.store.TakeAllParts(asks(0), wholes, w.now, answers)
		require.True(t, all && known)
		require.Equal(t, c.all, from.holdings.TakeAll(asks(c.units), wholes, from.time(), answers))
		require.EqualValues(t, 50, answers[0].Limit)
		require.Equal(t, c.used, from.used())
	}
	require.EqualValues(t, 31, from.holding(0).denied)
	from.holdings.shard(other).mu.Lock()
	from.store.ClearPart(other)
	from.holdings.shard(other).mu.Unlock()
	before, _, _ := from.store.Used(anID, w.now)
	_, known = from.store.TakeAllParts(asks(0), wholes, w.now, answers)
	after, _, _ := from.store.Used(anID, w.now)
	require.False(t, known, "one part is not set")
	require.Equal(t, before, after)
}

// If the node of a region is suspended for a while and does not request units from other regions,
// the region must not keep the units that it has received.
func TestReceivedUnitsExpireWithoutVisits(t *testing.T) {
	for _, looks := range []bool{true, false} {
		w, from, to := twoRegions(bucket.Limit{Rate: 100, Per: time.Hour})
		w.visitHoldings()
		from.ask(1)
		l := from.whole()
		x := from.holding(0)
		a := &x.accounts[to.index]
		from.holdings.shard(anID).mu.Lock()
		a.received, a.receivedUntil = 40, from.time().Monotonic+term
		a.sent = a.receivedUntil // so that the units are not requested again
		from.holdings.renew(x, from.time())
		from.holdings.shard(anID).mu.Unlock()
		require.False(t, from.takesByStore(t))
		require.True(t, from.takesByStore(t))
		var res bucket.Result
		for end := w.now + term; w.now < end+sec; w.now += int64(ExchangeEvery) {
			from.holdings.TakeUnits(anID, &l, from.time(), 0, &res)
			if w.now < end {
				require.EqualValues(t, 90, res.Limit)
			} else {
				require.EqualValues(t, 50, res.Limit, "%v after it has ended", time.Duration(w.now-end))
			}
			if looks {
				from.holdings.Due(from.time(), func(bucket.ID) bool { return true })
				from.holdings.TakeUnits(anID, &l, from.time(), 0, &res)
			}
		}
	}
}

// The holding that takes the place of a removed holding may not be visited in time, so neither
// the part of the removed holding nor the part of the moved holding judges asks.
func TestRemovedHoldingJudgesNoAsks(t *testing.T) {
	w, from, _ := twoRegions(bucket.Limit{Rate: 100, Per: time.Hour})
	w.visitHoldings()
	other := bucket.ID{Hi: 1, Lo: anID.Lo}
	l := from.whole()
	var res bucket.Result
	for range 2 {
		from.holdings.TakeUnits(anID, &l, from.time(), 1, &res)
		from.holdings.TakeUnits(other, &l, from.time(), 1, &res)
	}
	require.True(t, from.store.TakePart(anID, &l, w.now, 1, &res))
	require.True(t, from.store.TakePart(other, &l, w.now, 1, &res))
	sh := from.holdings.shard(anID)
	sh.mu.Lock()
	from.holdings.drop(sh, from.holding(0))
	sh.mu.Unlock()
	require.False(t, from.store.TakePart(anID, &l, w.now, 1, &res))
	require.False(t, from.store.TakePart(other, &l, w.now, 1, &res))
}

// A holding is queued once, no matter how often it must be visited.
func TestHoldingIsQueuedOnce(t *testing.T) {
	w, from, _ := twoRegions(bucket.Limit{Rate: 10, Per: time.Minute})
	from.ask(1)
	for range 50 {
		w.now += int64(ExchangeEvery)
		from.ask(1)
		from.holdings.Due(from.time(), func(bucket.ID) bool { return true })
		require.LessOrEqual(t, len(from.holdings.shard(anID).queue), 1)
	}
}

// The holding knows the spent units after the store has collected them, and the demand at once.
func TestUnitsTakenByTheStoreAreRecorded(t *testing.T) {
	w, from, _ := twoRegions(bucket.Limit{Rate: 1000, Per: time.Hour})
	w.visitHoldings()
	from.ask(1)
	for range 99 {
		from.ask(1)
	}
	x := from.holding(0)
	w.now += sec
	from.holdings.measure(x, from.time().Monotonic)
	require.InDelta(t, 100/7, x.demand, 90)
	require.Positive(t, x.demand)
	require.Zero(t, x.spent())
	_, changes := from.store.Collect(0, math.MaxInt, false, nil)
	for _, c := range changes {
		from.holdings.recordSpent(c.ID, c.Units)
	}
	require.EqualValues(t, 100, x.spent())
}

// A part of a limit keeps a proportional part of the kept units, whether the store or the holding
// judges. TakeAll keeps as many units.
func TestPartOfLimitKeepsProportionalUnits(t *testing.T) {
	for _, known := range []bool{false, true} {
		w, from, _ := twoRegions(bucket.Limit{Rate: 100, Per: time.Hour})
		if known {
			w.visitHoldings()
			from.ask(1)
			w.visitHoldings()
		}
		l := from.whole()
		ordinary := l
		ordinary.Keep = 19 // the part of 50 keeps 9.5 units, rounded up
		var res bucket.Result
		take := func(l *bucket.Limit, units int64) bool {
			all := []bucket.Result{{}}
			if from.holdings.TakeUnits(anID, l, from.time(), units, &res); !res.Allowed {
				return from.holdings.TakeAll([]bucket.Ask{{ID: anID, Units: units}}, []*bucket.Limit{l}, from.time(), all)
			}
			return true
		}
		used := from.used()
		require.False(t, take(&ordinary, 41-used))
		require.True(t, take(&ordinary, 40-used))
		require.False(t, take(&ordinary, 1))
		require.EqualValues(t, 40, res.Limit)
		require.True(t, take(&l, 10))
		require.False(t, take(&l, 1))
		require.Equal(t, l, from.holding(0).whole)
	}
}
