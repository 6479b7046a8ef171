package clustertests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// keysOf returns the given number of keys that a node owns.
func keysOf(owner *weir.Limiter, so int) (keys []string) {
	for i := 0; len(keys) < so; i++ {
		if key := fmt.Sprint("key ", i); owner.Owner(key).Self {
			keys = append(keys, key)
		}
	}
	return keys
}

// The stand-in is connected to the owner, and the asker is not. The stand-in must not execute a
// refund that it has forwarded, because the owner may have executed it or may do so later. If
// both members execute a debit, one of them is refunded.
func TestForwardedRefundsAndDebitsCountOnce(t *testing.T) {
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
			inEachWorld(t, 3, algorithms, nil, func(t *testing.T, w *world, algorithm weir.Algorithm) {
				ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: algorithm, Rate: limit, Per: 24 * time.Hour})
				keys := keysOf(ls["b"], 10)
				requireAdmits(t, spent, ls, keys, spent, "b")
				time.Sleep(200 * time.Millisecond) // the copies are there
				w.cut("a", "b")
				w.network.SetLink("c", "b", weirtest.Link{Latency: c.there})
				w.network.SetLink("b", "c", weirtest.Link{Latency: c.back})
				time.Sleep(1300 * time.Millisecond) // a has detected that the link is down, and does not yet ask through c
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
			})
		})
	}
}
