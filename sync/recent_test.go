package countsync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
)

func TestRecentForgetsOldEntries(t *testing.T) {
	const most = 1000
	var r recent[int]
	now := int64(time.Hour)
	for second := range 600 { // one id is set again and again, and each second a new id
		now += int64(time.Second)
		r.set(bucket.ID{Lo: uint64(second)}, second, now, most)
		r.set(bucket.ID{Hi: 1}, second, now, most)
		last, known := r.get(bucket.ID{Hi: 1})
		require.True(t, known)
		require.Equal(t, second, last)
		_, known = r.get(bucket.ID{Lo: uint64(max(0, second-59))})
		require.True(t, known, "it was set less than a minute ago")
		require.LessOrEqual(t, len(r.latest)+len(r.older), 2*60+1)
	}
	_, known := r.get(bucket.ID{Lo: 479})
	require.False(t, known, "it was set two minutes ago")
	r.delete(bucket.ID{Hi: 1})
	_, known = r.get(bucket.ID{Hi: 1})
	require.False(t, known)
}

func TestRecentIsBounded(t *testing.T) {
	var r recent[int]
	for i := range 1000 {
		r.set(bucket.ID{Lo: uint64(i)}, i, int64(time.Hour)+int64(i), 100)
		require.LessOrEqual(t, len(r.latest)+len(r.older), 100)
		_, known := r.get(bucket.ID{Lo: uint64(max(0, i-49))})
		require.True(t, known)
	}
	r.set(bucket.ID{Hi: 1}, 1, 0, 100) // the clock has stepped back
	_, known := r.get(bucket.ID{Hi: 1})
	require.True(t, known)
}
