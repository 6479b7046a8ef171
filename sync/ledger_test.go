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
