package countsync

import (
	"testing"
	"time"

	"github.com/weir-go/weir/bucket"
)

// BenchmarkTakeOfAHolding is a take within what a region holds, beside one of a
// limit that is not shared.
func BenchmarkTakeOfAHolding(b *testing.B) {
	limit := bucket.Limit{Algorithm: bucket.TokenBucket, Rate: 1e12, Per: time.Second}
	ids := make([]bucket.ID, 1024)
	for i := range ids {
		ids[i] = bucket.ID{Hi: uint64(i) << 54, Lo: uint64(i) * 0x9e3779b97f4a7c15}
	}
	start := time.Now().UnixNano()
	begun := time.Now()
	b.Run("scope=regional", func(b *testing.B) {
		s := bucket.NewStore(1 << 20)
		var r bucket.Result
		for i := 0; b.Loop(); i++ {
			s.TakeInto(ids[i%len(ids)], &limit, start+int64(time.Since(begun)), 1, &r)
		}
	})
	b.Run("scope=global", func(b *testing.B) {
		s := bucket.NewStore(1 << 20)
		h := NewHoldings(NewRegions("a", []string{"b"}, nil), 1, s, Time{start, start})
		h.Meet("b", h.regions.print)
		h.begun -= 2 * keptFor
		var r bucket.Result
		for i := 0; b.Loop(); i++ {
			now := start + int64(time.Since(begun))
			h.Take(ids[i%len(ids)], &limit, Time{now, now}, 1, &r)
			if i%(1<<20) == 0 {
				h.Due(Time{now, now}, func(bucket.ID) bool { return true })
			}
		}
		if !r.Allowed {
			b.Fatal("denied")
		}
	})
}
