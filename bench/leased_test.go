package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

// BenchmarkLeased is a check of a key that another process owns and lends of, beside
// one that its own node decides. They take turns, a stretch each: N is how many, and
// allocations are those of both, in a stretch each.
func BenchmarkLeased(b *testing.B) {
	const name = "token_bucket"
	l, err := join(b, 0, newMembers(b, 1, 0)...).Limiter(limitOf(name))
	require.NoError(b, err)
	mine, err := newOwner(b, worker.Million).Limiter(limitOf(name))
	require.NoError(b, err)
	sides := []struct {
		limiter *weir.Limiter
		key     string
		took    []time.Duration
	}{
		{limiter: mine, key: ownedBy(mine, 1)[0]},
		{limiter: l, key: othersKeys(l, 1)[0]},
	}
	ctx, hops := context.Background(), 0
	b.ReportAllocs()
	for b.Loop() {
		for i := range sides {
			s := &sides[i]
			begun := time.Now()
			for range stretch {
				d, err := s.limiter.Allow(ctx, s.key)
				if d.Source == weir.Forwarded {
					hops++
				}
				if err != nil || !d.Allowed {
					b.Fatalf("%v %v", d, err)
				}
			}
			if len(s.took) < 1<<16 {
				s.took = append(s.took, time.Since(begun))
			}
		}
	}
	owned, leased := median(sides[0].took), median(sides[1].took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(owned)/stretch, "owned-ns")
	b.ReportMetric(float64(leased)/stretch, "leased-ns")
	b.ReportMetric(float64(leased)/float64(owned), "owned-ratio")
	b.ReportMetric(float64(hops)/float64(b.N), "hops/stretch")
}
