package countsync

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/bucket"
)

// BenchmarkTakeOfAHolding is a take within what a region holds, beside one of a
// limit that is not shared: of ids that are as they begin, and of those of which
// another region has been granted a part. Of the shared ones it has the looks at
// the holdings in it, which a node takes on another goroutine.
func BenchmarkTakeOfAHolding(b *testing.B) {
	limit := bucket.Limit{Algorithm: bucket.TokenBucket, Rate: 1e12, Per: time.Second}
	for _, n := range []int{1, 100_000} {
		ids := make([]bucket.ID, n)
		for i := range ids {
			ids[i] = bucket.ID{Hi: rand.Uint64(), Lo: rand.Uint64()}
		}
		run := func(name string, take func(id bucket.ID, t Time, r *bucket.Result)) {
			b.Run(fmt.Sprintf("keys=%d/scope=%s", n, name), func(b *testing.B) {
				var r bucket.Result
				for _, id := range ids { // the first take of each makes its holding, or brings it up to date
					now := time.Now().UnixNano()
					take(id, Time{now, now}, &r)
				}
				for i := 0; b.Loop(); i++ {
					now := time.Now().UnixNano()
					take(ids[i%len(ids)], Time{now, now}, &r)
				}
				if !r.Allowed {
					b.Fatal("denied")
				}
			})
		}
		start := time.Now().UnixNano()
		s := bucket.NewStore(1<<20, bucket.Salt{})
		s.Track(1, 1, nil)
		run("regional", func(id bucket.ID, t Time, r *bucket.Result) { s.TakeInto(id, &limit, t.Now, 1, r) })
		h := NewHoldings(NewRegions("a", []string{"b"}, nil), 1, s, Time{start, start})
		h.Meet("b", h.regions.print)
		h.knownSince -= 2 * keptFor
		var looked int64
		take := func(id bucket.ID, t Time, r *bucket.Result) {
			if t.Steady-looked > int64(ExchangeEvery) {
				h.Due(t, func(bucket.ID) bool { return true })
				looked = t.Steady
			}
			h.Take(id, &limit, t, 1, r)
		}
		for i := range visitParts + 1 {
			h.Due(Time{start, start + int64(i)*int64(ExchangeEvery)}, func(bucket.ID) bool { return true })
		}
		for i := range ids {
			ids[i].Hi++ // other ids of the same store
		}
		run("global", take)
		now := time.Now().UnixNano()
		for _, id := range ids {
			h.Serve("b", h.regions.print, &Statement{
				ID: id, Limit: limit, Number: 1, From: 2, Wants: 10, Must: 10, Demand: 1e15, Usual: 1e15,
			}, Time{now, now})
		}
		run("granted", take)
	}
}
