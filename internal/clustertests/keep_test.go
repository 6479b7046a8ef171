package clustertests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// Three nodes check a key until the key is hot, leased and denied. The nodes first grant
// all units that are not kept. Then they grant each kept unit, on any node, to critical
// checks.
func TestOnlyCriticalChecksSpendKeptUnits(t *testing.T) {
	for _, algorithm := range algorithms {
		if algorithm == weir.LeakyBucket {
			continue // a LeakyBucket has no Keep
		}
		t.Run(algorithm.String(), func(t *testing.T) {
			inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
				ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: algorithm, Rate: 1000, Per: 10 * time.Hour, Keep: 200})
				key, admitted, leased := keyOf(t, ls["a"]), 0, 0
				flood(t, ls, key, 2000, 2*time.Second, w.names, func(_ string, d weir.Decision, _ time.Time) {
					if d.Allowed {
						admitted++
					}
					if d.Source == weir.Leased {
						leased++
					}
					require.EqualValues(t, 800, d.Limit)
				})
				require.Equal(t, 800, admitted)
				require.Positive(t, leased)
				require.Equal(t, weir.Pushback, allowed(t, ls["b"], key, 1).Source)
				for i := range 150 {
					l := ls[w.names[i%len(w.names)]]
					asks := []weir.Ask{{Limiter: l, Key: key, Critical: true}, {Limiter: l, Key: key}}
					ds, err := l.Node().AllowAll(t.Context(), asks...)
					require.NoError(t, err)
					require.False(t, ds.Allowed(), "one of the asks is not critical")
					asks[1] = weir.Ask{Limiter: l.Shadow().Critical(), Key: key + "/other"}
					ds, err = l.Node().AllowAll(t.Context(), asks...)
					require.NoError(t, err)
					require.Equal(t, i < 100, ds.Allowed(), i)
					require.Equal(t, i < 100, allowed(t, l.Critical(), key, 1).Allowed, i)
				}
				require.False(t, allowed(t, ls["c"], key, 1).Allowed)
				require.Zero(t, peek(t, ls["a"].Critical(), key).Remaining)
			})
		})
	}
}
