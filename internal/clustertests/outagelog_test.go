package clustertests

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

const (
	anyOutage     = "outage " // a prefix of all messages about an outage
	outageBegan   = "outage began"
	outageEnded   = "outage ended"
	outageNoticed = 3 * time.Second // the time until a member is missing, and until the next check for an outage
	outageOver    = 9 * time.Second // the time until all members are connected again, and the five seconds after that
)

// watched returns a world of n nodes, the name of its last node, and the log of this node.
func watched(t *testing.T, n int, gossip bool, cfg weir.Config) (w *world, last string, log *logbook) {
	w = newWorldOf(t, n-1, gossip, cfg)
	last, log = hosts(n)[n-1], new(logbook)
	cfg.Logger = slog.New(log)
	w.start(t, last, cfg)
	w.ready(t, w.names...)
	time.Sleep(outageOver)
	return w, last, log
}

// makeshift returns the number of decisions of a node that a stand-in or the node itself has
// made in place of the owner.
func makeshift(n *weir.Node) (sum int64) {
	of := n.Stats().Decisions
	for _, source := range []weir.Source{weir.StandIn, weir.Budget, weir.FailedOpen, weir.FailedClosed} {
		sum += int64(of[source].Allowed + of[source].Denied)
	}
	return sum
}

// knock checks ten keys every 100 ms, for the given duration.
func knock(t *testing.T, l *weir.Limiter, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for i := range 10 {
			allowed(t, l, fmt.Sprint("secret key ", i), 1)
		}
	}
}

func TestSplitIsLoggedAtStartAndEnd(t *testing.T) {
	t.Parallel()
	for _, partition := range []weir.PartitionPolicy{weir.MajorityShare, weir.FairShare, weir.FailOpen, weir.FailClosed} {
		t.Run(fmt.Sprint("policy ", partition), func(t *testing.T) {
			inBubbles(t, func(t *testing.T, gossip bool) {
				w, c, log := watched(t, 3, gossip, weir.Config{})
				node := w.nodes[c]
				l := w.limiters(t, weir.Limit{Name: "test", Rate: 100, Per: time.Minute, Partition: partition})[c]
				knock(t, l, 3*time.Second)
				require.Empty(t, log.findLines(anyOutage), "in good health")
				require.Zero(t, node.Stats().Outage)

				cut := time.Now()
				w.network.Split([]string{"a", "b"}, []string{c})
				knock(t, l, outageNoticed)
				lines := log.findLines(anyOutage)
				require.NotEmpty(t, lines)
				begun := lines[0]
				require.True(t, strings.HasPrefix(begun.message, outageBegan))
				require.Equal(t, slog.LevelWarn, begun.level)
				require.WithinDuration(t, cut, begun.attrs["since"].Time(), 2*time.Second)
				require.Positive(t, begun.number("decisions"))
				knock(t, l, 30*time.Second)
				for _, line := range log.findLines(anyOutage) {
					require.Equal(t, slog.LevelWarn, line.level, "it lasts")
				}
				now := node.Stats().Outage
				require.Equal(t, begun.attrs["since"].Time(), now.Since)
				require.Equal(t, "a b", hostsOf(now.Missing))
				require.InDelta(t, makeshift(node), now.Decisions, 100, "the figure may be a second old")
				require.EqualValues(t, 1, now.Count)

				w.network.Heal()
				healed := time.Now()
				knock(t, l, outageOver+5*time.Second)
				synctest.Wait()
				lines = log.findLines(outageEnded)
				require.Len(t, lines, 1)
				ended := lines[0]
				require.Equal(t, slog.LevelInfo, ended.level)
				require.Equal(t, begun.attrs["since"], ended.attrs["since"])
				require.InDelta(t, healed.Sub(cut), ended.duration("lasted"), float64(5*time.Second))
				require.Equal(t, "a b", ended.hostsIn("missing"))
				require.EqualValues(t, 3, ended.number("roster"))
				require.EqualValues(t, 3, ended.number("reached"))
				require.Equal(t, makeshift(node), ended.number("decisions"))
				for attr, source := range map[string]weir.Source{"stand_in": weir.StandIn, "budget": weir.Budget, "failed_open": weir.FailedOpen, "failed_closed": weir.FailedClosed} {
					of := node.Stats().Decisions[source]
					require.EqualValues(t, of.Allowed+of.Denied, ended.number(attr), attr)
				}
				require.Equal(t, weir.OutageStats{Count: 1}, node.Stats().Outage)
				for _, line := range log.findLines("") {
					require.NotContains(t, fmt.Sprint(line), "secret")
				}
				pacedBySeconds(t, log)
			})
		})
	}
}

// pacedBySeconds requires that two lines about outages are at least a second apart.
func pacedBySeconds(t *testing.T, log *logbook) {
	t.Helper()
	lines := log.findLines(anyOutage)
	for i := range lines[:max(0, len(lines)-1)] {
		require.GreaterOrEqual(t, lines[i+1].time.Sub(lines[i].time), time.Second)
	}
}

// The crash of a member is logged even if there are no checks.
func TestCrashedMemberIsMissingUntilForgotten(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		w, c, log := watched(t, 3, gossip, weir.Config{})
		w.network.Host("a").Kill()
		time.Sleep(outageNoticed)
		lines := log.findLines(outageBegan)
		require.Len(t, lines, 1)
		require.Equal(t, "a", lines[0].hostsIn("missing"))
		require.EqualValues(t, 2, lines[0].number("reached"))
		require.EqualValues(t, 3, lines[0].number("roster"))
		require.Zero(t, lines[0].number("decisions"))
		time.Sleep(forget - 30*time.Second)
		require.Equal(t, "a", hostsOf(w.nodes[c].Stats().Outage.Missing))
		time.Sleep(90 * time.Second)
		lines = log.findLines(outageEnded)
		require.Len(t, lines, 1)
		require.GreaterOrEqual(t, lines[0].duration("lasted"), forget)
		require.Len(t, log.findLines(anyOutage), 2)
	})
}

// The peer stays in the roster, and becomes connected again with each pong. But it does not answer
// any check in time, and there is no other node to relay the check.
func TestUnresponsivePeerIsLogged(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		w, b, log := watched(t, 2, gossip, weir.Config{})
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 1_000_000, Per: time.Hour})
		l := ls[b]
		knock := func(d time.Duration) {
			key := keyOf(t, ls["a"])
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				allowed(t, l, key, 1)
			}
		}
		w.slow("a", b, 200*time.Millisecond)
		begun := time.Now()
		knock(20 * time.Second)
		lines := log.findLines(outageBegan)
		require.Len(t, lines, 1)
		require.Equal(t, slog.LevelWarn, lines[0].level)
		require.Equal(t, "a", lines[0].hostsIn("missing"))
		require.LessOrEqual(t, lines[0].time.Sub(begun), outageNoticed)
		require.Positive(t, lines[0].number("decisions"))
		require.Empty(t, log.findLines(outageEnded))
		w.slow("a", b, latency)
		knock(outageOver)
		lines = log.findLines(outageEnded)
		require.Len(t, lines, 1)
		require.Equal(t, makeshift(w.nodes[b]), lines[0].number("decisions"))
		require.Len(t, log.findLines(anyOutage), 2)
	})
}

// A check can also time out because the caller has a short deadline.
func TestTimedOutChecksAreLogged(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		w, c, log := watched(t, 3, gossip, weir.Config{})
		ls := w.limiters(t, weir.Limit{Name: "test", Rate: 1_000_000, Per: time.Hour, NoLeases: true})
		key := keyOf(t, ls["a"])
		for range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), latency)
			d, err := ls[c].Allow(ctx, key)
			require.NoError(t, err)
			require.Equal(t, weir.Budget, d.Source)
			cancel()
			time.Sleep(100 * time.Millisecond)
		}
		lines := log.findLines(outageBegan)
		require.Len(t, lines, 1)
		require.Empty(t, lines[0].hostsIn("missing"))
		require.EqualValues(t, 3, lines[0].number("reached"))
		require.Positive(t, lines[0].number("decisions"))
		time.Sleep(outageOver)
		lines = log.findLines(outageEnded)
		require.Len(t, lines, 1)
		require.EqualValues(t, 40, lines[0].number("decisions"))
		require.EqualValues(t, 40, lines[0].number("budget"))
	})
}

func TestRosterBelowExpectIsLogged(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		w, c, log := watched(t, 2, gossip, weir.Config{Expect: 3})
		lines := log.findLines(outageBegan)
		require.Len(t, lines, 1)
		require.EqualValues(t, 3, lines[0].number("expect"))
		require.EqualValues(t, 2, lines[0].number("roster"))
		require.EqualValues(t, 2, lines[0].number("reached"))
		require.Empty(t, lines[0].hostsIn("missing"))
		require.WithinDuration(t, time.Now().Add(-outageOver), w.nodes[c].Stats().Outage.Since, time.Second, "since its start")
		w.start(t, "d", weir.Config{Expect: 3})
		w.ready(t, w.names...)
		time.Sleep(outageOver)
		require.Len(t, log.findLines(outageEnded), 1)
		require.Len(t, log.findLines(anyOutage), 2)
	})
}

func TestDeployIsNoOutage(t *testing.T) {
	inBubbles(t, func(t *testing.T, gossip bool) {
		w, c, log := watched(t, 3, gossip, weir.Config{})
		l := w.limiters(t, weir.Limit{Name: "test", Rate: 1_000_000, Per: time.Hour})[c]
		for _, name := range []string{"a", "b"} {
			w.network.Host(name + "'")
			w.start(t, name+"'", weir.Config{})
			knock(t, l, 5*time.Second)
			require.True(t, w.nodes[name+"'"].Ready())
			left := make(chan error)
			go func() { left <- w.nodes[name].Leave(t.Context()) }()
			knock(t, l, 5*time.Second)
			require.NoError(t, <-left)
			require.NoError(t, w.nodes[name].Close())
			knock(t, l, 5*time.Second)
		}
		for _, line := range log.findLines(anyOutage) {
			t.Error(line)
		}
		require.Zero(t, makeshift(w.nodes[c]))
	})
}

// slow sets the latency of the link between two hosts, both ways.
func (w *world) slow(a, b string, latency time.Duration) {
	w.network.SetLink(a, b, weirtest.Link{Latency: latency})
	w.network.SetLink(b, a, weirtest.Link{Latency: latency})
}
