package clustertests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

// planet starts three regions with the given number of nodes each, named ap1 to us3 for
// example. A message from one region to another takes 50 ms.
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

// awaitRegions waits until each region knows the units that it holds. By that time, no region can
// still use units that were granted before the start of the regions.
func awaitRegions() { time.Sleep(15 * time.Second) }

// drain takes single units on a node until a check is denied, and returns the number of granted
// units.
func drain(t *testing.T, c *weirtest.Cluster, node string, l weir.Limit, key string) (granted int) {
	t.Helper()
	for allow(t, c, node, l, key).Allowed {
		granted++
	}
	return granted
}

func TestLoneUserSoonHasWholeGlobalLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := planet(t, 3, weir.Config{})
		awaitRegions()
		for _, algorithm := range algorithms {
			l := weir.Limit{Name: algorithm.String(), Algorithm: algorithm, Rate: 5, Per: time.Minute, Scope: weir.Global}
			if next := time.Now().Truncate(time.Minute).Add(time.Minute); time.Until(next) < 20*time.Second {
				time.Sleep(time.Until(next.Add(time.Second))) // so that all checks are in the same window
			}
			for i := range 5 {
				begun := time.Now()
				d := allow(t, c, "eu2", l, "user")
				for !d.Allowed && time.Since(begun) < 2*time.Second {
					time.Sleep(d.RetryAfter)
					d = allow(t, c, "eu2", l, "user")
				}
				require.True(t, d.Allowed, "%v, ask %d", algorithm, i)
				require.LessOrEqual(t, time.Since(begun), 500*time.Millisecond, "%v, ask %d", algorithm, i)
			}
			require.False(t, allow(t, c, "us1", l, "user").Allowed, algorithm)
			require.False(t, allow(t, c, "eu1", l, "user").Allowed, algorithm)
		}
	})
}

func TestRegionStartsWithItsPartOfGlobalLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shares map[string]int64
		begin  map[string]int
	}{
		"as much as the others": {nil, map[string]int{"ap1": 33, "eu1": 33, "us1": 34}},
		"as RegionShares says":  {map[string]int64{"ap": 1, "eu": 7, "us": 2}, map[string]int{"ap1": 10, "eu1": 70, "us1": 20}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := planet(t, 2, weir.Config{RegionShares: c.shares})
				awaitRegions()
				w.Cut([]string{"ap1", "ap2"}, []string{"eu1", "eu2"}, []string{"us1", "us2"})
				l := weir.Limit{Name: "parts", Algorithm: weir.SlidingLog, Rate: 100, Per: time.Hour, Scope: weir.Global}
				for node, part := range c.begin {
					require.Equal(t, part, drain(t, w, node, l, "key"), node)
				}
				w.Heal()
				time.Sleep(time.Minute)
				for node := range c.begin {
					require.Zero(t, drain(t, w, node, l, "key"), "%s: the whole limit is spent", node)
				}
			})
		})
	}
}

func TestNewRegionsGrantGlobalLimitOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := planet(t, 2, weir.Config{})
		time.Sleep(500 * time.Millisecond)
		l := weir.Limit{Name: "new", Algorithm: weir.SlidingLog, Rate: 90, Per: time.Hour, Scope: weir.Global}
		granted := 0
		for range 100 { // for a second, one check in each region every 10 ms
			for _, node := range []string{"ap1", "eu1", "us1"} {
				if allow(t, c, node, l, "user").Allowed {
					granted++
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, 90, granted)
	})
}

func TestDisconnectedRegionHoldsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := planet(t, 1, weir.Config{})
		awaitRegions()
		l := weir.Limit{Name: "alone", Rate: 90, Per: time.Hour, Scope: weir.Global}
		w.Cut([]string{"ap1"}, []string{"eu1", "us1"})
		w.Kill("ap1")
		_, err := w.Start(t.Context(), "ap1")
		require.NoError(t, err)
		time.Sleep(time.Minute)
		d := allow(t, w, "ap1", l, "key")
		require.False(t, d.Allowed, "other regions may have the units of the disconnected region")
		require.Less(t, d.RetryAfter, 10*time.Second)
		w.Heal()
		awaitRegions()
		require.Equal(t, 30, drain(t, w, "ap1", l, "another key"))
	})
}

func TestSuccessorInheritsHoldingOfRegion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := planet(t, 3, weir.Config{})
		awaitRegions()
		l := weir.Limit{Name: "left", Algorithm: weir.TokenBucket, Rate: 300, Per: time.Hour, Scope: weir.Global}
		limiter, err := w.Node("eu1").Limiter(l)
		require.NoError(t, err)
		key := ""
		for i := 0; key == ""; i++ {
			if k := fmt.Sprint(i); !limiter.Owner(k).Self {
				key = k
			}
		}
		granted := 0
		for range 30 { // more units than the part of the region, so that other regions lend some
			for range 9 {
				if allow(t, w, "eu1", l, key).Allowed {
					granted++
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.Greater(t, granted, 200)
		owner := limiter.Owner(key).Name[:3]
		w.Kill(owner)
		time.Sleep(5 * time.Second)
		for range 50 {
			for range 20 {
				for _, node := range []string{"ap1", "eu1", "us1"} {
					if allow(t, w, node, l, key).Allowed {
						granted++
					}
				}
			}
			time.Sleep(200 * time.Millisecond)
		}
		require.LessOrEqual(t, granted, 300+2, "including the units that recovered in some seconds")
		require.GreaterOrEqual(t, granted, 290)
	})
}

func TestAllowAllIncludesGlobalLimits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := planet(t, 2, weir.Config{})
		awaitRegions()
		n := w.Node("us1")
		limiter := func(l weir.Limit) *weir.Limiter {
			l.Per, l.Algorithm = time.Hour, weir.SlidingLog
			made, err := n.Limiter(l)
			require.NoError(t, err)
			return made
		}
		global, few := limiter(weir.Limit{Name: "global", Rate: 30, Scope: weir.Global}), limiter(weir.Limit{Name: "few", Rate: 4})
		for i := range 6 {
			ds, err := n.AllowAll(t.Context(), weir.Ask{Limiter: global, Key: "k"}, weir.Ask{Limiter: few, Key: "k"})
			require.NoError(t, err)
			require.Equal(t, i < 4, ds.Allowed(), "ask %d", i)
			require.EqualValues(t, 30, ds[0].Limit)
		}
		require.EqualValues(t, 26, remaining(t, global, "k"))
	})
}

func TestResetAppliesToAllRegions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := planet(t, 2, weir.Config{})
		awaitRegions()
		l := weir.Limit{Name: "again", Algorithm: weir.SlidingLog, Rate: 30, Per: time.Hour, Scope: weir.Global}
		for _, node := range []string{"ap1", "eu1", "us1"} {
			drain(t, w, node, l, "k")
		}
		time.Sleep(5 * time.Second)
		limiter, err := w.Node("eu2").Limiter(l)
		require.NoError(t, err)
		require.NoError(t, limiter.Reset(t.Context(), "k"))
		time.Sleep(2 * time.Second)
		granted := 0
		for range 20 {
			for _, node := range []string{"ap1", "eu1", "us1"} {
				granted += drain(t, w, node, l, "k")
			}
			time.Sleep(time.Second)
		}
		require.Equal(t, 30, granted)

		w.Cut([]string{"ap1", "ap2"}, []string{"eu1", "eu2", "us1", "us2"})
		time.Sleep(5 * time.Second)
		var partial *weir.ErrPartial
		require.ErrorAs(t, limiter.Reset(t.Context(), "k"), &partial)
		require.Equal(t, []string{"region ap"}, partial.Members)
	})
}

func TestRegionsWithDifferentSharesGrantNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: 10 * time.Millisecond})
		start := func(region, other string, shares map[string]int64) *weir.Node {
			host := network.Host(region)
			network.SetName(region+".example", region)
			regions := map[string][]string{other: {other + ".example:7946"}}
			n, err := startOn(t.Context(), t, host, false, cluster.Config{Region: region, Regions: regions},
				weir.Config{Region: region, Regions: regions, RegionShares: shares})
			require.NoError(t, err)
			return n
		}
		near, far := start("near", "far", nil), start("far", "near", map[string]int64{"near": 9, "far": 1})
		time.Sleep(30 * time.Second)
		for _, n := range []*weir.Node{near, far} {
			limiter, err := n.Limiter(weir.Limit{Name: "disputed", Rate: 100, Per: time.Hour, Scope: weir.Global})
			require.NoError(t, err)
			d := allowed(t, limiter, "k", 1)
			require.False(t, d.Allowed)
			for _, stats := range n.Stats().Regions {
				require.Positive(t, stats.Disputed)
			}
		}
	})
}
