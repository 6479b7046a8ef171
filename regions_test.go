package weir_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// planet is three regions of as many nodes each, eu1 to us3, a hundred milliseconds
// apart.
func planet(t *testing.T, each int, config weir.Config) *weirtest.Cluster {
	t.Helper()
	o := weirtest.Options{
		Regions: make(map[string]string), Config: config,
		WAN: weirtest.Link{Latency: 50 * time.Millisecond},
	}
	for _, region := range []string{"ap", "eu", "us"} {
		for i := range each {
			name := fmt.Sprint(region, i+1)
			o.Nodes = append(o.Nodes, name)
			o.Regions[name] = region
		}
	}
	c, err := weirtest.NewCluster(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func allow(t *testing.T, c *weirtest.Cluster, node string, l weir.Limit, key string) weir.Decision {
	t.Helper()
	limiter, err := c.Node(node).Limiter(l)
	require.NoError(t, err)
	d, err := limiter.Allow(context.Background(), key)
	require.NoError(t, err)
	return d
}

func TestALoneUserOfASmallGlobalLimitHasAllOfItWithinHalfASecond(t *testing.T) {
	for _, algorithm := range []weir.Algorithm{weir.SlidingWindow, weir.SlidingLog, weir.FixedWindow, weir.TokenBucket, weir.LeakyBucket} {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := planet(t, 3, weir.Config{})
				time.Sleep(15 * time.Second)
				l := weir.Limit{Name: "small", Algorithm: algorithm, Rate: 5, Per: time.Minute, Scope: weir.Global}
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Second)))
				for i := range 5 {
					begun := time.Now()
					d := allow(t, c, "eu2", l, "user")
					for !d.Allowed && time.Since(begun) < 2*time.Second {
						time.Sleep(d.RetryAfter)
						d = allow(t, c, "eu2", l, "user")
					}
					t.Log(i, time.Since(begun), d)
					require.True(t, d.Allowed, "ask %d", i)
					require.LessOrEqual(t, time.Since(begun), 500*time.Millisecond, "ask %d", i)
				}
				require.False(t, allow(t, c, "us1", l, "user").Allowed)
				require.False(t, allow(t, c, "eu1", l, "user").Allowed)
			})
		})
	}
}
