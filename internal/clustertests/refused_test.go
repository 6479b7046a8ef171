package clustertests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// If Config.ForgetRefused is set, a side has the whole limit when it is certain that all of the
// missing members have ended. Silence is no proof of that, and FailClosed ignores the proof. If a
// firewall sends the resets, each side has the whole limit.
func TestSideOfEndedMembersHasWholeLimit(t *testing.T) {
	t.Parallel()
	kill := func(names ...string) func(w *world) {
		return func(w *world) {
			for _, name := range names {
				w.network.Host(name).Kill()
			}
		}
	}
	reject := func(here, there []string) func(w *world) {
		return func(w *world) {
			for _, a := range here {
				for _, b := range there {
					w.network.Reject(a, b)
				}
			}
		}
	}
	cut := func(sides ...[]string) func(w *world) {
		return func(w *world) { w.network.Split(sides...) }
	}
	both := func(faults ...func(w *world)) func(w *world) {
		return func(w *world) {
			for _, fault := range faults {
				fault(w)
			}
		}
	}
	for _, c := range []struct {
		name                   string
		nodes, expect          int
		fault                  func(w *world)
		sides                  [][]string
		majority, fair, closed []int // what each side grants of 100
	}{
		{"one of two ends", 2, 0, kill("b"), [][]string{{"a"}}, []int{100}, []int{100}, []int{0}},
		{"one of an expected two ends", 2, 2, kill("b"), [][]string{{"a"}}, []int{50}, []int{50}, []int{0}},
		{"one of three ends", 3, 0, kill("b"), [][]string{{"a", "c"}}, []int{100}, []int{100}, []int{100}},
		{"two of three end", 3, 0, kill("b", "c"), [][]string{{"a"}}, []int{100}, []int{100}, []int{0}},
		{"two of an expected three end", 3, 3, kill("b", "c"), [][]string{{"a"}}, []int{33}, []int{33}, []int{0}},
		{"two are cut off from each other", 2, 0, cut([]string{"a"}, []string{"b"}), [][]string{{"a"}, {"b"}}, []int{50, 50}, []int{50, 50}, []int{0, 0}},
		{"two of four end and one is cut off", 4, 0, both(kill("b", "d"), cut([]string{"a"}, []string{"c"})), [][]string{{"a"}, {"c"}}, []int{25, 25}, []int{25, 25}, []int{0, 0}},
		{
			"two are refused by one side's member and silent to the other", 4, 0,
			both(reject([]string{"a"}, []string{"b", "d"}), cut([]string{"c"}, []string{"b", "d"})),
			[][]string{{"a", "c"}, {"b", "d"}}, []int{50, 50}, []int{50, 50}, []int{0, 0},
		},
		{"a firewall resets between two", 2, 0, reject([]string{"a"}, []string{"b"}), [][]string{{"a"}, {"b"}}, []int{100, 100}, []int{100, 100}, []int{0, 0}},
		{"a firewall resets between two and three", 5, 0, reject([]string{"a", "b"}, []string{"c", "d", "e"}), [][]string{{"a", "b"}, {"c", "d", "e"}}, []int{100, 100}, []int{100, 100}, []int{0, 100}},
		{"a firewall resets a link that another member replaces", 3, 0, reject([]string{"a"}, []string{"b"}), [][]string{{"a", "b", "c"}}, []int{100}, []int{100}, []int{100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorlds(t, c.nodes, weir.Config{ForgetRefused: true, Expect: c.expect}, func(t *testing.T, w *world) {
				c.fault(w)
				time.Sleep(2 * time.Second)
				w.requireSideGrants(t, c.majority, c.fair, c.closed, c.sides...)
			})
		})
	}
}

// The marker of a carried reservation is a unit of a FailClosed limit. If it were not, and a
// firewall sends resets, the same reservation could be settled on each side.
func TestSurvivorDoesNotSettleCarriedReservation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		cfg := seeded
		cfg.ForgetRefused = true
		w := newWorldOf(t, 2, false, cfg)
		ls := w.limiters(t, weir.Limit{Name: "tokens", Rate: 1000, Per: time.Hour})
		v := reserve(t, ls["a"], keyOf(t, ls["a"]), 100)
		require.NotEmpty(t, v.Text())
		time.Sleep(300 * time.Millisecond)
		w.network.Host("b").Kill()
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 1, ask(t, ls, "another", 1, "a"))
		require.ErrorIs(t, v.Settle(t.Context(), 30), weir.ErrUnavailable)
	})
}
