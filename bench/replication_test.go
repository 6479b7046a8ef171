package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

const (
	replicationCallers = 512
	replicationRound   = time.Second
	// draws is how many keys the callers go through before they come to the same
	// ones again, in some seconds.
	draws = 2 * worker.Million
)

// replicated spends a sixteenth in 6 units: what a hot key spends hurries to its
// replicas until it is denied.
var replicated = weir.Limit{Name: "api", Rate: 100, Per: time.Minute}

// drawings draw one of a million keys.
var drawings = []struct {
	name string
	of   func(*rand.Rand) func() int
}{
	{"uniform", worker.UniformOf(worker.Million)},
	{"zipf", worker.ZipfOf(worker.Million)},
}

// BenchmarkReplication is a check that another process decides, in a cluster
// whose counts have a replica, beside the same in one whose counts have none. Of
// two nodes the one that asks holds all replicas.
func BenchmarkReplication(b *testing.B) {
	for _, nodes := range []int{2, 3} {
		for _, d := range drawings {
			b.Run(fmt.Sprintf("nodes=%d/keys=%s", nodes, d.name), func(b *testing.B) {
				with, without := newFleet(b, nodes, 1, d.of), newFleet(b, nodes, -1, d.of)
				var behind []time.Duration
				rounds := inTurn(b, replicationCallers, replicationRound, func(contestant int) {
					if begun := time.Now(); contestant == 0 {
						call[int](b, with.members, "Member.Settle", 0)
						behind = append(behind, time.Since(begun))
					}
				}, with.checks.ask, without.checks.ask)
				b.ReportMetric(perSecond(rounds[0]), "checks/s")
				b.ReportMetric(perSecond(rounds[1]), "unreplicated/s")
				b.ReportMetric(100*cost(rounds), "cost-%")
				b.ReportMetric(milliseconds(slices.Max(behind)), "behind-ms")
				with.checks.reportStrays(b)
				without.checks.reportStrays(b)
			})
		}
	}
}

func perSecond(fs []figures) float64 {
	return median(each(fs, func(f figures) float64 { return f.perSecond }))
}

// cost is what the first contestant lacks of the second one's throughput: the
// median over their rounds, each beside the other.
func cost(rounds [][]figures) float64 {
	costs := make([]float64, len(rounds[0]))
	for i := range costs {
		costs[i] = 1 - rounds[0][i].perSecond/rounds[1][i].perSecond
	}
	return median(costs)
}

// fleet is a node in this process that asks, and those in others that it asks.
type fleet struct {
	members []*member
	checks  *forwarded
}

func newFleet(tb testing.TB, nodes, replicas int, drawing func(*rand.Rand) func() int) *fleet {
	members := newMembers(tb, nodes-1, replicas)
	l, err := join(tb, replicas, members...).Limiter(replicated)
	require.NoError(tb, err)
	keys := worker.Drawn(othersKeys(l, worker.Million), draws, drawing(rand.New(rand.NewPCG(1, 2))))
	return &fleet{members, forward(l, keys, replicationCallers)}
}
