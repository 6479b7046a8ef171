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
	"github.com/weir-go/weir/internal/testnode"
)

func TestMain(m *testing.M) {
	if told := os.Getenv(nodeVariable); told != "" {
		if err := runNode(told); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(spinVariable) != "" {
		spin()
	}
	flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))) // half of the tests wait; a flag on the command line overrides this value
	os.Exit(m.Run())
}

// process starts a node in another process, which joins n, and waits until the node is ready.
func process(t *testing.T, n *node) *remote {
	t.Helper()
	r := newRemote(t, settings{Join: []string{n.Self().Addr}})
	r.do(t, Order{})
	return r
}

func TestChecksSoonSkipLostProcess(t *testing.T) {
	const (
		slack   = 10 * time.Millisecond
		stalled = 350 * time.Millisecond // time after which checks do not wait for a frozen process
		noticed = time.Second            // time after which the process is known to be missing
		rest    = 300 * time.Millisecond // duration of the checks after that
	)
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel() // only with the other signal, because the parent test is not parallel
			n := testnode.Fleet(t, 1, func(_ int, cfg *weir.Config) { cfg.Timeout = 0 })[0]
			owner := process(t, n)
			l := testnode.Limiter(t, n, weir.Limit{Rate: 1_000_000, Per: time.Hour})
			key := ownedElsewhere(t, []*node{n}, l)
			lab.Eventually(t, "the owner has reported that it runs in time", func() bool {
				for _, m := range n.View().Members {
					if m.Peer != nil && m.Peer.Delay() >= 20*time.Millisecond {
						return false
					}
				}
				return true
			})
			require.NoError(t, owner.Cmd.Process.Signal(signal))
			if signal == syscall.SIGSTOP { // the threads of a process do not stop at once
				var status syscall.WaitStatus
				_, err := syscall.Wait4(owner.PID(), &status, syscall.WUNTRACED, nil)
				require.NoError(t, err)
				require.True(t, status.Stopped())
			}

			process, struck := lab.MeasureDelay(), time.Now()
			var waits, early []time.Duration
			var answered int
			var missing, late time.Duration // time of the last check that the share of this node did not decide, and the lateness of this process until then
			gone := owner.Ended()
			if signal == syscall.SIGSTOP {
				gone = nil
			}
			for len(waits) < 100 || time.Since(struck)-missing < rest { // a busy machine may run only a few checks in that time
				select {
				case <-gone:
					gone = nil
				default:
				}
				require.Less(t, time.Since(struck), lab.GiveUp, "the owner is not known to be missing")
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
				case weir.StandIn: // this node decided for a member that does not answer but is not known to be missing
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
			most := defaultTimeout + slack + process.Worst() // the goroutine of a check may be woken as late as the goroutine that measures
			first := waits[0]
			later := slices.Sorted(slices.Values(waits[1:]))
			median, longest := later[len(later)/2], later[len(later)-1]
			t.Logf("woken up to %v late; missing after %v, of which %v late; first check %v; then of %d the median %v, the longest %v; %d before it had stalled: %v",
				process.Worst(), missing, late, first, len(later), median, longest, len(early), early)
			require.LessOrEqual(t, answered, 1, "one answer may be in flight when the owner ends")
			require.LessOrEqual(t, missing-late, noticed+3*process.Worst(), "a delayed node allows other members more time")
			for _, took := range append(early, first) {
				require.LessOrEqual(t, took, most)
			}
			require.Less(t, median, time.Millisecond, "later checks do not wait for the lost owner")
			require.LessOrEqual(t, longest, most, "no later check waits for longer than Timeout")
		})
	}
}

// The kernel refuses connections to a killed process, but accepts connections to a frozen process.
func TestSurvivorOfKilledProcessHasWholeLimit(t *testing.T) {
	t.Parallel()
	for _, frozen := range []bool{false, true} {
		t.Run(fmt.Sprint("frozen before: ", frozen), func(t *testing.T) {
			t.Parallel()
			n := testnode.Fleet(t, 1, func(_ int, cfg *weir.Config) { cfg.ForgetRefused = true })[0]
			other := process(t, n)
			majority, closed := testnode.Limiter(t, n, weir.Limit{Name: "test", Rate: 100, Per: time.Hour}), testnode.Limiter(t, n, weir.Limit{Name: "closed", Rate: 100, Per: time.Hour, Partition: weir.FailClosed})
			ownedElsewhere(t, []*node{n}, majority)
			granted := func(l *weir.Limiter) int64 {
				d, err := l.Peek(t.Context(), "key")
				require.NoError(t, err)
				return d.Limit
			}
			missing := func() bool { v := n.View(); return v.Side < len(v.Points) }
			if frozen {
				require.NoError(t, other.Cmd.Process.Signal(syscall.SIGSTOP))
				lab.Eventually(t, "the frozen process is missing", missing)
				require.EqualValues(t, 50, granted(majority))
			}
			killed := time.Now()
			require.NoError(t, other.Kill())
			lab.Eventually(t, "the killed process has ended for certain", func() bool { return missing() && granted(majority) == 100 })
			t.Logf("after %v", time.Since(killed))
			require.Zero(t, granted(closed))
		})
	}
}

// ownedElsewhere waits until all nodes know the process that has just joined them, and returns a
// key that the process owns.
func ownedElsewhere(t *testing.T, nodes []*node, l *weir.Limiter) (key string) {
	t.Helper()
	lab.Eventually(t, "all nodes know the process", func() bool {
		for _, n := range nodes {
			if v := n.View(); len(v.Points) != len(nodes)+1 || !v.IsFullyConnected() || !v.Settled {
				return false
			}
		}
		return true
	})
	ours := make(map[string]bool)
	for _, n := range nodes {
		ours[n.Self().Name] = true
	}
	for i := 0; ; i++ {
		if key = fmt.Sprint(i); !ours[l.Owner(key).Name] {
			return key
		}
	}
}
