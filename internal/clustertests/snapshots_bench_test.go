package clustertests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/snapshot"
)

// BenchmarkSnapshot writes a snapshot to a directory while one caller checks keys, and then loads
// it into another node. The p99 values are durations of a check in nanoseconds, before, during
// and after the write. The value of extra-MB is the largest growth of memory during the write.
func BenchmarkSnapshot(b *testing.B) {
	for _, counts := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("counts=%d", counts), func(b *testing.B) {
			for b.Loop() {
				writeAndLoad(b, counts)
			}
		})
	}
}

// gate is a store that accepts one snapshot each time it is opened, and refuses all others.
type gate struct {
	snapshot.Store
	open, writing atomic.Bool
}

func (g *gate) Save(ctx context.Context, node string, write func(io.Writer) error) error {
	if !g.open.Swap(false) {
		return errors.New("it is shut")
	}
	g.writing.Store(true)
	defer g.writing.Store(false)
	return g.Store.Save(ctx, node, write)
}

func writeAndLoad(b *testing.B, counts int) {
	dir, err := snapshot.OpenDir(b.TempDir(), snapshot.DirOptions{})
	require.NoError(b, err)
	defer dir.Close()
	g := &gate{Store: dir}
	limit := weir.Limit{Name: "kept", Algorithm: weir.FixedWindow, Rate: 1_000_000, Per: 24 * time.Hour}
	cfg := weir.Config{Name: "a", MaxKeys: counts + counts/4, TopKeys: -1, Snapshots: g, SnapshotEvery: time.Second, Logger: quiet}
	n, err := weir.Start(b.Context(), cfg)
	require.NoError(b, err)
	l, err := n.Limiter(limit)
	require.NoError(b, err)
	keys := make([]string, 4096)
	for i := range counts {
		key := strconv.Itoa(i)
		_, err := l.Allow(b.Context(), key)
		require.NoError(b, err)
		keys[i%len(keys)] = key
	}
	checks := func(while func() bool) (p99 time.Duration) {
		var took []time.Duration
		for while() {
			began := time.Now()
			_, err := l.Allow(b.Context(), keys[rand.IntN(len(keys))])
			took = append(took, time.Since(began))
			require.NoError(b, err)
			time.Sleep(20 * time.Microsecond)
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	forSeconds := func(s int) func() bool {
		until := time.Now().Add(time.Duration(s) * time.Second)
		return func() bool { return time.Now().Before(until) }
	}
	runtime.GC()
	checks(forSeconds(2)) // the store's changes are collected
	without := checks(forSeconds(5))
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	g.open.Store(true)
	for !g.writing.Load() {
		time.Sleep(time.Millisecond)
	}
	most := before.Sys
	sampled := time.Now()
	during := checks(func() bool {
		if time.Since(sampled) > 100*time.Millisecond {
			sampled = time.Now()
			runtime.ReadMemStats(&now)
			most = max(most, now.Sys)
		}
		return g.writing.Load()
	})
	after := checks(forSeconds(5))
	s := n.Stats().Snapshots
	require.Equal(b, uint64(1), s.Saved, s.Error)
	require.GreaterOrEqual(b, s.Counts, counts)
	require.NoError(b, n.Close())
	b.ReportMetric(float64(without), "p99-before")
	b.ReportMetric(float64(during), "p99-during")
	b.ReportMetric(float64(after), "p99-after")
	b.ReportMetric(float64(most-before.Sys)/(1<<20), "extra-MB")
	b.ReportMetric(s.Took.Seconds(), "write-s")
	b.ReportMetric(float64(s.Bytes)/float64(s.Counts), "B/count")

	began := time.Now()
	next, err := weir.Start(b.Context(), cfg)
	require.NoError(b, err)
	for !next.Ready() {
		time.Sleep(time.Millisecond)
	}
	b.ReportMetric(time.Since(began).Seconds(), "load-s")
	require.GreaterOrEqual(b, next.Stats().Snapshots.Loaded, counts)
	require.NoError(b, next.Close())
}
