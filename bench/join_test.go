package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	joinMembers = 3
	joinLoad    = 20_000 // checks a second, on all of them together
	joinBefore  = 5 * time.Second
	fillers     = 512
)

// BenchmarkJoin is how long a fourth node takes to be ready beside three that
// hold a million counts, and what that does to the checks on those three. N is
// the number of joins, each in a new cluster.
func BenchmarkJoin(b *testing.B) {
	var joins []joined
	for b.Loop() {
		joins = append(joins, joinOnce(b))
	}
	of := func(figure func(joined) float64) float64 { return median(each(joins, figure)) }
	b.ReportMetric(of(func(j joined) float64 { return j.met.Took.Seconds() }), "ready-s")
	b.ReportMetric(of(func(j joined) float64 { return milliseconds(j.before.p99()) }), "p99-before-ms")
	b.ReportMetric(of(func(j joined) float64 { return milliseconds(j.during.p99()) }), "p99-during-ms")
	b.ReportMetric(of(func(j joined) float64 { return milliseconds(slices.Max(j.during.Latencies)) }), "max-during-ms")
	b.ReportMetric(of(func(j joined) float64 { return float64(len(j.during.Latencies)) / j.met.Took.Seconds() }), "checks/s")
	b.ReportMetric(of(func(j joined) float64 { return float64(j.met.Counts) }), "counts")
	b.ReportMetric(of(func(j joined) float64 { return float64(j.before.Strays + j.during.Strays) }), "strays")
	b.ReportMetric(0, "ns/op")
}

// joined is what one join came to.
type joined struct {
	met            Met
	before, during Lap
}

func joinOnce(tb testing.TB) (j joined) {
	members := startMembers(tb, joinMembers, 0)
	defer func() { endMembers(tb, members) }()
	call[int](tb, members[:1], "Member.Fill", fillers)
	call[int](tb, members, "Member.Settle", 0)
	call[int](tb, members, "Member.Load", joinLoad/joinMembers)

	time.Sleep(joinBefore)
	j.before = merge(call[Lap](tb, members, "Member.Lap", 0))
	fourth := startMember(tb, MemberConfig{Join: []string{members[0].addr}})
	members = append(members, fourth)
	require.NoError(tb, fourth.Call("Member.Meet", len(members), &j.met))
	j.during = merge(call[Lap](tb, members[:joinMembers], "Member.Lap", 0))
	return j
}
