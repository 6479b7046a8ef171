package countsync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

// A stand-in that is flooded with new keys keeps the tallies of those that have
// recovered for some seconds, not for as long as the flood lasts.
func TestTalliesOfAFloodOfKeysStayBounded(t *testing.T) {
	l := newLink(t)
	l.stores[1] = bucket.NewStore(1 << 14)
	l.stores[1].Track(nil)
	l.streams[1] = New(2, l.stores[1])
	l.streams[1].Meet([]Member{1, 2})
	s := l.streams[1]
	limit := bucket.Limit{Rate: 10, Per: time.Second}
	const perSecond = 40_000
	id := 0
	for range 80 {
		for range 13 { // as often as keepInStep
			l.now += int64(time.Second / 13)
			for range perSecond / 13 {
				l.stores[1].Take(someID(id), &limit, l.now, 1)
				id++
			}
			s.Collect(l.now, false, l.roles(1))
			s.Sweep(l.now)
		}
	}
	require.LessOrEqual(t, s.Tallies(), 30*perSecond)
}

// A full ledger forgets first what has recovered, then what was sent, the oldest of
// either, and says how much was not.
func TestAFullLedgerForgetsWhatIsMissedLeast(t *testing.T) {
	const most = 8
	id := func(i int) bucket.ID { return bucket.ID{Hi: uint64(i)} }
	l := newLedger()
	l.most = most
	for i := range most {
		l.add(id(i), tally{origin: 1, unrecovered: 5, changed: int64(100 - i)})
	}
	l.find(id(3), 1).unrecovered = 0
	l.find(id(5), 1).passed.add(firstStamp)
	l.find(id(6), 1).passed.add(firstStamp)
	for i, forgotten := range []int{3, 6, 5, 7} {
		l.add(id(most+i), tally{origin: 1, unrecovered: 5, changed: int64(1000 + i)})
		require.Equal(t, most, l.len())
		require.False(t, l.has(id(forgotten)), forgotten)
	}
	require.EqualValues(t, 3, l.dropped)
	for _, i := range []int{0, 1, 2, 4, 8, 9, 10, 11} {
		require.True(t, l.has(id(i)), i)
	}
}

func TestTalliesAreBoundedHoweverManyKeysAreSpentFrom(t *testing.T) {
	l := newLink(t)
	limit := bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 10, Per: time.Hour}
	for _, s := range l.streams {
		s.ledger.most = 500
	}
	for i := range 3000 {
		l.stores[1].Take(someID(i), &limit, l.now, 1)
		if i%100 == 0 {
			l.settle()
			require.LessOrEqual(t, l.streams[1].Tallies(), 500)
		}
	}
	l.settle()
	require.EqualValues(t, 2500, l.streams[1].Beside().TalliesDropped)
	for i := range 3000 {
		require.EqualValues(t, 1, l.used(0, someID(i)), "what was sent in time is counted")
	}
}
