package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

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

// forwarded asks a node in this process for keys that the node in another
// process owns.
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
	n := join(tb, start(tb, "owner").addr)
	l, err := n.Limiter(limitOf("TokenBucket"))
	require.NoError(tb, err)
	f := &forwarded{
		limiter: l,
		keys:    keysThat(forwardedKeys, func(key string) bool { return !l.Owner(key).Self }),
		callers: make([]caller, callers),
	}
	for i := range f.callers {
		f.callers[i].next = i * len(f.keys) / callers
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

// patience is the nodes' Timeout: generous, so that a busy machine makes a check
// slow and never makes it local.
const patience = time.Second

func startNode(join ...string) (*weir.Node, error) {
	return weir.Start(context.Background(), weir.Config{
		Name: "bench", Bind: "127.0.0.1:0", Join: join, Timeout: patience, MaxKeys: million, Logger: quiet(),
	})
}

// serveOwner is the second process.
func serveOwner(ready func(string), done <-chan struct{}) error {
	n, err := startNode()
	if err != nil {
		return err
	}
	for _, m := range n.Members() {
		if m.Self {
			ready(m.Addr)
		}
	}
	<-done
	return n.Close()
}

// join starts a node beside the one at addr, and waits until the two serve.
func join(tb testing.TB, addr string) *weir.Node {
	n, err := startNode(addr)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, n.Close()) })
	require.Eventually(tb, func() bool {
		members := n.Members()
		for _, m := range members {
			if m.State != weir.Serving {
				return false
			}
		}
		return len(members) == 2
	}, startWait, 5*time.Millisecond, "the two nodes do not serve: %v", n.Members())
	return n
}
