package countsync

import (
	"testing"

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
