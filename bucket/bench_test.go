package bucket

import (
	"fmt"
	"testing"
	"time"
)

var algorithms = []Algorithm{SlidingWindow, SlidingLog, FixedWindow, TokenBucket, LeakyBucket}

// BenchmarkTake is one count without its lock and its clock: asked once in 10 µs
// of a limit that admits half of it.
func BenchmarkTake(b *testing.B) {
	for _, a := range algorithms {
		b.Run(fmt.Sprint(a), func(b *testing.B) {
			l := &Limit{Algorithm: a, Rate: 50_000, Per: time.Second}
			var c cell
			var g *log
			if a == SlidingLog {
				g = new(log)
			}
			now := int64(1_800_000_000_000_000_000)
			b.ReportAllocs()
			for b.Loop() {
				now += 10_000
				l.take(&c, g, now, 1)
			}
		})
	}
}
