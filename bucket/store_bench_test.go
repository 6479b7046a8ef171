package bucket

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// ids are what a keyed hash gives: uniform, and the same in every run.
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

// BenchmarkStoreTake is one check with its lock and without its clock: on one
// key, and on keys chosen uniformly among those held.
func BenchmarkStoreTake(b *testing.B) {
	for _, keys := range []int{1, 1_000_000, 10_000_000} {
		name := fmt.Sprintf("keys=%d", keys)
		if keys == 1 {
			name = "hot"
		}
		b.Run(name, func(b *testing.B) {
			l := &Limit{Algorithm: TokenBucket, Rate: 20_000_000, Per: time.Second}
			s := NewStore(1<<24, Salt{})
			held := ids(keys)
			fill(s, held, l)
			// What is drawn is read in order, so that only the store misses the cache.
			rng := rand.New(rand.NewPCG(3, 4))
			drawn := make([]ID, 1<<20)
			for i := range drawn {
				drawn[i] = held[rng.IntN(keys)]
			}
			now, i := epoch, 0
			b.ReportAllocs()
			for b.Loop() {
				now += 100
				s.Take(drawn[i&(len(drawn)-1)], l, now, 1)
				i++
			}
		})
	}
}

// BenchmarkStoreMemory is what the heap holds for a key, with all slack, at
// counts that suit the tables well or badly, with Track off and on.
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
