package main

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

func TestMain(m *testing.M) {
	roles["Member"] = func() error { return worker.ServeCalls("Member", new(service)) } // this role is for the benchmarks only
	playRole()
	os.Exit(m.Run())
}

func TestMembersReportLoadAndFlood(t *testing.T) {
	members, _ := startMembers(t, 2, MemberConfig{Rate: busyRate})
	defer func() { require.NoError(t, endAll(members)) }()
	for i, m := range members {
		require.NoError(t, m.Call("Member.Begin", BusyLoad{Goroutines: 2, Rest: time.Millisecond, Flood: []int{1}, Gateway: i}, new(int)))
	}
	call[int](t, members, "Member.Stop", 0)
	for i, r := range call[BusyReport](t, members, "Member.Report", 0) {
		require.NotEmpty(t, r.Latencies)
		require.Equal(t, i == 1, r.Minted > 0)
	}
}

func TestQuotaThrottlesOneProcessUntilItEnds(t *testing.T) {
	members, _ := startMembers(t, 1, MemberConfig{})
	q, err := newCPUQuota(members[0].PID(), busyQuota, busyPeriod)
	if err != nil {
		require.NoError(t, endAll(members))
		t.Skipf("no cgroup can be made here: %v", err)
	}
	call[int](t, members, "Member.Meet", 1) // the process continues within its quota
	require.NoError(t, endAll(members))
	require.NoError(t, q.remove())
	_, err = newCPUQuota(os.Getpid(), -1, 0)
	require.Error(t, err, "a quota that the kernel refuses")
}

func TestKeysAreDistinctAndOfOneLength(t *testing.T) {
	seen := make(map[string]bool)
	for _, key := range worker.KeysThat(100_000, worker.AnyKey) {
		if len(key) != worker.KeyBytes || seen[key] {
			t.Fatalf("%q comes twice, or has not %d bytes", key, worker.KeyBytes)
		}
		seen[key] = true
	}
}

// The test runs in virtual time, in which the node stays connected to its roster even if
// this process is late.
func TestOwnerGetsOnlyItsOwnKeys(t *testing.T) { synctest.Test(t, testOwnKeys) }

func testOwnKeys(t *testing.T) {
	n, end, err := startRing(1000)
	require.NoError(t, err)
	defer func() { require.NoError(t, end()) }()
	l, err := n.Limiter(weir.Limit{Name: "api", Rate: 1000, Per: time.Hour})
	require.NoError(t, err)
	for _, key := range worker.KeysThat(1000, func(key string) bool { return l.Owner(key).Self }) {
		d, err := l.Allow(context.Background(), key)
		require.NoError(t, err)
		require.Equal(t, weir.Owner, d.Source)
	}
}
