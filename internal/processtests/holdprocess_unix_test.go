//go:build unix

package processtests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/internal/realtime"
)

// joinRemote starts a node in another process, which joins the two nodes, and waits until all
// three hear each other. It also returns the name of the new node.
func joinRemote(t *testing.T, nodes []*node) (r *remote, name string) {
	t.Helper()
	v := nodes[0].View()
	r = newRemote(t, settings{Join: []string{v.Members[v.Self].Addr}, Timeout: 2 * time.Second})
	realtime.Eventually(t, "the process serves, and all hear each other", func() bool {
		for _, n := range nodes {
			if v := n.View(); len(v.Points) != 3 || len(v.Members) != 3 || !v.HearsAll() || !v.Settled {
				return false
			}
		}
		return true
	})
	for _, m := range nodes[0].View().Members {
		if m.Name != nodes[0].name() && m.Name != nodes[1].name() {
			name = m.Name
		}
	}
	return r, name
}

// The test kills a process that has holds and reservations. The holds of the process expire
// after HoldTerm, and the units that it has reserved stay spent. The other nodes do not lose
// holds on keys that the process owned.
func TestAKilledProcessLosesNoHoldOfOthersAndReturnsItsOwn(t *testing.T) {
	full.Only(t, "TestUnitsOfAHolderThatDiesComeBack and TestHoldsOutliveTheirOwner, in virtual time")
	t.Parallel()
	realtime.WhileHealthy(t, func(t *testing.T) decisions {
		nodes := fleet(t, 2, nil)
		child, name := joinRemote(t, nodes)
		held := weir.Limit{Name: "held", Algorithm: weir.InFlight, Rate: 10}
		tokens := weir.Limit{Name: "tokens", Algorithm: weir.FixedWindow, Rate: 1000, Per: time.Hour}
		hs, ts := limiters(t, nodes, held), limiters(t, nodes, tokens)
		// The process holds 4 of the 10 units of two keys, and owns one of these keys. It also owns
		// a third key, and the other two nodes hold all units of that key.
		others, its, full := ownedBy(t, hs[0], nodes[0]), keyOf(t, hs[0], name), ""
		for i := 0; full == "" || hs[0].Owner(full).Name != name; i++ {
			full = fmt.Sprint("full ", i)
		}
		othersTokens, itsTokens := ownedBy(t, ts[0], nodes[0]), keyOf(t, ts[0], name)
		kept := child.do(t, order{Keep: 4, Questions: []question{{held, others}, {held, its}, {tokens, othersTokens}, {tokens, itsTokens}}})
		decided := make(decisions)
		for _, k := range kept.Tallies {
			require.Empty(t, k.Errors)
			require.EqualValues(t, 4, k.Admitted)
			for source, n := range k.Sources {
				decided[source] += n
			}
		}
		var holds []*weir.Hold // the holds of nodes
		take := func(l *weir.Limiter, key string) bool {
			h, err := l.Hold(t.Context(), key, 1)
			require.NoError(t, err)
			if h.Decision().Allowed {
				holds = append(holds, h)
			}
			decided[h.Decision().Source]++
			return h.Decision().Allowed
		}
		for i := range 12 {
			for key, left := range map[string]int{others: 6, its: 6, full: 10} {
				if got := take(hs[i%2], key); !decided.Strayed() {
					require.Equal(t, i < left, got)
				}
			}
		}
		if !inTouch(nodes) || decided.Strayed() {
			return unanswered()
		}
		id := ts[0].ID(itsTokens)
		realtime.Eventually(t, "there is a copy of the count that the process owns", func() bool {
			for _, n := range nodes {
				if n.Used(id) == 4 {
					return true
				}
			}
			return false
		})

		late := realtime.MeasureLateness()
		defer late.Stop()
		require.NoError(t, child.Kill())
		killed := time.Now()
		back := make(chan time.Duration, 1)
		go func() {
			h, err := hs[1].WaitHold(t.Context(), others, 1)
			if err != nil || !h.Decision().Allowed {
				t.Error(err)
			}
			back <- time.Since(killed)
		}()
		begun := len(holds)
		realtime.Eventually(t, "what it held of its own key is back", func() bool {
			for _, l := range hs {
				require.False(t, take(l, full), "10 are held already")
			}
			take(hs[len(holds)%2], its)
			return len(holds) == begun+4
		})
		require.Less(t, time.Since(killed), weir.HoldTerm-2*time.Second+late.Total(), "the new owner asks what is held, and waits for no term")
		var took time.Duration
		for took == 0 || time.Since(killed) < weir.HoldTerm+2*time.Second { // without renewal, the holds would have expired by then
			for _, key := range []string{its, full} {
				require.False(t, take(hs[0], key), "10 are held already")
			}
			select {
			case took = <-back:
			case <-time.After(20 * time.Millisecond):
			}
		}
		t.Logf("what it held came back after %v, with this process up to %v late", took, late.Worst())
		require.GreaterOrEqual(t, took, weir.HoldTerm-time.Second-3*late.Worst())
		require.LessOrEqual(t, took, weir.HoldTerm+2*time.Second+3*late.Worst())
		for _, h := range holds {
			select {
			case <-h.Lost():
				t.Error("a hold was lost")
			default:
			}
		}
		require.EqualValues(t, 996, remaining(t, ts[1], othersTokens))
		require.EqualValues(t, 996, remaining(t, ts[1], itsTokens))
		return nil
	})
}
