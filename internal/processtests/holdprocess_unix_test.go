//go:build unix

package processtests

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/freeport"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/internal/realtime"
)

// joinRemote starts another process with a node that joins these, at an address or any, and
// waits until all hear each other, of so many members.
func joinRemote(t *testing.T, nodes []*node, addr string, members int) (r *remote, name string) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	known := make(map[string]bool)
	cmd := exec.Command(program)
	v := nodes[0].View()
	for _, m := range v.Members {
		known[m.Name] = true
	}
	cmd.Env = append(os.Environ(), joinVariable+"="+v.Members[v.Self].Addr, bindVariable+"="+addr, timeoutVariable+"=2s")
	r = newRemote(t, cmd)
	realtime.Eventually(t, "the process serves, and all hear each other", func() bool {
		for _, n := range nodes {
			if v := n.View(); len(v.Points) != members || len(v.Members) != members || !v.HearsAll() || !v.Settled {
				return false
			}
		}
		return true
	})
	for _, m := range nodes[0].View().Members {
		if !known[m.Name] {
			name = m.Name
		}
	}
	return r, name
}

// A process that is killed while it holds and has reserved: what it held comes back as
// documented, what it reserved stays spent, and the holds of the keys that it owned go on.
func TestAKilledProcessLosesNoHoldOfOthersAndReturnsItsOwn(t *testing.T) {
	full.Only(t, "TestUnitsOfAHolderThatDiesComeBack and TestHoldsOutliveTheirOwner, in virtual time")
	t.Parallel()
	realtime.WhileHealthy(t, func(t *testing.T) decisions {
		nodes := fleet(t, 2, nil)
		child, name := joinRemote(t, nodes, "", 3)
		held := weir.Limit{Name: "held", Algorithm: weir.InFlight, Rate: 10}
		tokens := weir.Limit{Name: "tokens", Algorithm: weir.FixedWindow, Rate: 1000, Per: time.Hour}
		hs, ts := limiters(t, nodes, held), limiters(t, nodes, tokens)
		// The process holds 4 of 10 units of two keys, of which it owns one. It also owns a key of
		// which these nodes hold all units.
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
		var holds []*weir.Hold // of nodes
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
		for took == 0 || time.Since(killed) < weir.HoldTerm+2*time.Second { // by then the holds would be lost if nobody renewed them
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

// roll is a rolling restart under load of holds.
type roll struct {
	t     *testing.T
	nodes []*node
	limit weir.Limit
	keys  []string
	held  []atomic.Int64 // of each key, at least
	most  atomic.Int64   // of held
	took  atomic.Int64   // holds
	mu    sync.Mutex
	by    decisions
}

// has notes that a unit of a key is held, until it is about to be released.
func (r *roll) has(key int) {
	now := r.held[key].Add(1)
	for most := r.most.Load(); now > most && !r.most.CompareAndSwap(most, now); most = r.most.Load() {
	}
}

// load holds and releases units until ctx is done.
func (r *roll) load(ctx context.Context, caller int) {
	l, err := r.nodes[caller%len(r.nodes)].Limiter(r.limit)
	if err != nil {
		r.t.Error(err)
		return
	}
	type one struct {
		*weir.Hold
		key int
	}
	var mine []one
	release := func() {
		r.held[mine[0].key].Add(-1)
		mine[0].Release()
		mine = mine[1:]
	}
	for i := caller; ctx.Err() == nil; i++ {
		key := i % len(r.keys)
		h, err := l.Hold(context.Background(), r.keys[key], 1)
		if err != nil {
			r.t.Error(err)
			return
		}
		r.mu.Lock()
		r.by[h.Decision().Source]++
		r.mu.Unlock()
		if h.Decision().Allowed {
			r.has(key)
			r.took.Add(1)
			mine = append(mine, one{h, key})
		}
		if len(mine) > 8 || len(mine) > 0 && !h.Decision().Allowed {
			release()
		}
		time.Sleep(time.Millisecond)
	}
	for len(mine) > 0 {
		release()
	}
}

// Processes that own keys and hold units are restarted, one after the other. Where they leave
// in order, never is more held than the limit. One that is killed may have granted units in the
// last round trip, to each caller one.
func TestARollingRestartKeepsHoldsWithinTheLimit(t *testing.T) {
	full.Only(t, "TestADeployKeepsHolds and TestHoldsOutliveTheirOwner, in virtual time")
	t.Parallel()
	for _, how := range []string{"leave", "killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			realtime.WhileHealthy(t, func(t *testing.T) decisions { return playRoll(t, how == "killed") })
		})
	}
}

func playRoll(t *testing.T, kill bool) decisions {
	const rate, keys, callers, replaced, rounds = 5, 6, 4, 2, 4
	r := &roll{t: t, nodes: fleet(t, 2, nil), limit: weir.Limit{Name: "held", Algorithm: weir.InFlight, Rate: rate}, held: make([]atomic.Int64, keys), by: make(decisions)}
	ls := limiters(t, r.nodes, r.limit)
	var (
		lasting   []*weir.Hold
		questions []question
	)
	for i := range keys {
		r.keys = append(r.keys, fmt.Sprint("key ", i))
		questions = append(questions, question{r.limit, r.keys[i]})
		h, err := ls[0].Hold(t.Context(), r.keys[i], 1)
		require.NoError(t, err)
		require.True(t, h.Decision().Allowed)
		r.has(i)
		lasting = append(lasting, h)
	}
	type child struct {
		*remote
		addr string
		has  []int // keys
	}
	var children []child
	start := func(addr string) {
		c := child{addr: addr}
		c.remote, _ = joinRemote(t, r.nodes, addr, len(r.nodes)+len(children)+1)
		for i, k := range c.do(t, order{Keep: 1, Questions: questions}).Tallies {
			require.Empty(t, k.Errors)
			if k.Admitted > 0 {
				r.has(i)
				c.has = append(c.has, i)
			}
		}
		children = append(children, c)
	}
	for range replaced {
		start(freeport.Addr(t))
	}
	late := realtime.MeasureLateness()
	defer late.Stop()
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i := range callers {
		load.Go(func() { r.load(ctx, i) })
	}
	for range rounds * replaced {
		before := r.took.Load()
		realtime.Eventually(t, "units are held and released", func() bool { return r.took.Load() > before+100 })
		old := children[0]
		children = children[1:]
		for _, key := range old.has {
			r.held[key].Add(-1)
		}
		if kill {
			require.NoError(t, old.Kill())
			<-old.Ended()
		} else {
			require.Empty(t, old.do(t, order{Leave: true}).Tallies, "it leaves in order")
			require.NoError(t, old.Stop(time.Minute))
		}
		start(old.addr)
	}
	stop()
	load.Wait()
	ended := time.Now()
	for i, key := range r.keys {
		realtime.Eventually(t, "all that was released is there again", func() bool {
			return remaining(t, ls[0], key) == rate-r.held[i].Load()
		})
	}
	t.Logf("%d holds, decided by %v; %d of a key at most at once; all was there again after %v", r.took.Load(), r.by, r.most.Load(), time.Since(ended))
	for _, h := range lasting {
		select {
		case <-h.Lost():
			t.Error("a hold was lost")
		default:
		}
	}
	most, strayed := int64(rate), r.by
	if kill {
		most += callers
		delete(strayed, weir.StandIn) // which is to decide until the process is restarted
	}
	if !strayed.Strayed() {
		require.LessOrEqual(t, r.most.Load(), most)
		require.Less(t, time.Since(ended), weir.HoldTerm+2*time.Second+late.Total())
	}
	require.LessOrEqual(t, r.most.Load(), int64(2*rate), "where an owner is late")
	return strayed
}
