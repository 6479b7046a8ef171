package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

var costsOf = flag.String("costs", "3", "`numbers` of nodes for which TestCostsOfIdleNodesAreMeasured measures the costs, separated by commas")

// TestCostsOfIdleNodesAreMeasured measures the traffic of idle nodes, and the time in which nodes
// agree. With -costs 3,10,30,100 it runs for some minutes, and prints a table. docs/deploy.md has a few
// figures of the table.
func TestCostsOfIdleNodesAreMeasured(t *testing.T) {
	t.Log("| nodes | bytes a second | messages a second | a join | a crash is noticed | is dead for all | a restart of each in turn |")
	for text := range strings.SplitSeq(*costsOf, ",") {
		size, err := strconv.Atoi(text)
		require.NoError(t, err)
		synctest.Test(t, func(t *testing.T) { measureCosts(t, size) })
	}
}

func measureCosts(t *testing.T, size int) {
	var bytes, writes atomic.Int64
	o := weirtest.Options{
		Gossip: true, Link: weirtest.Link{Latency: 200 * time.Microsecond},
		Config: weir.Config{Secrets: [][]byte{make([]byte, 32)}, Logger: slog.New(slog.DiscardHandler), MaxKeys: 10_000, Forget: 5 * time.Minute},
		Wrote: func(n int) {
			bytes.Add(int64(n))
			writes.Add(1)
		},
	}
	_, _ = rand.Read(o.Config.Secrets[0]) // rand.Read never fails
	for i := range size {
		o.Nodes = append(o.Nodes, fmt.Sprint("node", i))
	}
	c, err := weirtest.NewCluster(t.Context(), o)
	require.NoError(t, err)
	defer c.Close()
	start := func(name string) {
		_, err := c.Start(t.Context(), name)
		require.NoError(t, err)
	}
	// measure waits for a condition, and returns the time since begun.
	measure := func(begun time.Time, condition func() bool) time.Duration {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		require.NoError(t, c.Await(ctx, condition))
		return time.Since(begun)
	}

	const idle, restarts, last = time.Minute, 3, "joiner"
	time.Sleep(10 * time.Second)
	bytes.Store(0)
	writes.Store(0)
	time.Sleep(idle)
	perNode := func(n int64) float64 { return float64(n) / idle.Seconds() / float64(size) }
	sent, messages := perNode(bytes.Load()), perNode(writes.Load())
	require.Positive(t, sent)

	begun := time.Now()
	start(last)
	joined := measure(begun, c.Settled)

	begun = time.Now()
	for _, name := range o.Nodes[:restarts] {
		require.NoError(t, c.Leave(t.Context(), name))
		start(name)
		measure(begun, c.Settled)
	}
	restart := time.Since(begun) / restarts

	// seen reports whether all nodes have the joiner in one of these states.
	seen := func(states ...weir.MemberState) bool {
		return !slices.ContainsFunc(c.Names(), func(name string) bool {
			return !slices.ContainsFunc(c.Node(name).Members(), func(m weir.Member) bool {
				return strings.HasPrefix(m.Name, last) && slices.Contains(states, m.State)
			})
		})
	}
	c.Kill(last)
	begun = time.Now()
	noticed := measure(begun, func() bool { return seen(weir.Missing, weir.Dead) })
	dead := measure(begun, func() bool { return seen(weir.Dead) })
	t.Logf("| %d | %.0f | %.0f | %.1f s | %.1f s | %.1f s | %.1f s |", size, sent, messages,
		joined.Seconds(), noticed.Seconds(), dead.Seconds(), restart.Seconds())
}
