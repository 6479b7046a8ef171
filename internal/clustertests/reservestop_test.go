package clustertests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// The marker of a reservation survives a stop of all nodes if the units of its estimate do.
func TestSettledTextStaysSettledAfterStop(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]weir.Limit{
		"durable by choice":   {Per: 30 * time.Minute, Durable: weir.Durable},
		"durable by calendar": {Calendar: weir.Day},
		"durable by Per":      {Per: 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				limit.Name, limit.Algorithm, limit.Rate = "tokens", weir.FixedWindow, 1000
				shelves := map[string]*shelf{"a": {}, "b": {}, "c": {}}
				w := nextWorld(t, seeded, shelves)
				ls := w.limiters(t, limit)
				keys := []string{"k1", "k2", "k3", "k4", "k5"}
				texts := make(map[string]string)
				for _, key := range keys {
					require.Equal(t, 300, ask(t, ls, key, 300, "a"))
					v := reserve(t, ls["a"], key, 200)
					texts[key] = v.Text()
					require.NoError(t, opened(t, ls["b"], key, texts[key]).Cancel(t.Context()))
				}
				time.Sleep(time.Second)
				w.leaveAll(t)
				w = nextWorld(t, seeded, shelves)
				ls = w.limiters(t, limit)
				for _, key := range keys {
					require.ErrorIs(t, opened(t, ls["c"], key, texts[key]).Cancel(t.Context()), weir.ErrSettled, key)
					time.Sleep(delivered)
					require.EqualValues(t, 700, remaining(t, ls["a"], key))
				}
			})
		})
	}
}

// If no units of a SlidingWindow remain, the count does not show when its window began. The
// member that decides after a crash of the owner must still find the window of the estimate.
func TestLastUnitsOfSlidingWindowReturnAfterCrash(t *testing.T) {
	t.Parallel()
	for _, into := range []time.Duration{3 * time.Second, 15 * time.Second, 40 * time.Second} {
		t.Run(into.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorldOf(t, 3, false, seeded)
				ls := w.limiters(t, weir.Limit{Name: "tokens", Algorithm: weir.SlidingWindow, Rate: 100, Per: time.Minute, NoLeases: true})
				keys := keysOf(ls["a"], 2)
				key, like := keys[0], keys[1]
				requireAdmits(t, 60, ls, keys, 60, "b")
				time.Sleep(time.Minute + into)
				reserve(t, ls["b"], like, 1) // to begin its window
				v := reserve(t, ls["b"], key, remaining(t, ls["b"], key))
				time.Sleep(300 * time.Millisecond) // the copies are there
				w.network.Host("a").Kill()
				time.Sleep(5 * time.Second)
				require.NoError(t, v.Settle(t.Context(), 1))
				time.Sleep(delivered)
				require.Equal(t, remaining(t, ls["b"], like), remaining(t, ls["b"], key))
			})
		})
	}
}
