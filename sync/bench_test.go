package countsync

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/bucket"
)

// pair are the roles of two nodes, of which the first holds everything.
type pair struct{ self, other Member }

func (p pair) Holds(bucket.ID) bool     { return p.self < p.other }
func (p pair) Holder(bucket.ID) Member  { return min(p.self, p.other) }
func (p pair) Answers(bucket.ID) Member { return min(p.self, p.other) }
func (p pair) Targets(dst []Member, _ bucket.ID) []Member {
	return append(dst, p.other)
}

// BenchmarkStream measures what it costs, for each count that changes, to collect
// the change, to bring it into a frame and to take it in at the other end: of
// 1 M counts, uniformly, 16 K changes at a time.
func BenchmarkStream(b *testing.B) {
	const counts, batch = 1 << 20, 1 << 14
	for _, algorithm := range []bucket.Algorithm{bucket.TokenBucket, bucket.SlidingWindow, bucket.SlidingLog} {
		b.Run(algorithm.String(), func(b *testing.B) {
			limit := limitOf(algorithm)
			from, to := bucket.NewStore(2*counts, bucket.Salt{}), bucket.NewStore(2*counts, bucket.Salt{})
			from.Track(1, 1, nil)
			to.Track(2, 1, nil)
			a, z := New(1, from), New(2, to)
			a.Meet([]Member{1, 2})
			z.Meet([]Member{1, 2})
			random := rand.New(rand.NewPCG(1, 2))
			ids := make([]bucket.ID, counts)
			for i := range ids {
				ids[i] = bucket.ID{Hi: random.Uint64(), Lo: random.Uint64()}
			}
			now := int64(time.Hour)
			frame, answer := make([]byte, 0, 32<<10), make([]byte, 0, 1024)
			var collect, next, serve time.Duration
			bytes := 0
			stream := func() {
				start := time.Now()
				a.Collect(now, false, pair{1, 2})
				collect += time.Since(start)
				for {
					start := time.Now()
					f := a.Next(2, now, pair{1, 2}, frame, 16<<10)
					next += time.Since(start)
					if f == nil {
						return
					}
					bytes += len(f)
					start = time.Now()
					answer, _, _ = z.Serve(now, f, pair{2, 1}, answer[:0])
					serve += time.Since(start)
					a.Answered(2, now, answer, pair{1, 2})
				}
			}
			for i, id := range ids {
				from.Take(id, &limit, now, 1)
				if i%batch == 0 {
					stream()
				}
			}
			stream()
			collect, next, serve, bytes = 0, 0, 0, 0
			b.ReportAllocs()
			n := 0
			b.StopTimer()
			b.ResetTimer()
			for n < b.N {
				for range min(batch, b.N-n) {
					now += 1000
					from.Take(ids[random.IntN(counts)], &limit, now, 1)
					n++
				}
				b.StartTimer()
				stream()
				b.StopTimer()
			}
			b.ReportMetric(float64(collect.Nanoseconds())/float64(n), "collect-ns/op")
			b.ReportMetric(float64(next.Nanoseconds())/float64(n), "next-ns/op")
			b.ReportMetric(float64(serve.Nanoseconds())/float64(n), "serve-ns/op")
			b.ReportMetric(float64(bytes)/float64(n), "bytes/op")
		})
	}
}
