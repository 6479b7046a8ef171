package countsync

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

// A scan brings more items at a time than may wait for a member. The items must not be dropped
// for a later scan, because the scans would never end.
func TestAllCountsArriveUnderTheLowestCaps(t *testing.T) {
	const counts = 200
	limit := limitOf(bucket.SlidingWindow)
	l := newLink(t)
	from, a, z, now := l.stores[0], l.streams[0], l.streams[1], l.now
	a.Cap(Caps{Frame: 64, Fold: 1, Queued: 1, ScanBelow: 1, Looks: 1, Logs: 1, Ranges: 1})
	for i := range counts {
		from.Take(someID(i), &limit, now, 1)
	}
	a.Collect(now, false, l.roles(0))
	ranges := NewRanges(Range{1, 1}, Range{3, 3}, Range{5, 5})
	a.Transfer(2, 7, ranges, now)
	var given Ranges
	for frames := 0; ; frames++ {
		require.Less(t, frames, 3*counts, "the nodes send without end")
		n, arrival := carry(t, now, a, l.roles(0), z, l.roles(1))
		if n == 0 {
			break
		}
		require.Less(t, n, 200)
		given = append(given, arrival.Authority...)
	}
	require.Equal(t, ranges, given)
	for i := range counts {
		require.EqualValues(t, 1, l.used(1, someID(i)), i)
	}
}

// If there is no room for a change, the scan continues: if it started again each time, it would
// never end.
func TestScanFinishesWhileCountsChange(t *testing.T) {
	const counts = 20
	limit := limitOf(bucket.SlidingWindow)
	for changes, frame := range map[int]int{1: 64, 3: 200} {
		l := newLink(t)
		from, a := l.stores[0], l.streams[0]
		a.Meet(nil)
		a.Cap(Caps{Frame: frame, Queued: 1, ScanBelow: 2, Looks: 1})
		for i := range counts {
			from.Take(someID(i), &limit, l.now, 1)
		}
		a.Collect(l.now, false, l.roles(0))
		a.Meet([]Member{1, 2})
		a.Owe(2, All())
		for frames, missing := 0, counts; missing > 0; frames++ {
			l.now += int64(foldAfter) // so that the queue has each id only once, even if the id changes again
			require.Less(t, frames, 5*counts, "%d of %d counts have not arrived during %d changes per frame", missing, counts, changes)
			for i := range changes {
				from.Take(someID(i), &limit, l.now, 1)
			}
			a.Collect(l.now, false, l.roles(0))
			l.send(0)
			missing = 0
			for i := range counts {
				if l.used(1, someID(i)) == 0 {
					missing++
				}
			}
		}
		a.Owe(2, All())
		for range counts / 2 {
			l.send(0)
		}
		for i := range counts {
			from.Take(someID(i), &limit, l.now, 1)
		}
		a.Collect(l.now, false, l.roles(0))
		for l.send(0) {
		}
		for i := range counts { // the queue was full, so a second scan has sent some of the changes
			require.Equal(t, l.used(0, someID(i)), l.used(1, someID(i)), i)
		}
	}
}

func TestZeroCapsAreTheDefaults(t *testing.T) {
	s := New(1, bucket.NewStore(1, bucket.Salt{}))
	before := s.Caps()
	s.Cap(Caps{Statements: 2 * maxStatements})
	require.Equal(t, before, s.Caps())
	s.Cap(Caps{Frame: 100, Queued: 3})
	require.Equal(t, 100, s.Caps().Frame)
	require.Equal(t, 3, s.Caps().Queued)
	require.Equal(t, before.Ranges, s.Caps().Ranges)
}
