package weir_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// Who leaves while the next owner is away hands over to who stands in for it.
func TestWhoLeavesInASplitHandsOverToTheStandIn(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, gossip bool) {
		w := newWorld(t, 3, gossip)
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Hour})
		w.network.Split([]string{"a", "c"}, []string{"b"})
		time.Sleep(3 * time.Second)
		const keys = 60
		admitted := make(map[string]int)
		for i := range keys {
			admitted[fmt.Sprint(i)] = ask(t, ls, fmt.Sprint(i), 60, "a", "c")
		}
		begun := time.Now()
		if err := w.nodes["a"].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		t.Log("Leave took", time.Since(begun))
		require.NoError(t, w.nodes["a"].Close())
		w.network.Host("a").Kill()
		time.Sleep(time.Second)
		w.network.Heal()
		require.True(t, within(20*time.Second, func() bool { return w.agree("b", "c") }))
		time.Sleep(2 * time.Second)
		fresh := 0
		for i := range keys {
			require.Equal(t, 100, admitted[fmt.Sprint(i)])
			d, err := ls["c"].Peek(t.Context(), fmt.Sprint(i))
			require.NoError(t, err)
			if d.Remaining > 0 {
				fresh++
			}
		}
		require.Zero(t, fresh, "keys with a fresh quota of %d", keys)
	})
}

// Whom a check has just waited for in vain is not gone: who leaves waits for it.
func TestWhoLeavesWaitsForAMemberThatAnsweredLate(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, gossip bool) {
		for _, replicas := range []int{1, -1} {
			w := &world{weirtest.NewNetwork(1, weirtest.Link{Latency: latency}), hosts(2), make(map[string]*weir.Node), false}
			settleAfter(t)
			for _, name := range w.names {
				w.network.Host(name)
			}
			for _, name := range w.names {
				w.start(t, name, gossip, weir.Config{Replicas: replicas})
			}
			w.ready(t, w.names...)
			ls := w.limiters(t, weir.Limit{Name: "test", Rate: 30, Per: time.Hour})
			key, other := keyOf(t, ls["a"]), keyOf(t, ls["b"])
			require.Equal(t, 30, ask(t, ls, key, 30, w.names...))
			w.network.SetLink("b", "a", weirtest.Link{Latency: 30 * time.Millisecond})
			_, err := ls["a"].Allow(t.Context(), other)
			require.NoError(t, err)
			w.network.SetLink("b", "a", weirtest.Link{Latency: latency})
			begun := time.Now()
			require.NoError(t, w.nodes["a"].Leave(t.Context()))
			t.Log("Leave took", time.Since(begun))
			require.NoError(t, w.nodes["a"].Close())
			w.network.Host("a").Kill()
			time.Sleep(3 * time.Second)
			require.Zero(t, ask(t, ls, key, 30, "b"), "replicas %d", replicas)
			w.close(t)
		}
	})
}
