package bucket

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Batches of ids drawn from many, as they come from other members.
func BenchmarkPrefetch(b *testing.B) {
	for _, keys := range []int{100_000, 1_000_000} {
		for _, prefetch := range []bool{false, true} {
			b.Run(fmt.Sprintf("keys=%d/prefetch=%t", keys, prefetch), func(b *testing.B) {
				s := NewStore(2*keys, Salt{})
				s.Track(1, 1, nil)
				l := Limit{Rate: 1 << 40, Per: time.Hour}
				ids := make([]ID, keys)
				for i := range ids {
					ids[i] = ID{rand.Uint64(), rand.Uint64()}
					s.Take(ids[i], &l, 0, 1)
				}
				var changes []Change
				changes = s.collectAll(false, changes)
				const batch = 64
				var some [batch]ID
				var r Result
				for n := 0; b.Loop(); n++ {
					if n%(keys/2) == 0 {
						b.StopTimer()
						changes = s.collectAll(false, changes[:0])
						b.StartTimer()
					}
					if n%batch == 0 {
						for i := range some {
							some[i] = ids[rand.IntN(keys)]
						}
						if prefetch {
							s.Prefetch(some[:])
						}
					}
					s.TakeInto(some[n%batch], &l, 1, 1, &r)
				}
			})
		}
	}
}
