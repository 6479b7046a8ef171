package clustertests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// If a member leaves and it has a large number of counts to send on a slow link, it has authority
// as long as that takes. The nodes that wait for the authority must not take it before.
func TestLeaverKeepsAuthorityDuringHandOver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const limit = 100
		w := newWorldOf(t, 3, false, weir.Config{Replicas: -1, Timeout: 5 * time.Second})
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: limit, Per: time.Hour})
		keys := keysOf(ls["a"], 20_000)
		for _, key := range keys[1:] {
			_, err := ls["a"].Debit(t.Context(), key, 1)
			require.NoError(t, err)
		}
		key := keys[0]
		time.Sleep(time.Second)
		for _, other := range w.names[1:] {
			w.slow("a", other, 250*time.Millisecond)
		}
		admitted := ask(t, ls, key, 45, "a", "b")
		begun := time.Now()
		require.ErrorContains(t, w.nodes["a"].Leave(t.Context()), "in time")
		for time.Since(begun) < 20*time.Second {
			admitted += ask(t, ls, key, 1, w.names...)
			time.Sleep(time.Second)
		}
		require.Equal(t, limit, admitted)
		require.False(t, w.nodes["b"].Ready() && w.nodes["c"].Ready(), "they wait")
		require.NoError(t, w.nodes["a"].Leave(t.Context()))
		require.True(t, waitFor(time.Second, func() bool { return w.nodes["b"].Ready() && w.nodes["c"].Ready() }))
		require.Zero(t, ask(t, ls, key, 1, w.names[1:]...))
	})
}

// The owner of a count already has the units in the replica of a member that leaves, so no other
// member sends them to the owner.
func TestOwnerReceivesNoReplicasOfLeaver(t *testing.T) {
	inWorlds(t, 4, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.SlidingLog, Rate: 1000, Per: time.Hour})
		fill(t, ls, make([]int, 200), 1, w.names...)
		time.Sleep(200 * time.Millisecond)
		require.NoError(t, w.nodes["b"].Leave(t.Context()))
		time.Sleep(500 * time.Millisecond)
		for _, name := range []string{"a", "c", "d"} {
			require.Zero(t, w.nodes[name].Stats().Stream.Tallies, "at %s", name)
		}
	})
}
