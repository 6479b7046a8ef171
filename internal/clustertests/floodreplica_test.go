package clustertests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestStandInStillDeniesAfterFlood(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const maxKeys, denied = 300, 30
		w := newWorldOf(t, 3, false, weir.Config{MaxKeys: maxKeys, Replicas: 1})
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 10, Per: time.Hour})
		for i := range denied {
			require.Equal(t, 10, ask(t, ls, fmt.Sprint("denied ", i), 4, w.names...))
		}
		for i := range 5 * maxKeys {
			require.Equal(t, 1, ask(t, ls, fmt.Sprint("fresh ", i), 1, w.names[i%3]))
		}
		time.Sleep(time.Second) // the replicas have all counts
		for _, name := range w.names {
			require.NotZero(t, w.nodes[name].Stats().Evicted)
		}
		owned := 0
		for i := range denied {
			if ls["a"].Owner(fmt.Sprint("denied ", i)).Self {
				owned++
			}
		}
		require.NotZero(t, owned)
		w.network.Host("a").Kill()
		time.Sleep(3 * time.Second)
		for i := range denied {
			require.Zero(t, ask(t, ls, fmt.Sprint("denied ", i), 1, "b", "c"), "key %d", i)
		}
		for _, name := range []string{"b", "c"} {
			require.Zero(t, w.nodes[name].Stats().EvictedUsedUp)
		}
	})
}
