package countsync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

func TestTombstonesAreSweptThoughTheirIDIsResetAgainAndAgain(t *testing.T) {
	const every = int64(1e9)
	r := newResets()
	id := bucket.ID{Hi: 1}
	now := int64(0)
	for range 12 * 3600 {
		now += every
		r.put(id, reset{number: uint64(now), made: now})
		r.sweep(now, 16)
	}
	require.LessOrEqual(t, r.order.len(), int(kept/every)+1)
	require.LessOrEqual(t, len(r.order.blocks)*blockLen, 4*int(kept/every))
	last, ok := r.get(id)
	require.True(t, ok)
	require.EqualValues(t, now, last.number)

	r.sweep(now+kept+1, r.order.len())
	require.Empty(t, r.of)
	require.Zero(t, r.order.len())
}

// When there is no room, the oldest go one at a time.
func TestTooManyTombstonesCostTheOldest(t *testing.T) {
	r := newResets()
	r.most = 100
	id := func(i int) bucket.ID { return bucket.ID{Hi: uint64(i)} }
	for i := range 1000 {
		r.put(id(i), reset{number: uint64(i + 1), made: int64(i)})
		require.LessOrEqual(t, len(r.of), 100)
	}
	for i := range 1000 {
		_, ok := r.get(id(i))
		require.Equal(t, i >= 900, ok, i)
	}
	require.EqualValues(t, 900, r.dropped)

	// Those that were replaced are bounded, too.
	for i := range 1000 {
		r.put(id(999), reset{number: uint64(2000 + i), made: int64(1000 + i)})
		require.LessOrEqual(t, r.order.len(), 200)
	}
	last, ok := r.get(id(999))
	require.True(t, ok)
	require.EqualValues(t, 2999, last.number)
}

// A node that has forgotten a tombstone too early takes the same reset for none when
// another tells of it: what was counted since would be lost.
func TestAResetThatWasForgottenIsNotMadeAgain(t *testing.T) {
	l := newLink(t)
	limit := limitOf(bucket.FixedWindow)
	l.streams[0].resets.most = 1
	l.streams[0].ResetTo(someID(0), 7, 0, l.now)
	l.streams[1].ResetTo(someID(0), 7, 0, l.now)
	l.now += int64(time.Minute)
	l.streams[0].Reset(someID(1), l.now)
	require.EqualValues(t, 1, l.streams[0].Beside().ResetsDropped)
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
