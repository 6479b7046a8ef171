package weir

import (
	"testing"
	"time"
)

// BenchmarkAllowAll is a gateway's check: three limits that this node owns.
func BenchmarkAllowAll(b *testing.B) {
	n, err := Start(b.Context(), Config{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	var asks [3]Ask
	for i, l := range []Limit{
		{Name: "per address", Algorithm: TokenBucket, Rate: 1e9, Per: time.Second},
		{Name: "per user", Rate: 1e12, Per: time.Hour},
		{Name: "in all", Algorithm: FixedWindow, Rate: 1e12, Per: time.Hour},
	} {
		limiter, err := n.Limiter(l)
		if err != nil {
			b.Fatal(err)
		}
		asks[i] = Ask{Limiter: limiter, Key: []string{"203.0.113.9", "user 123", ""}[i]}
	}
	ctx := b.Context()
	b.Run("one by one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for i := range asks {
				if d, err := asks[i].Limiter.Allow(ctx, asks[i].Key); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		}
	})
	b.Run("together", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if ds, err := n.AllowAll(ctx, asks[:]...); err != nil || !ds.Allowed() {
				b.Fatal(ds, err)
			}
		}
	})
	b.Run("into", func(b *testing.B) {
		b.ReportAllocs()
		var ds Decisions
		for b.Loop() {
			if ds, err = n.AllowAllInto(ctx, asks[:], ds); err != nil || !ds.Allowed() {
				b.Fatal(ds, err)
			}
		}
	})
}
