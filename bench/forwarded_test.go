package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// forwardedKeys is how many keys the callers share.
const forwardedKeys = 100_000

// BenchmarkForwarded is a check that another process decides, over loopback,
// beside an echo of as many bytes that does nothing else.
func BenchmarkForwarded(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			checks := newForwarded(b, callers)
			echo := dialEcho(b, start(b, "echo").addr, callers)
			medians := race(b, callers, checks.ask, echo.ask)
			forwarded, bare := medians[0], medians[1]
			forwarded.report(b, "", "checks/s")
			bare.report(b, "echo-", "echo/s")
			b.ReportMetric(forwarded.perSecond/bare.perSecond, "echo-ratio")
			b.ReportMetric(float64(forwarded.p50)/float64(bare.p50), "echo-p50-ratio")
			checks.reportStrays(b)
		})
	}
}

// forwarded asks a node in this process for keys that nodes in other processes
// own.
type forwarded struct {
	limiter *weir.Limiter
	keys    []string
	callers []caller
}

// caller fills a cache line.
type caller struct {
	next   int // in keys
	strays int // decisions that the owner did not make
	_      [48]byte
}

func newForwarded(tb testing.TB, callers int) *forwarded {
	l, err := join(tb, 0, newMembers(tb, 1, 0)...).Limiter(limitOf("token_bucket"))
	require.NoError(tb, err)
	return forward(l, othersKeys(l, forwardedKeys), callers)
}

// othersKeys makes n keys that other nodes own.
func othersKeys(l *weir.Limiter, n int) []string {
	return keysThat(n, func(key string) bool { return !l.Owner(key).Self })
}

// forward has the callers go through the keys, each from elsewhere.
func forward(l *weir.Limiter, keys []string, callers int) *forwarded {
	f := &forwarded{limiter: l, keys: keys, callers: make([]caller, callers)}
	for i := range f.callers {
		f.callers[i].next = i * len(keys) / callers
	}
	return f
}

// ask is a contestant.
func (f *forwarded) ask(i int) error {
	c := &f.callers[i]
	d, err := f.limiter.Allow(context.Background(), f.keys[c.next])
	if c.next++; c.next == len(f.keys) {
		c.next = 0
	}
	if d.Source != weir.Forwarded {
		c.strays++
	}
	return err
}

// reportStrays says how many decisions the owner did not make. Where there are
// any, the figures are partly those of the local answer, and worth nothing.
func (f *forwarded) reportStrays(b *testing.B) {
	strays := 0
	for i := range f.callers {
		strays += f.callers[i].strays
	}
	b.ReportMetric(float64(strays), "unforwarded")
	if strays > 0 {
		b.Logf("%d decisions were not the owner's: these figures are void", strays)
	}
}
