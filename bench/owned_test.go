package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const million = 1_000_000

// BenchmarkOwned is a check that its own node decides, with the lookup in a ring
// of ten: the key's hash, the ring, the clock, the table, the counters.
func BenchmarkOwned(b *testing.B) {
	for _, a := range algorithms {
		b.Run("keys=1/algorithm="+a.name, func(b *testing.B) { benchmarkOwned(b, a.name, 1) })
	}
	for _, name := range []string{"TokenBucket", "SlidingWindow"} {
		b.Run(fmt.Sprintf("keys=%d/algorithm=%s", million, name), func(b *testing.B) { benchmarkOwned(b, name, million) })
	}
}

func benchmarkOwned(b *testing.B, algorithm string, n int) {
	l, err := startOwner(b, 2*million).Limiter(limitOf(algorithm))
	require.NoError(b, err)
	benchmarkKeys(b, ownedBy(l, n), func(key string) bool {
		d, err := l.Allow(context.Background(), key)
		return err == nil && d.Allowed
	})
}

// benchmarkKeys has each key checked in turn, over and over. Every key has been
// asked for once before the clock starts.
func benchmarkKeys(b *testing.B, keys []string, allow func(key string) bool) {
	for _, key := range keys {
		allow(key)
	}
	b.ReportAllocs()
	i, denied := 0, 0
	for b.Loop() {
		if !allow(keys[i]) {
			denied++
		}
		if i++; i == len(keys) {
			i = 0
		}
	}
	if denied > 0 {
		b.Errorf("%d of %d checks were not admitted: the limit is meant to admit all", denied, b.N)
	}
}
