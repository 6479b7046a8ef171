package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/testenv"
)

// A count is sent to another store with a different clock. Its receipts stay valid: refunds
// and debits have the same results as in the first store.
func TestReceiptsFollowTheirCountToAnotherStore(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	rapid.Check(t, func(t *rapid.T) {
		l := Limit{Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"), Rate: rapid.Int64Range(1, 100).Draw(t, "rate"), Per: time.Minute}
		per := int64(l.Per)
		a, b, id := newStore(10, 1), newStore(10, 1), ID{1, 2}
		now := origin
		type take struct {
			at    Spent
			units int64
		}
		var takes []take
		for range rapid.IntRange(1, 12).Draw(t, "takes") {
			now += rapid.Int64Range(1, per/4).Draw(t, "step")
			units := rapid.Int64Range(1, l.Rate).Draw(t, "units")
			if r := a.Take(id, &l, now, units); r.Allowed {
				takes = append(takes, take{Spent{Receipt: r.Receipt}, units})
			}
		}
		var c Count
		a.Export(id, now, Mark{}, &c)
		ahead := rapid.Int64Range(int64(time.Hour), int64(24*time.Hour)).Draw(t, "ahead") // so large that no window begins at the same time by both clocks
		b.Import(id, sendCount(t, &c), now+ahead, 0)
		for _, k := range rapid.Permutation(indices(len(takes))).Draw(t, "order") {
			now += rapid.Int64Range(0, per/8).Draw(t, "later")
			there := takes[k].at
			there.Near = int64(there.Receipt) + ahead
			if !l.IsBucket() && l.Algorithm != SlidingLog {
				there.Near += rapid.Int64Range(-per/4, per/4).Draw(t, "unsure")
			}
			units := rapid.Int64Range(1, takes[k].units).Draw(t, "of them")
			if rapid.Bool().Draw(t, "debits") {
				require.Equal(t, a.DebitSpent(id, &l, now, units, takes[k].at).Allowed, b.DebitSpent(id, &l, now+ahead, units, there).Allowed)
			} else {
				require.Equal(t, a.RefundSpent(id, &l, now, units, takes[k].at, Lease{}), b.RefundSpent(id, &l, now+ahead, units, there, Lease{}))
			}
			for _, later := range []int64{0, 1, per / 3, per - 1, per, per + per/2} {
				require.Equal(t, a.Peek(id, &l, now+later, 1).Remaining, b.Peek(id, &l, now+ahead+later, 1).Remaining, "%v later", later)
			}
			checkStore(t, a)
			checkStore(t, b)
		}
	})
}

func indices(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func TestEndedWindowsAreNotRefundedOrDebited(t *testing.T) {
	minute := int64(time.Minute)
	for algorithm, over := range map[Algorithm]int64{FixedWindow: minute, SlidingWindow: 2 * minute, SlidingLog: minute} {
		for _, newer := range []bool{false, true} {
			l := Limit{Algorithm: algorithm, Rate: 100, Per: time.Minute}
			s, id := newStore(10, 1), ID{1, 2}
			r := s.Take(id, &l, origin, 50)
			if newer {
				s.Take(id, &l, origin+over, 10)
			}
			for _, at := range []Spent{{Receipt: r.Receipt}, {Receipt: 1, Near: origin}, {Receipt: r.Receipt, Near: origin}} {
				left := s.Peek(id, &l, origin+over, 1).Remaining
				require.False(t, s.RefundSpent(id, &l, origin+over, 5, at, Lease{}), algorithm)
				require.False(t, s.DebitSpent(id, &l, origin+over, 5, at).Allowed, algorithm)
				require.Equal(t, left, s.Peek(id, &l, origin+over, 1).Remaining, algorithm)
			}
			checkStore(t, s)
		}
	}
}

// The entries of a log have slightly later times in the receiving store. A refund still returns
// all of the units.
func TestRefundNearLogEntriesLosesNoUnit(t *testing.T) {
	l := Limit{Algorithm: SlidingLog, Rate: 100, Per: time.Minute}
	s, id := newStore(10, 1), ID{1, 2}
	for i := range int64(20) {
		require.True(t, s.Take(id, &l, origin+1000*i, 2).Allowed)
	}
	at := Spent{Receipt: 1, Near: origin + 7100} // there is no entry at this time
	require.True(t, s.RefundSpent(id, &l, origin+int64(time.Second), 9, at, Lease{}))
	require.EqualValues(t, 100-40+9, s.Peek(id, &l, origin+int64(time.Second), 1).Remaining)
	require.EqualValues(t, 100-40+9+2*7, s.Peek(id, &l, origin+int64(time.Minute)+6999, 1).Remaining, "the earlier entries are complete")
	checkStore(t, s)
}
