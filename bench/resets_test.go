package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/worker"
)

// BenchmarkResets is what a join costs three nodes that remember that many resets:
// how long the fourth takes to be ready, what checks on the three take meanwhile, and
// how long until all checks are decided by authority on all four. N is the number of
// joins, each in a new cluster.
func BenchmarkResets(b *testing.B) {
	for _, resets := range []int{50_000, worker.Million} {
		b.Run(fmt.Sprintf("resets=%d", resets), func(b *testing.B) {
			var joins []joined
			var exact []float64
			for b.Loop() {
				j, until := joinAfterResets(b, resets)
				joins, exact = append(joins, j), append(exact, until.Seconds())
			}
			of := func(figure func(joined) float64) float64 { return median(each(joins, figure)) }
			b.ReportMetric(of(func(j joined) float64 { return j.met.Took.Seconds() }), "ready-s")
			b.ReportMetric(median(exact), "exact-s")
			b.ReportMetric(of(func(j joined) float64 { return milliseconds(j.during.p99()) }), "p99-during-ms")
			b.ReportMetric(of(func(j joined) float64 { return milliseconds(slices.Max(j.during.Latencies)) }), "max-during-ms")
			b.ReportMetric(of(func(j joined) float64 { return float64(j.during.Strays) }), "strays")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func joinAfterResets(tb testing.TB, resets int) (j joined, exact time.Duration) {
	members := startMembers(tb, joinMembers, 0)
	defer func() { endMembers(tb, members) }()
	require.NoError(tb, members[0].Call("Member.Reset", resets, new(int)))
	call[int](tb, members, "Member.Load", joinLoad/joinMembers)
	begun := time.Now()
	fourth := startMember(tb, MemberConfig{Join: []string{members[0].addr}})
	members = append(members, fourth)
	require.NoError(tb, fourth.Call("Member.Meet", len(members), &j.met))
	call[int](tb, members, "Member.Exact", 0)
	exact = time.Since(begun)
	j.during = merge(call[Lap](tb, members[:joinMembers], "Member.Lap", 0))
	return j, exact
}
