package main

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// The memory that a region needs while another region is cut off must not grow with the
// length of the cut, although the region receives checks for other keys all the time.
func TestLongRegionCutNeedsNoMoreMemory(t *testing.T) {
	const asksEvery = 500 * time.Millisecond
	late := time.Duration(testenv.PickFull(t, 20, 60)) * time.Minute
	early := late / 10
	var heap [2]uint64
	synctest.Test(t, func(t *testing.T) {
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{
			Nodes: []string{"a", "b"}, Regions: map[string]string{"a": "eu", "b": "us"}, Config: weir.Config{MaxKeys: 10_000},
		})
		require.NoError(t, err)
		defer c.Close()
		time.Sleep(acquaintedIn)
		var limiters []*weir.Limiter
		for _, name := range []string{"a", "b"} {
			for _, l := range []weir.Limit{
				{Name: "login", Algorithm: weir.FixedWindow, Rate: 5, Per: time.Minute, Scope: weir.Global},
				{Name: "calls", Algorithm: weir.TokenBucket, Rate: 100, Per: time.Second, Scope: weir.Global},
			} {
				limiter, err := c.Node(name).Limiter(l)
				require.NoError(t, err)
				limiters = append(limiters, limiter)
			}
		}
		c.Cut([]string{"a"}, []string{"b"})
		begun, asks := time.Now(), 0
		ask := func(until time.Duration) {
			for ; time.Since(begun) < until; time.Sleep(asksEvery) {
				asks++
				for _, l := range limiters {
					for range 4 {
						_, err := l.Allow(context.Background(), fmt.Sprint("key ", asks))
						require.NoError(t, err)
					}
				}
			}
		}
		for i, until := range []time.Duration{early, late} {
			ask(until)
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			heap[i] = m.HeapAlloc
		}
	})
	t.Logf("%d KiB after %v, %d KiB after %v", heap[0]>>10, early, heap[1]>>10, late)
	// 50 bytes for each count that was checked between early and late would exceed a third.
	require.Less(t, heap[1], heap[0]+heap[0]/3)
}
