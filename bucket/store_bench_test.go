package bucket

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// ids returns IDs as a keyed hash would: uniform, and the same in every run.
func ids(n int) []ID {
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]ID, n)
	for i := range ids {
		ids[i] = ID{rng.Uint64(), rng.Uint64()}
	}
	return ids
}

const epoch = int64(1_800_000_000_000_000_000)

func fill(s *Store, ids []ID, l *Limit) {
	for _, id := range ids {
		s.Take(id, l, epoch, 1)
	}
}

// BenchmarkStoreMemory measures the memory of the heap for each key, including unused slots,
// for numbers of counts that fit the tables well or badly, with and without Track.
func BenchmarkStoreMemory(b *testing.B) {
	for _, tracked := range []bool{false, true} {
		for _, keys := range []int{100_000, 1_000_000, 1_150_000, 1_300_000, 8_000_000, 9_000_000, 10_000_000} {
			benchmarkStoreMemory(b, keys, tracked)
		}
	}
}

func benchmarkStoreMemory(b *testing.B, keys int, tracked bool) {
	b.Run(fmt.Sprintf("keys=%d/tracked=%v", keys, tracked), func(b *testing.B) {
		l := &Limit{Algorithm: TokenBucket, Rate: 10, Per: time.Hour}
		for b.Loop() {
			before := heap()
			s := NewStore(1<<24, Salt{})
			if tracked {
				s.Track(1, 1, nil)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range keys {
				s.Take(ID{rng.Uint64(), rng.Uint64()}, l, epoch, 1)
				if i%100_000 == 0 {
					s.collectAll(false, nil)
				}
			}
			s.collectAll(false, nil)
			b.ReportMetric(float64(heap()-before)/float64(keys), "bytes/key")
			runtime.KeepAlive(s)
		}
		b.ReportMetric(0, "ns/op")
	})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
