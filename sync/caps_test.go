package countsync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

// cappedPair is two members' stores and streams, of which the first keeps to caps.
func cappedPair(counts int, caps Caps) (from, to *bucket.Store, a, z *Stream) {
	from, to = bucket.NewStore(counts, bucket.Salt{}), bucket.NewStore(counts, bucket.Salt{})
	from.Track(1, 1, nil)
	to.Track(2, 1, nil)
	a, z = New(1, from), New(2, to)
	a.Cap(caps)
	return from, to, a, z
}

// A scan brings more at a time than may wait for a member, which was dropped for another
// scan, without end.
func TestAllComesThroughTheLowestCaps(t *testing.T) {
	const counts = 200
	limit := limitOf(bucket.SlidingWindow)
	from, to, a, z := cappedPair(10*counts, Caps{Frame: 64, Fold: 1, Queued: 1, ScanBelow: 1, Looks: 1, Logs: 1, Ranges: 1})
	a.Meet([]Member{1, 2})
	z.Meet([]Member{1, 2})
	now := int64(time.Hour)
	for i := range counts {
		from.Take(someID(i), &limit, now, 1)
	}
	a.Collect(now, false, pair{1, 2})
	ranges := NewRanges(Range{1, 1}, Range{3, 3}, Range{5, 5})
	a.Give(2, 7, ranges, now)
	var given Ranges
	for frames := 0; ; frames++ {
		require.Less(t, frames, 3*counts, "it goes on and on")
		frame := a.Next(2, now, pair{1, 2}, nil, 16<<10)
		if frame == nil {
			break
		}
		require.Less(t, len(frame), 200)
		answer, arrival, err := z.Serve(now, frame, pair{2, 1}, nil)
		require.NoError(t, err)
		given = append(given, arrival.Given...)
		_, err = a.Answered(2, now, answer, pair{1, 2})
		require.NoError(t, err)
	}
	require.Equal(t, ranges, given)
	for i := range counts {
		used, _, _ := to.Used(someID(i), now)
		require.EqualValues(t, 1, used, i)
	}
}

// What a scan had brought took the room of the next change, which had it dropped for
// another scan, again and again.
func TestAScanGetsThroughThoughCountsChangeMeanwhile(t *testing.T) {
	const counts = 20
	limit := limitOf(bucket.SlidingWindow)
	from, to, a, z := cappedPair(10*counts, Caps{Frame: 64, Queued: 1, ScanBelow: 2, Looks: 1})
	now := int64(time.Hour)
	for i := range counts {
		from.Take(someID(i), &limit, now, 1)
	}
	a.Collect(now, false, pair{1, 2})
	a.Meet([]Member{1, 2})
	z.Meet([]Member{1, 2})
	a.Owe(2, All())
	missing := func() (n int) {
		for i := range counts {
			if used, _, _ := to.Used(someID(i), now); used == 0 {
				n++
			}
		}
		return n
	}
	for frames := 0; missing() > 0; frames++ {
		now += int64(foldAfter) // so what changes again waits once
		require.Less(t, frames, 5*counts, "%d of %d have not come", missing(), counts)
		from.Take(someID(0), &limit, now, 1)
		a.Collect(now, false, pair{1, 2})
		answer, _, err := z.Serve(now, a.Next(2, now, pair{1, 2}, nil, 16<<10), pair{2, 1}, nil)
		require.NoError(t, err)
		_, err = a.Answered(2, now, answer, pair{1, 2})
		require.NoError(t, err)
	}
}

func TestCapsThatAreLeftOutAreTheDefaults(t *testing.T) {
	s := New(1, bucket.NewStore(1, bucket.Salt{}))
	before := s.Caps()
	s.Cap(Caps{Statements: 2 * maxStatements})
	require.Equal(t, before, s.Caps())
	s.Cap(Caps{Frame: 100, Queued: 3})
	require.Equal(t, 100, s.Caps().Frame)
	require.Equal(t, 3, s.Caps().Queued)
	require.Equal(t, before.Ranges, s.Caps().Ranges)
}
