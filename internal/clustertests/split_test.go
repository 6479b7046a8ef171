package clustertests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

// These tests check the rows of the table in docs/guarantees.md for splits, in windows in which
// no connection changes (c = 0). The sides begin to spend 2 s after the start of the split, or later.

func TestSidesSpendTheirShares(t *testing.T) {
	t.Parallel()
	const limit = 100
	for _, c := range []struct {
		name   string
		policy weir.PartitionPolicy
		sides  []int // the number of nodes on each side
		admit  []int // the units of 100 that each side admits, for any key
	}{
		{"fair, three and two", weir.FairShare, []int{3, 2}, []int{60, 40}},
		{"fair, two, two and one", weir.FairShare, []int{2, 2, 1}, []int{40, 40, 20}},
		{"majority, three and two", weir.MajorityShare, []int{3, 2}, []int{100, 40}},
		{"majority, half and half", weir.MajorityShare, []int{2, 2}, []int{50, 50}},
		{"majority, two, two and one", weir.MajorityShare, []int{2, 2, 1}, []int{40, 40, 20}},
		{"closed, three and two", weir.FailClosed, []int{3, 2}, []int{100, 0}},
		{"open, three and two", weir.FailOpen, []int{3, 2}, []int{100, 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, gossip bool) {
				n := 0
				for _, k := range c.sides {
					n += k
				}
				w := newWorld(t, n, gossip)
				sides := w.sides(c.sides...)
				w.network.Split(sides...)
				time.Sleep(2 * time.Second)
				for _, algorithm := range algorithms {
					ls := w.limiters(t, weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: limit, Per: time.Hour, Partition: c.policy})
					for _, owner := range w.names {
						key := keyOf(t, ls[owner])
						for i, side := range sides {
							require.Equal(t, c.admit[i], ask(t, ls, key, limit/len(side)+1, side...), "%v, owner %s, side %v", algorithm, owner, side)
						}
					}
				}
			})
		})
	}
}

// When all nodes are connected again, the count of the owner has the units of all sides within
// 200 ms, and each of them only once.
func TestSidesMergeWithin200msAfterHeal(t *testing.T) {
	t.Parallel()
	const limit = 1000
	for _, policy := range []weir.PartitionPolicy{weir.FairShare, weir.MajorityShare, weir.FailOpen} {
		for _, sizes := range [][]int{{3, 2}, {2, 2, 1}} {
			t.Run(fmt.Sprint(policy, sizes), func(t *testing.T) {
				if len(sizes) > 2 && policy != weir.MajorityShare {
					testenv.SkipUnlessFull(t, "the same policy of two sides, and three sides with a majority share")
				}
				inWorlds(t, 5, weir.Config{}, func(t *testing.T, w *world) {
					sides := w.sides(sizes...)
					w.network.Split(sides...)
					time.Sleep(3 * time.Second)
					spent := make(map[weir.Algorithm]map[string]int)
					ls := make(map[weir.Algorithm]map[string]*weir.Limiter)
					for i, a := range algorithms {
						spent[a] = make(map[string]int)
						ls[a] = w.limiters(t, weir.Limit{Name: a.String(), Algorithm: a, Rate: limit, Per: 24 * time.Hour, Partition: policy})
						for _, owner := range w.names {
							key := keyOf(t, ls[a][owner])
							for j, side := range sides {
								spent[a][key] += ask(t, ls[a], key, 7+2*i+3*j, side...)
							}
						}
					}
					time.Sleep(time.Second)
					w.network.Heal()
					require.True(t, waitFor(30*time.Second, func() bool { return w.agree(w.names...) }), "the nodes are connected to each other")
					time.Sleep(200 * time.Millisecond)
					for _, a := range algorithms {
						for _, owner := range w.names {
							key := keyOf(t, ls[a][owner])
							d := peek(t, ls[a][owner], key)
							require.EqualValues(t, spent[a][key], d.Limit-d.Remaining, "%v of %s", a, owner)
							require.Equal(t, weir.Owner, d.Source)
						}
					}
					time.Sleep(20 * time.Second) // the owners have authority again
					for _, a := range algorithms {
						for _, owner := range w.names {
							key := keyOf(t, ls[a][owner])
							require.EqualValues(t, spent[a][key], limit-remaining(t, ls[a][w.names[0]], key), "%v of %s, later", a, owner)
						}
					}
				})
			})
		}
	}
}

// In this test, the owner has spent the whole limit before the split, and its side has a share as
// well. When the sides are connected again, the count must include the units that the other side
// has spent.
func TestUnitsOfOtherSideAreCountedAfterHeal(t *testing.T) {
	const limit, per = 20, 30 * time.Second
	inWorlds(t, 4, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Algorithm: weir.SlidingLog, Rate: limit, Per: per})
		fill(t, ls, make([]int, standInKeys), 6, w.names...)
		begun := time.Now()
		sides := w.sides(2, 2)
		w.network.Split(sides...)
		time.Sleep(3 * time.Second)
		admitted := make([]int, standInKeys)
		fill(t, ls, admitted, 12, sides[0]...)
		fill(t, ls, admitted, 12, sides[1]...)
		require.Contains(t, admitted, limit/2, "a side has no copy of some keys")
		w.network.Heal()
		time.Sleep(time.Until(begun.Add(per)))
		fill(t, ls, admitted, 12, w.names...)
		for i := range admitted {
			require.LessOrEqual(t, admitted[i], limit, "key %d", i)
		}
	})
}

// sides divides the nodes of the world into sides of the given sizes.
func (w *world) sides(sizes ...int) (sides [][]string) {
	names := w.names
	for _, k := range sizes {
		sides, names = append(sides, names[:k]), names[k:]
	}
	return sides
}
