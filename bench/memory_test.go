package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/bucket"
)

// BenchmarkStoreMemory is what the heap holds for a key in a store, with all
// slack.
func BenchmarkStoreMemory(b *testing.B) {
	for _, n := range []int{worker.Million, 10 * worker.Million} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			l := bucket.Limit{Algorithm: bucket.TokenBucket, Rate: hourlyRate, Per: time.Hour}
			now := time.Now().UnixNano()
			var bytes float64
			for b.Loop() {
				before := worker.Heap()
				s := bucket.NewStore(n, bucket.Salt{})
				random := rand.New(rand.NewPCG(1, 2))
				for range n {
					s.Take(bucket.ID{Hi: random.Uint64(), Lo: random.Uint64()}, &l, now, 1)
				}
				bytes = float64(worker.Heap()-before) / float64(n)
				require.Equal(b, n, s.Len(), "counts held")
			}
			b.ReportMetric(bytes, "bytes/key")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkMemory is what the heap holds for a key in a limiter, with the
// limiter's copy of the key's text where it keeps one, and how long a whole
// garbage collection then takes.
func BenchmarkMemory(b *testing.B) {
	_, uniform, err := find("weir-owned", bucketed, "uniform", 1)
	require.NoError(b, err)
	for _, r := range rivals() {
		b.Run(fmt.Sprintf("keys=%d/limiter=%s", worker.Million, r.name), func(b *testing.B) {
			before := worker.Heap()
			limiter := r.new(b, uniform.Quota)
			var key [worker.KeyBytes]byte
			for i := range worker.Million {
				limiter.Allow(string(worker.AppendKey(key[:0], i)))
			}
			bytes := float64(worker.Heap()-before) / worker.Million
			benchmarkGC(b)
			b.ReportMetric(bytes, "bytes/key")
			runtime.KeepAlive(limiter)
		})
	}
}

// BenchmarkGC is how long a whole garbage collection takes beside a node that
// holds no count, and beside one that holds ten million.
func BenchmarkGC(b *testing.B) {
	for _, n := range []int{0, 10 * worker.Million} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			node, err := weir.Start(context.Background(), weir.Config{MaxKeys: 10 * worker.Million, Logger: quiet()})
			require.NoError(b, err)
			defer node.Close()
			l, err := node.Limiter(limitOf("sliding_window"))
			require.NoError(b, err)
			var key [worker.KeyBytes]byte
			for i := range n {
				if _, err := l.Allow(context.Background(), string(worker.AppendKey(key[:0], i))); err != nil {
					b.Fatal(err)
				}
			}
			require.Equal(b, n, node.Stats().Keys, "counts held")
			benchmarkGC(b)
		})
	}
}

// benchmarkGC reports the median time of a whole collection of what is held now.
func benchmarkGC(b *testing.B) {
	runtime.GC()
	var took []time.Duration
	for b.Loop() {
		begun := time.Now()
		runtime.GC()
		took = append(took, time.Since(begun))
	}
	b.ReportMetric(milliseconds(median(took)), "gc-ms")
	b.ReportMetric(0, "ns/op")
}
