package clustertests

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
)

const standInKeys = 60 // so many that each of the nodes is a successor for some of them

// The first successor of an owner may have been disconnected from the owner while another
// successor was connected. If the owner is lost, the first successor stands in for the
// owner, and gets the counts from the other successor.
func TestDisconnectedStandInGivesNoFreshQuota(t *testing.T) {
	inWorlds(t, 3, weir.Config{}, func(t *testing.T, w *world) {
		limiters := make(map[weir.Algorithm]map[string]*weir.Limiter)
		admitted := make(map[weir.Algorithm][]int)
		for _, a := range algorithms[:testenv.PickRace(1, len(algorithms))] {
			limiters[a] = w.limiters(t, weir.Limit{Name: a.String(), Algorithm: a, Rate: 100, Per: time.Hour})
			admitted[a] = make([]int, standInKeys/2)
		}
		fillAll := func(times int, names ...string) {
			for a, ls := range limiters {
				fill(t, ls, admitted[a], times, names...)
			}
		}
		w.network.Split([]string{"a", "c"}, []string{"b"})
		time.Sleep(3 * time.Second)
		fillAll(50, "a", "c")
		time.Sleep(200 * time.Millisecond)
		w.network.Host("a").Kill()
		time.Sleep(3 * time.Second)
		fillAll(5, "c")
		w.network.Heal()
		time.Sleep(5 * time.Second)
		fillAll(50, "b", "c")
		for a, of := range admitted {
			for i := range of {
				require.InDelta(t, 100, of[i], 1, "%v, key %d", a, i)
			}
		}
	})
}

// If the owner of a count is lost in a split, the count must include the units of both sides
// after the split.
func TestStandInsMergeAfterOwnerDies(t *testing.T) {
	inWorlds(t, 4, weir.Config{}, func(t *testing.T, w *world) {
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Hour})
		admitted := make([]int, standInKeys)
		fill(t, ls, admitted, 5, w.names...)
		w.network.Split([]string{"a", "b"}, []string{"c", "d"})
		time.Sleep(3 * time.Second)
		fill(t, ls, admitted, 5, w.names...) // each side then counts up to 30 units
		time.Sleep(200 * time.Millisecond)
		w.network.Host("a").Kill()
		time.Sleep(3 * time.Second)
		w.network.Heal()
		time.Sleep(5 * time.Second)
		require.Equal(t, slices.Repeat([]int{40}, len(admitted)), admitted)
		requireRemaining(t, 60, ls, numbers(len(admitted)), w.names[1:]...)
		fill(t, ls, admitted, 50, w.names[1:]...)
		require.Equal(t, slices.Repeat([]int{100}, len(admitted)), admitted)
	})
}

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
