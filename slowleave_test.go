package weir_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// A member that leaves and has much to hand over, far away, has authority for as long
// as that takes: whoever waits for it takes nothing meanwhile.
func TestALeaverThatIsStillHandingOverKeepsAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, keys = 100, 60_000
		w := newWorldOf(t, 3, false, weir.Config{Replicas: -1, Timeout: 5 * time.Second})
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: limit, Per: time.Hour})
		for i := range keys {
			_, err := ls["a"].Debit(t.Context(), fmt.Sprint(i), 1)
			require.NoError(t, err)
		}
		key := keyOf(t, ls["a"])
		time.Sleep(time.Second)
		for _, other := range w.names[1:] {
			w.network.SetLink("a", other, weirtest.Link{Latency: 250 * time.Millisecond})
			w.network.SetLink(other, "a", weirtest.Link{Latency: 250 * time.Millisecond})
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
		require.True(t, within(time.Second, func() bool { return w.nodes["b"].Ready() && w.nodes["c"].Ready() }))
		require.Zero(t, ask(t, ls, key, 1, w.names[1:]...))
	})
}
