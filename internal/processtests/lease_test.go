package processtests

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// BenchmarkLeased compares a check that a lease admits with a check of a key that the node owns.
func BenchmarkLeased(b *testing.B) {
	nodes := fleet(b, 2, nil)
	ls := limiters(b, nodes, weir.Limit{Name: "test", Rate: 1e11, Per: time.Second})
	ctx := b.Context()
	for i, name := range []string{"owned", "leased"} {
		b.Run(name, func(b *testing.B) {
			key, hops := ownedBy(b, ls[0], nodes[i]), 0
			for range 1000 {
				if _, err := ls[0].Allow(ctx, key); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				d, err := ls[0].Allow(ctx, key)
				if err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
				if d.Source == weir.Forwarded {
					hops++
				}
			}
			b.ReportMetric(float64(hops)/float64(b.N), "hops/op")
		})
	}
}
