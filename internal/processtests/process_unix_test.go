//go:build unix

package processtests

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/realtime"
)

func TestMain(m *testing.M) {
	if told := os.Getenv(nodeVariable); told != "" {
		os.Exit(lab.Serve(told, serveNode, func(err error) any { return report{Failed: err.Error()} }))
	}
	if os.Getenv(spinVariable) != "" {
		spin()
	}
	flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))) // half of them wait; the command line overrides it
	os.Exit(m.Run())
}

// process starts another process with a node that joins n, and waits until it is ready.
func process(t *testing.T, n *node) *remote {
	t.Helper()
	v := n.View()
	r := newRemote(t, settings{Join: []string{v.Members[v.Self].Addr}})
	r.do(t, order{})
	return r
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
