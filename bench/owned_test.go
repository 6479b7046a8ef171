package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
)

// BenchmarkOwned is a check that its own node decides, with the lookup in a ring
// of ten: the key's hash, the ring, the clock, the table, the counters.
func BenchmarkOwned(b *testing.B) {
	for _, a := range algorithms {
		b.Run("keys=1/algorithm="+a.name, func(b *testing.B) { benchmarkOwned(b, a.name, 1) })
	}
	for _, name := range []string{"token_bucket", "sliding_window"} {
		b.Run(fmt.Sprintf("keys=%d/algorithm=%s", worker.Million, name), func(b *testing.B) { benchmarkOwned(b, name, worker.Million) })
	}
}

func benchmarkOwned(b *testing.B, algorithm string, n int) {
	l, err := newOwner(b, 2*worker.Million).Limiter(limitOf(algorithm))
	require.NoError(b, err)
	benchmarkKeys(b, ownedBy(l, n), func(key string) bool {
		d, err := l.Allow(context.Background(), key)
		return err == nil && d.Allowed
	})
}

// newOwner is startOwner for a test or benchmark.
func newOwner(tb testing.TB, maxKeys int) *weir.Node {
	n, err := startOwner(maxKeys)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, n.Close()) })
	return n
}

// stretch is how many checks are timed together: fewer than a busy machine lets
// a process do at a time.
const stretch = 1000

// benchmarkKeys has each key checked in turn, over and over. Every key has been
// asked for once before the clock starts: in another order, lest what a limiter
// allocated for a key lie beside what it allocated for the next, and by a copy of
// its text, as every request brings its own. Beside the mean it reports the median
// over stretches, which what else the machine does moves less.
func benchmarkKeys(b *testing.B, keys []string, allow func(key string) bool) {
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(keys)) {
		allow(strings.Clone(keys[i]))
	}
	stretches := make([]time.Duration, 0, 1<<14)
	b.ReportAllocs()
	i, n, denied := 0, 0, 0
	begun := time.Now()
	for b.Loop() {
		if !allow(keys[i]) {
			denied++
		}
		if i++; i == len(keys) {
			i = 0
		}
		if n++; n%stretch == 0 && len(stretches) < cap(stretches) {
			now := time.Now()
			stretches = append(stretches, now.Sub(begun))
			begun = now
		}
	}
	if len(stretches) > 0 {
		b.ReportMetric(float64(median(stretches))/stretch, "median-ns")
	}
	if denied > 0 {
		b.Errorf("%d of %d checks were not admitted: the limit is meant to admit all", denied, b.N)
	}
}
