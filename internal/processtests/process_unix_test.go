//go:build unix

package processtests

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/full"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/race"
	"github.com/weir-go/weir/internal/realtime"
	"github.com/weir-go/weir/internal/view"
)

// joinVariable makes the test binary a node that joins the addresses it holds;
// bindVariable says where it listens, timeoutVariable what its Timeout is.
const (
	joinVariable    = "WEIR_TEST_JOIN"
	bindVariable    = "WEIR_TEST_BIND"
	timeoutVariable = "WEIR_TEST_TIMEOUT"
)

func TestMain(m *testing.M) {
	if join := os.Getenv(joinVariable); join != "" {
		os.Exit(serveUntilEOF(join))
	}
	if os.Getenv(spinVariable) != "" {
		spin()
	}
	flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))) // half of them wait; the command line overrides it
	os.Exit(m.Run())
}

// serveUntilEOF is the other process: a node that lives until its parent does
// not, and carries out its orders. It says that it serves, and then how each
// member stands, by its port and whenever that changes.
func serveUntilEOF(join string) int {
	failed := &failures{}
	cfg := weir.Config{
		Bind: cmp.Or(os.Getenv(bindVariable), "127.0.0.1:0"), Join: strings.Fields(join),
		Observer: failed, Logger: quiet,
	}
	if !strings.HasPrefix(cfg.Bind, "127.") { // in network namespaces
		cfg.Secrets = [][]byte{make([]byte, 16)}
	}
	cfg.Timeout, _ = time.ParseDuration(os.Getenv(timeoutVariable)) // none: the default
	n, err := start(context.Background(), cfg)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer n.Close()
	for !n.Ready() {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("serving")
	gone := make(chan struct{})
	go func() {
		obey(n, failed, os.Stdin, os.Stdout)
		close(gone)
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for said := ""; ; {
		select {
		case <-gone:
			return 0
		case <-tick.C:
		}
		var now []string
		for _, m := range n.Members() {
			now = append(now, m.Addr+"="+m.State.String())
		}
		slices.Sort(now)
		if line := strings.Join(now, " "); line != said {
			said = line
			fmt.Println(line)
		}
	}
}

// process starts another process with a node that joins n, and waits until it
// is ready. The test's end kills it.
func process(t testing.TB, n *node) *lab.Child {
	t.Helper()
	v, serves := n.View(), make(chan string, 1)
	child, err := lab.Start([]string{joinVariable + "=" + v.Members[v.Self].Addr}, os.Stderr, func(line []byte) {
		select {
		case serves <- string(line):
		default: // how it sees others later is nothing to these tests
		}
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = child.Kill()
		<-child.Ended()
	})
	select {
	case line := <-serves:
		require.Equal(t, "serving", line)
	case <-child.Ended():
		t.Fatal("the other process has ended: " + child.How())
	}
	return child
}

func TestAProcessThatIsGoneIsSoonNotWaitedFor(t *testing.T) {
	const (
		slack   = 10 * time.Millisecond
		stalled = 350 * time.Millisecond // a frozen process is waited for until then
		noticed = time.Second            // and is known to be missing from then on
		rest    = 300 * time.Millisecond // for which checks go on after that
	)
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel() // with the other one alone: the test around them is not parallel
			n := fleet(t, 1, func(_ int, cfg *weir.Config) { cfg.Timeout = 0 })[0]
			owner := process(t, n)
			l := limiter(t, n, weir.Limit{Rate: 1_000_000, Per: time.Hour})
			key := ownedElsewhere(t, []*node{n}, l)
			realtime.Eventually(t, "the owner has reported that it runs in time", func() bool {
				for _, m := range n.View().Members {
					if m.Peer != nil && m.Peer.Delay() >= 20*time.Millisecond {
						return false
					}
				}
				return true
			})
			require.NoError(t, owner.Cmd.Process.Signal(signal))
			if signal == syscall.SIGSTOP { // it takes a while until all its threads stand
				var status syscall.WaitStatus
				_, err := syscall.Wait4(owner.PID(), &status, syscall.WUNTRACED, nil)
				require.NoError(t, err)
				require.True(t, status.Stopped())
			}

			process, struck := realtime.MeasureLateness(), time.Now()
			var waits, early []time.Duration
			var answered int
			var missing, late time.Duration // when a check was last decided by others than this node's share, and how late this process had been by then
			gone := owner.Ended()
			if signal == syscall.SIGSTOP {
				gone = nil
			}
			for len(waits) < 100 || time.Since(struck)-missing < rest { // a machine that is busy may play few in that time
				select {
				case <-gone:
					gone = nil
				default:
				}
				require.Less(t, time.Since(struck), realtime.GiveUp, "the owner is not known to be missing")
				begun, before := time.Now(), process.Total()
				d, err := l.Allow(t.Context(), key)
				if took := time.Since(begun) - (process.Total() - before); len(waits) == 0 || signal == syscall.SIGKILL || begun.Sub(struck) > stalled+before {
					waits = append(waits, took)
				} else {
					early = append(early, took)
				}
				require.NoError(t, err)
				require.True(t, d.Allowed)
				switch d.Source {
				case weir.Budget:
				case weir.StandIn: // this node, for a member that answers nothing and is not known to be missing
					missing, late = time.Since(struck), process.Total()
				default:
					if gone == nil {
						answered++
					}
					missing, late = time.Since(struck), process.Total()
				}
				time.Sleep(time.Millisecond)
			}
			process.Stop()
			most := defaultTimeout + slack + process.Worst() // a goroutine other than the measuring one may be woken as late as that
			first := waits[0]
			later := slices.Sorted(slices.Values(waits[1:]))
			median, longest := later[len(later)/2], later[len(later)-1]
			t.Logf("woken up to %v late; missing after %v, of which %v late; first check %v; then of %d the median %v, the longest %v; %d before it had stalled: %v",
				process.Worst(), missing, late, first, len(later), median, longest, len(early), early)
			require.LessOrEqual(t, answered, 1, "one answer may be under way")
			require.LessOrEqual(t, missing-late, noticed+3*process.Worst(), "who runs late itself allows others more time")
			for _, took := range append(early, first) {
				require.LessOrEqual(t, took, most)
			}
			require.Less(t, median, time.Millisecond, "later ones do not wait")
			require.LessOrEqual(t, longest, most, "no later check waits")
		})
	}
}

// The kernel of a process that was killed refuses connections, and that of a frozen one does not.
func TestSurvivorOfTwoHasTheWholeLimitOnceTheOtherIsKilled(t *testing.T) {
	t.Parallel()
	for _, frozen := range []bool{false, true} {
		t.Run(fmt.Sprint("frozen before: ", frozen), func(t *testing.T) {
			t.Parallel()
			n := fleet(t, 1, func(_ int, cfg *weir.Config) { cfg.ForgetRefused = true })[0]
			other := process(t, n)
			majority, closed := limiter(t, n, weir.Limit{Name: "test", Rate: 100, Per: time.Hour}), limiter(t, n, weir.Limit{Name: "closed", Rate: 100, Per: time.Hour, Partition: weir.FailClosed})
			ownedElsewhere(t, []*node{n}, majority)
			granted := func(l *weir.Limiter) int64 {
				d, err := l.Peek(t.Context(), "key")
				require.NoError(t, err)
				return d.Limit
			}
			missing := func() bool { v := n.View(); return v.Side < len(v.Points) }
			if frozen {
				require.NoError(t, other.Cmd.Process.Signal(syscall.SIGSTOP))
				realtime.Eventually(t, "the frozen process is missing", missing)
				require.EqualValues(t, 50, granted(majority))
			}
			killed := time.Now()
			require.NoError(t, other.Kill())
			realtime.Eventually(t, "the killed process has ended for certain", func() bool { return missing() && granted(majority) == 100 })
			t.Logf("after %v", time.Since(killed))
			require.Zero(t, granted(closed))
		})
	}
}

// ownedElsewhere is a key that the process owns which has just joined these
// nodes, once all of them know it.
func ownedElsewhere(t *testing.T, nodes []*node, l *weir.Limiter) (key string) {
	t.Helper()
	realtime.Eventually(t, "all know the process", func() bool {
		for _, n := range nodes {
			if v := n.View(); len(v.Points) != len(nodes)+1 || !v.HearsAll() || !v.Settled {
				return false
			}
		}
		return true
	})
	ours := make(map[string]bool)
	for _, n := range nodes {
		v := n.View()
		ours[v.Members[v.Self].Name] = true
	}
	for i := 0; ; i++ {
		if key = fmt.Sprint(i); !ours[l.Owner(key).Name] {
			return key
		}
	}
}

// exhaust asks for a unit so many times by each of these limiters in turn. It counts what was
// admitted, and what decided.
func exhaust(t *testing.T, nodes []*node, ls []*weir.Limiter, key string, rounds int, decided decisions) (admitted int) {
	t.Helper()
	for range rounds {
		for _, l := range ls {
			if !inTouch(nodes) { // one of them may decide in the stead of the one that is to
				decided[0]++
			}
			d, err := l.Allow(t.Context(), key)
			require.NoError(t, err)
			decided[d.Source]++
			if d.Allowed {
				admitted++
			}
		}
	}
	return admitted
}

// spend spends the limit of 100, and waits until one of the nodes has a copy of that. It
// reports false if the owner was too late for a check: then others admitted some of it.
func spend(t *testing.T, nodes []*node, ls []*weir.Limiter, key string) bool {
	t.Helper()
	admitted, decided := 0, make(decisions)
	realtime.Eventually(t, "the limit is spent", func() bool { // what is lent to one of them may have to come back first
		admitted += exhaust(t, nodes, ls, key, 60, decided)
		return admitted >= 100 || decided.Strayed()
	})
	if decided.Strayed() {
		return false
	}
	require.Equal(t, 100, admitted)
	id := ls[0].ID(key)
	realtime.Eventually(t, "one of the nodes has a copy", func() bool {
		return slices.ContainsFunc(nodes, func(n *node) bool {
			return n.Used(id) == 100
		})
	})
	return true
}

// allKnow reports whether what holds in the view of each of these nodes, of the member that
// is none of them.
func allKnow(nodes []*node, what func(v *view.View, missing int) bool) bool {
	for _, n := range nodes {
		v := n.View()
		other := slices.IndexFunc(v.Members, func(m cluster.Member) bool {
			return !slices.ContainsFunc(nodes, func(n *node) bool { return n.name() == m.Name })
		})
		if other < 0 || !what(v, other) {
			return false
		}
	}
	return true
}

// The runs do little but wait, so they wait together: no figure depends on how fast
// they are.
func TestAKilledOwnerGivesNoFreshQuota(t *testing.T) {
	t.Parallel()
	for run := range full.Pick(t, len(algorithms), 20) {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			t.Parallel()
			realtime.WhileHealthy(t, func(t *testing.T) decisions {
				nodes := fleet(t, 2, nil)
				owner := process(t, nodes[0])
				ls := limiters(t, nodes, weir.Limit{Name: "test", Algorithm: algorithms[run%len(algorithms)], Rate: 100, Per: 365 * 24 * time.Hour})
				key := ownedElsewhere(t, nodes, ls[0])
				if !spend(t, nodes, ls, key) {
					return decisions{weir.Budget: 1}
				}
				require.NoError(t, owner.Kill())
				decided := make(decisions)
				admitted := exhaust(t, nodes, ls, key, 100, decided)
				realtime.Eventually(t, "all know that it is lost", func() bool {
					return allKnow(nodes, func(v *view.View, owner int) bool { return v.Lost[owner] != 0 })
				})
				admitted += exhaust(t, nodes, ls, key, 100, decided)
				t.Logf("%d more, decided by %v", admitted, decided)
				delete(decided, weir.StandIn) // which is to decide now
				if !decided.Strayed() {
					require.LessOrEqual(t, admitted, 1)
				}
				require.LessOrEqual(t, admitted, 100)
				return decided
			})
		})
	}
}

// A kill in the middle of a burst loses what the successor had not acknowledged.
func TestAKillInABurstKeepsToTheGuarantee(t *testing.T) {
	if race.Enabled {
		t.Skip("the guarantee rests on how fast copies are acknowledged, which the race detector and all that runs beside it slow down by more than a round trip shows")
	}
	realtime.WhileHealthy(t, func(t *testing.T) decisions {
		const limit, callers = 16_000, 8
		nodes := fleet(t, 2, nil)
		owner := process(t, nodes[0])
		ls := limiters(t, nodes, weir.Limit{Name: "test", Rate: limit, Per: time.Hour})
		key := ownedElsewhere(t, nodes, ls[0])
		var (
			mu       sync.Mutex
			admitted int64
			slowest  time.Duration // check until the owner was dead: what the way there and back takes at this load
			killed   bool          // or about to be
			dead     bool
			strayed  = make(decisions)
			half     = make(chan time.Time, 1) // of the limit is admitted
			wait     sync.WaitGroup
		)
		begun := time.Now()
		for i := range callers {
			wait.Go(func() {
				for range 4000 {
					asked := time.Now()
					d, err := ls[i%2].Allow(t.Context(), key)
					took := time.Since(asked)
					if err != nil {
						t.Error(err)
					}
					inTouch := inTouch(nodes)
					mu.Lock()
					if !inTouch {
						strayed[0]++
					}
					if !dead && d.Source != weir.StandIn {
						slowest = max(slowest, took)
					}
					if !killed || d.Source != weir.StandIn {
						strayed[d.Source]++
					}
					if d.Allowed {
						if admitted++; admitted == limit/2 {
							half <- time.Now()
						}
					}
					mu.Unlock()
				}
			})
		}
		rate := limit / 2 / (<-half).Sub(begun).Seconds()
		mu.Lock()
		killed = true
		mu.Unlock()
		require.NoError(t, owner.Kill())
		mu.Lock()
		dead = true
		rtt := slowest
		mu.Unlock()
		wait.Wait()
		bound := limit + limit/16 + int64(2*rate*rtt.Seconds())
		t.Logf("%d of %d admitted, at %.0f a second with an RTT of %v; the bound is %d; %v", admitted, limit, rate, rtt, bound, strayed)
		if !strayed.Strayed() {
			require.LessOrEqual(t, admitted, bound)
		}
		require.LessOrEqual(t, admitted, int64(2*limit))
		// The owner may have spent for each caller what it died before it could answer, and what
		// lay in a lease of either node, an eighth at most, may stay spent.
		require.GreaterOrEqual(t, admitted, int64(limit-callers-2*limit/8))
		return strayed
	})
}

func TestAStoppedOwnerThatGoesOnGivesNoFreshQuota(t *testing.T) {
	t.Parallel() // it does little but wait
	realtime.WhileHealthy(t, func(t *testing.T) decisions {
		nodes := fleet(t, 2, func(_ int, cfg *weir.Config) { cfg.Timeout = time.Second })
		owner := process(t, nodes[0])
		ls := limiters(t, nodes, weir.Limit{Name: "test", Algorithm: weir.SlidingLog, Rate: 100, Per: time.Hour})
		key := ownedElsewhere(t, nodes, ls[0])
		if !spend(t, nodes, ls, key) {
			return decisions{weir.Budget: 1}
		}
		require.NoError(t, owner.Freeze())
		admitted, decided := 0, make(decisions)
		askUntil := func(what string, done func() bool) {
			t.Helper()
			realtime.Eventually(t, what, func() bool {
				admitted += exhaust(t, nodes, ls, key, 1, decided)
				return done()
			})
		}
		askUntil("the owner is away", func() bool {
			return allKnow(nodes, func(v *view.View, owner int) bool { return v.Away[owner] })
		})
		admitted += exhaust(t, nodes, ls, key, 100, decided)
		require.NoError(t, owner.Thaw())
		askUntil("the owner answers again", func() bool {
			d, err := ls[0].Peek(t.Context(), key)
			require.NoError(t, err)
			return d.Source == weir.Forwarded && allKnow(nodes, func(v *view.View, owner int) bool { return v.HearsAll() })
		})
		admitted += exhaust(t, nodes, ls, key, 100, decided)
		t.Logf("%d more, decided by %v", admitted, decided)
		delete(decided, weir.StandIn) // which is to decide in its stead
		if !decided.Strayed() {
			require.LessOrEqual(t, admitted, 1)
		}
		require.LessOrEqual(t, admitted, 100)
		return decided
	})
}
