package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A side contains the members that Direct and Connected lead to, and no other member. A simple computation
// gives the wanted result: as many sweeps over all pairs as there are members.
func TestSideHasAllReachableMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 6).Draw(t, "members")
		v := &View{Self: -1}
		line := func() []bool { return rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "line") }
		v.Direct = line()
		for i := range n {
			v.Connected = append(v.Connected, nil)
			for j, connected := range line() {
				if connected && j != i {
					v.Connected[i] = append(v.Connected[i], j)
				}
			}
		}
		want := append([]bool{}, v.Direct...)
		for range n {
			for i := range n {
				for j := range n {
					want[j] = want[j] || want[i] && v.IsConnected(i, j)
				}
			}
		}
		direct := append([]bool{}, v.Direct...)
		require.Equal(t, want, append([]bool{}, v.Side()...))
		require.Equal(t, direct, append([]bool{}, v.Direct...), "Side must not modify the view")
	})
}
