package countsync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/testenv"
)

// A node resets the same ID every second, and a new ID every minute. The clock is also set
// back, so that the times of tombstones are not in order.
func TestTombstonesStayBoundedUnderClockSteps(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	const perHour = 3600 + 60
	for _, c := range []struct {
		about string
		back  time.Duration // how far the clock is set back, once, after an hour
		most  time.Duration // maximum time that resets are kept
	}{
		{"a clock without steps", 0, time.Duration(tombstoneFor)},
		{"a step back of a second", time.Second, time.Duration(tombstoneFor) + time.Second},
		{"a step back of a quarter of an hour", 15 * time.Minute, 2 * time.Duration(tombstoneFor)},
		{"a step back of a day", 24 * time.Hour, 2 * time.Duration(tombstoneFor)},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			l := newLink(t)
			l.now = int64(100 * 24 * time.Hour)
			due := int(c.most.Seconds())*perHour/3600 + 2
			for second := range testenv.PickFull(t, 3, 12) * 3600 {
				l.now += int64(time.Second)
				if second == 3600 {
					l.now -= int64(c.back)
				}
				l.streams[0].Reset(someID(0), l.now)
				if second%60 == 0 {
					l.streams[0].Reset(someID(second), l.now)
				}
				l.settle()
				for i, s := range l.streams {
					s.Sweep(l.now)
					require.LessOrEqual(t, s.resets.order.len(), due, "node %d after %d s", i, second)
					require.LessOrEqual(t, len(s.resets.byID), int(c.most.Minutes())+2, "node %d after %d s", i, second)
				}
			}
			for i, s := range l.streams {
				_, ok := s.resets.get(someID(0))
				require.True(t, ok)
				s.Sweep(l.now + tombstoneFor + 1)
				s.Sweep(l.now + tombstoneFor + 1)
				require.Empty(t, s.resets.byID, "node %d", i)
				require.Zero(t, s.resets.order.len(), "node %d", i)
			}
		})
	}
}

// A tombstone from before the clock stepped back is kept from then on for as long as any other.
func TestTombstoneOfTheFutureIsRedated(t *testing.T) {
	const ahead = int64(time.Hour)
	r := newResets()
	stays, again := bucket.ID{Hi: 1}, bucket.ID{Hi: 2}
	r.put(stays, reset{number: 5, made: ahead})
	r.put(again, reset{number: 6, made: ahead + 1})
	r.put(again, reset{number: 7, made: 1}) // the clock has stepped back
	r.sweep(1, 16)
	require.Len(t, r.byID, 2)
	require.Equal(t, 2, r.order.len(), "replaced elements are removed")
	at, ok := r.get(stays)
	require.True(t, ok)
	require.True(t, at.isEffective(1+effectiveFor))
	require.False(t, at.isEffective(2+effectiveFor))

	r.sweep(1+tombstoneFor, 16)
	require.Len(t, r.byID, 2)
	r.sweep(2+tombstoneFor, 16)
	require.Empty(t, r.byID)
}

// If resets of the future were forgotten for want of room, later resets must still be applied.
func TestForgottenFutureResetsBlockNoLaterResets(t *testing.T) {
	r := newResets()
	r.most = 1
	for i := range 3 {
		r.put(bucket.ID{Hi: uint64(i)}, reset{number: 1, made: int64(time.Hour)})
	}
	require.True(t, r.forgot(int64(time.Hour)))
	r.sweep(0, 16)
	require.True(t, r.forgot(0))
	require.False(t, r.forgot(int64(2*time.Second)))
}

// If there is no room, the oldest tombstones are removed one at a time.
func TestExcessTombstonesRemoveTheOldest(t *testing.T) {
	r := newResets()
	r.most = 100
	id := func(i int) bucket.ID { return bucket.ID{Hi: uint64(i)} }
	for i := range 1000 {
		r.put(id(i), reset{number: uint64(i + 1), made: int64(i)})
		require.LessOrEqual(t, len(r.byID), 100)
	}
	for i := range 1000 {
		_, ok := r.get(id(i))
		require.Equal(t, i >= 900, ok, i)
	}
	require.EqualValues(t, 900, r.dropped)

	// The number of replaced elements is bounded too.
	for i := range 1000 {
		r.put(id(999), reset{number: uint64(2000 + i), made: int64(1000 + i)})
		require.LessOrEqual(t, r.order.len(), 200)
	}
	last, ok := r.get(id(999))
	require.True(t, ok)
	require.EqualValues(t, 2999, last.number)
}

// A scan sends a reset with the vector before the count, so that a joiner spends the units when they
// arrive. With the count, it learns when they were spent.
func TestUnitsSpentAfterResetKeepTheirTime(t *testing.T) {
	for _, a := range algorithms {
		limit := limitOf(a)
		l := newLink(t)
		l.streams[0].Meet(nil)
		l.streams[0].Reset(someID(0), l.now)
		require.True(t, l.stores[0].Take(someID(0), &limit, l.now, 5).Allowed)
		l.streams[0].Collect(l.now, false, l.roles(0))
		l.now += int64(time.Minute)
		l.streams[0].Meet([]Member{2})
		l.streams[0].Owe(2, All())
		l.settle()
		require.Equal(t, l.stores[0].Peek(someID(0), &limit, l.now, 1000), l.stores[1].Peek(someID(0), &limit, l.now, 1000), a)
	}
}

// If a node has forgotten a tombstone early, it must not apply the same reset again when another
// node sends it: the units counted since then would be lost.
func TestForgottenResetIsNotAppliedAgain(t *testing.T) {
	l := newLink(t)
	limit := limitOf(bucket.FixedWindow)
	l.streams[0].resets.most = 1
	l.streams[0].ResetTo(someID(0), 7, 0, l.now)
	l.streams[1].ResetTo(someID(0), 7, 0, l.now)
	l.now += int64(time.Minute)
	l.streams[0].Reset(someID(1), l.now)
	require.EqualValues(t, 1, l.streams[0].Stats().ResetsDropped)
	l.stores[0].Take(someID(0), &limit, l.now, 5)
	l.stores[1].Take(someID(0), &limit, l.now, 2)
	l.settle()
	require.EqualValues(t, 7, l.used(0, someID(0)))
	require.EqualValues(t, 7, l.used(1, someID(0)))

	number := l.streams[1].Reset(someID(0), l.now+int64(time.Minute))
	l.now += int64(time.Minute)
	l.settle()
	require.Zero(t, l.used(0, someID(0)), "reset %d is a later one", number)
}
