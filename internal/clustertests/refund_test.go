package clustertests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// keysOf finds so many keys that a node owns.
func keysOf(owner *weir.Limiter, so int) (keys []string) {
	for i := 0; len(keys) < so; i++ {
		if key := fmt.Sprint("key ", i); owner.Owner(key).Self {
			keys = append(keys, key)
		}
	}
	return keys
}

// The owner hears the stand-in, and the asker does not hear the owner. A refund that
// the stand-in has passed on it must not carry out as well: the owner may have done it,
// or may yet do it. A debit that both have carried out one of them gives back.
func TestWhatAStandInPassesOnToALateOwnerCountsOnce(t *testing.T) {
	t.Parallel()
	const limit, spent, units = 100, 50, 30
	for name, c := range map[string]struct {
		there, back time.Duration
		debits      bool
		left        int
	}{
		"a refund, its answer is late": {0, 40 * time.Millisecond, false, limit - spent + units},
		"a refund that is late":        {40 * time.Millisecond, 0, false, limit - spent + units},
		"a debit, its answer is late":  {0, 40 * time.Millisecond, true, limit - spent - units},
		"a debit that is late":         {40 * time.Millisecond, 0, true, limit - spent - units},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubbles(t, func(t *testing.T, gossip bool) {
				for _, algorithm := range algorithms {
					w := newWorld(t, 3, gossip)
					ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: algorithm, Rate: limit, Per: 24 * time.Hour})
					keys := keysOf(ls["b"], 10)
					for _, key := range keys {
						require.Equal(t, spent, ask(t, ls, key, spent, "b"))
					}
					time.Sleep(200 * time.Millisecond) // the copies are there
					w.network.Cut("a", "b")
					w.network.Cut("b", "a")
					w.network.SetLink("c", "b", weirtest.Link{Latency: c.there})
					w.network.SetLink("b", "c", weirtest.Link{Latency: c.back})
					time.Sleep(1300 * time.Millisecond) // a knows that the link is down; it asks through c only later
					for _, key := range keys {
						if c.debits {
							_, err := ls["a"].Debit(t.Context(), key, units)
							require.NoError(t, err)
						} else {
							require.NoError(t, ls["a"].Refund(t.Context(), key, units))
						}
					}
					time.Sleep(200 * time.Millisecond)
					w.network.Heal()
					w.ready(t, w.names...)
					time.Sleep(time.Second)
					for _, key := range keys {
						require.Equal(t, c.left, ask(t, ls, key, limit, "b"), "%v, %s", algorithm, key)
					}
					w.close(t)
				}
			})
		})
	}
}
