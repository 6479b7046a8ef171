package clustertests

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// Three nodes take up to 9 units of a key at a time, until the key is hot, leased and
// denied. The nodes together are granted the whole limit. A denial of more units does not
// deny a take that accepts fewer.
func TestAllowAtMostGrantsTheWholeLimit(t *testing.T) {
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
				ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: algorithm, Rate: 10_000, Per: 1000 * time.Hour})
				key, rng, sum, of := keyOf(t, ls["a"]), rand.New(rand.NewPCG(1, 2)), int64(0), make(map[weir.Source]int)
				take := func(units int64) (granted int64) {
					l := ls[w.names[rng.IntN(3)]]
					d, granted, err := l.AllowAtMost(t.Context(), key, units)
					require.NoError(t, err)
					require.Equal(t, granted > 0, d.Allowed)
					require.LessOrEqual(t, granted, units)
					of[d.Source]++
					sum += granted
					return granted
				}
				for sum < 9_990 {
					time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Millisecond))))
					take(1 + rng.Int64N(9))
				}
				require.Positive(t, of[weir.Leased])
				time.Sleep(time.Second) // all leases are returned
				for _, l := range ls {
					require.False(t, allowed(t, l, key, 1000).Allowed)
				}
				take(20_000)
				require.EqualValues(t, 10_000, sum)
				for range 30 {
					require.Zero(t, take(9))
				}
				require.Positive(t, of[weir.Pushback])
				require.NoError(t, ls["b"].Refund(t.Context(), key, 4))
				d, granted, err := ls["b"].AllowAtMost(t.Context(), key, 7)
				require.NoError(t, err)
				require.True(t, d.Allowed)
				require.EqualValues(t, 4, granted)
			})
		})
	}
}

// PeekN states the time at which n units are free, and spends nothing. A caller that asks for the n
// units at that time is granted them, and a caller that asks earlier is not.
func TestPeekNStatesWhenUnitsAreFree(t *testing.T) {
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
				ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: algorithm, Rate: 100, Per: time.Minute, NoLeases: true})
				key, rng := keyOf(t, ls["a"]), rand.New(rand.NewPCG(3, 4))
				estimate := func(name string, units int64) weir.Decision {
					d, err := ls[name].PeekN(t.Context(), key, units)
					require.NoError(t, err)
					return d
				}
				for range 20 {
					units := 1 + rng.Int64N(100)
					for allowed(t, ls["c"], key, 1+rng.Int64N(20)).Allowed {
						time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second))))
					}
					d := estimate("b", units)
					require.Equal(t, d.Remaining, estimate("a", 1).Remaining)
					if wait := d.RetryAfter; !d.Allowed {
						time.Sleep(wait - min(wait, 2*time.Millisecond))
						require.Equal(t, wait <= 2*time.Millisecond, estimate("a", units).Allowed)
						time.Sleep(2 * time.Millisecond)
					}
					require.True(t, estimate("b", units).Allowed)
					require.True(t, allowed(t, ls["a"], key, units).Allowed)
				}
				_, err := ls["a"].PeekN(t.Context(), key, 101)
				require.ErrorIs(t, err, weir.ErrInvalid)
			})
		})
	}
}
