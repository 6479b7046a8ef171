package weir

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// A member can ask for any key. What it makes a node hold ends at MaxKeys, and comes in
// nobody's place who is denied.
func TestAMemberThatAsksForTooManyKeysFillsNoMoreThanMaxKeysAndForgetsNobodyWhoIsDenied(t *testing.T) {
	const most, asks = 1000, 10_000
	n, err := Start(t.Context(), Config{MaxKeys: most, Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { n.Close() })
	l := limiter(t, n, Limit{Name: "login", Rate: 1, Per: time.Hour})
	for range 2 {
		_, err = l.Allow(t.Context(), "victim")
		require.NoError(t, err)
	}
	limit := bucket.Limit{Rate: 100, Per: time.Minute}
	for i := range uint64(asks) {
		one := wire.Ask{ID: bucket.ID{Hi: i*0x9e3779b97f4a7c15 + 1, Lo: i}, Limit: &limit, Units: 1}
		got := make(answers, 1)
		b := cluster.NewBatch("greedy", got)
		b.Requests = [][]byte{one.Append(wire.Header{Op: wire.OpTake, Asks: 1, Hops: wire.MaxHops, Wait: time.Second}.Append(nil))}
		inbound{n}.Serve(b)
		require.NotEmpty(t, got[0], "it is answered")
	}
	s := n.Stats()
	require.LessOrEqual(t, s.Keys, most)
	require.NotZero(t, s.Evicted)
	require.Zero(t, s.EvictedUsedUp, "nobody who is denied")
	d, err := l.Allow(t.Context(), "victim")
	require.NoError(t, err)
	require.False(t, d.Allowed)
}
