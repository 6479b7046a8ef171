package weirtest_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// inBubble runs f in virtual time, for a benchmark, which has no *testing.T. What
// reads the benchmark's clock f hands to outside, where time is real.
func inBubble(b *testing.B, f func(t *testing.T, outside func(func()))) {
	calls, returned := make(chan func()), make(chan struct{})
	go func() {
		for call := range calls {
			call()
			returned <- struct{}{}
		}
	}()
	defer close(calls)
	outside := func(call func()) {
		calls <- call
		<-returned
	}
	all := func(_, _ string) (bool, error) { return true, nil }
	test := func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, outside) }) }
	if !testing.RunTests(all, []testing.InternalTest{{Name: b.Name(), F: test}}) {
		b.FailNow()
	}
}

// BenchmarkCluster is how long a second of virtual time takes.
func BenchmarkCluster(b *testing.B) {
	for _, gossip := range []bool{false, true} {
		for _, checks := range []int{0, 1000} {
			b.Run(fmt.Sprintf("gossip=%v/nodes=10/checks=%d", gossip, checks), func(b *testing.B) {
				inBubble(b, func(t *testing.T, outside func(func())) {
					o := weirtest.Options{Gossip: gossip, Link: weirtest.Link{Latency: 200 * time.Microsecond, Jitter: 100 * time.Microsecond}}
					for i := range 10 {
						o.Nodes = append(o.Nodes, fmt.Sprint("node", i))
					}
					o.Config.Logger = slog.New(slog.DiscardHandler)
					c, err := weirtest.NewCluster(t.Context(), o)
					require.NoError(t, err)
					var limiters []*weir.Limiter
					for _, name := range c.Names() {
						l, err := c.Node(name).Limiter(weir.Limit{Name: "checks", Rate: 100, Per: time.Second})
						require.NoError(t, err)
						limiters = append(limiters, l)
					}
					keys := make([]string, 1000)
					for i := range keys {
						keys[i] = fmt.Sprint("key ", i)
					}
					rng := rand.New(rand.NewPCG(1, 1))
					var asked sync.WaitGroup
					outside(b.ResetTimer)
					for range b.N {
						if checks == 0 {
							time.Sleep(time.Second)
						}
						for range checks {
							time.Sleep(time.Second / time.Duration(checks))
							l, key := limiters[rng.IntN(len(limiters))], keys[rng.IntN(len(keys))]
							asked.Go(func() {
								if _, err := l.Allow(t.Context(), key); err != nil {
									t.Error(err)
								}
							})
						}
					}
					asked.Wait()
					outside(b.StopTimer)
					require.NoError(t, c.Close())
				})
			})
		}
	}
}
