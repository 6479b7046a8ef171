package weirtest_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

// settlers are nodes of two regions that know each other by name: "oslo1", ...
// and "rome1", ...
func settlers(t *testing.T, n *weirtest.Network, perRegion int) *fleet {
	f := newFleet(t, n)
	regions := []string{"oslo", "rome"}
	for i, region := range regions {
		var hosts []string
		for j := range perRegion {
			hosts = append(hosts, fmt.Sprint(region, j+1))
		}
		n.SetName(region+".test", hosts...)
		for _, h := range hosts {
			f.settle(h, region, regions[1-i])
		}
	}
	return f
}

func (f *fleet) settle(host, region, other string) {
	f.start(host, f.n.Host(host).Cluster(cluster.Config{
		Region: region, Regions: map[string][]string{other: {other + ".test:7946"}},
	}))
}

// asksAbroad asks from a host and says how that ends.
func (f *fleet) asksAbroad(from, region string, wait time.Duration) error {
	_, err := f.clusters[from].Region(region).Ask(f.t.Context(), []byte("hello"), nil, wait)
	return err
}

// reachesAbroad asks from a host until it is answered, and says how long it took.
func (f *fleet) reachesAbroad(from, region string, within time.Duration) time.Duration {
	f.t.Helper()
	begun := time.Now()
	for f.asksAbroad(from, region, second) != nil {
		require.Less(f.t, time.Since(begun), within, "%s does not reach %s", from, region)
		time.Sleep(10 * milli)
	}
	return time.Since(begun)
}

func TestSimulatedRegions(t *testing.T) {
	for promise, check := range map[string]func(t *testing.T, n *weirtest.Network){
		"a cut between regions holds asks, and a heal ends it": func(t *testing.T, n *weirtest.Network) {
			f := settlers(t, n, 2)
			defer f.close()
			f.reachesAbroad("oslo1", "rome", second)
			n.Split([]string{"oslo1", "oslo2"}, []string{"rome1", "rome2"})
			require.ErrorIs(t, f.asksAbroad("oslo1", "rome", second), cluster.ErrTimeout)
			time.Sleep(4 * second)
			require.ErrorIs(t, f.asksAbroad("oslo1", "rome", second), cluster.ErrUnheard)
			time.Sleep(time.Hour)
			require.ErrorIs(t, f.asksAbroad("oslo1", "rome", second), cluster.ErrUnheard)
			require.Equal(t, "oslo1-1 serving, oslo2-1 serving", f.roster("oslo1"), "the region is whole")
			n.Heal()
			t.Log("reached after", f.reachesAbroad("oslo1", "rome", 14*second))
		},
		"a cut in one direction is a cut for who asks, and other pairs are not cut": func(t *testing.T, n *weirtest.Network) {
			f := settlers(t, n, 1)
			defer f.close()
			f.settle("oslo2", "oslo", "rome")
			for _, h := range []string{"oslo1", "oslo2"} {
				f.reachesAbroad(h, "rome", second)
			}
			n.Cut("rome1", "oslo1")
			time.Sleep(5 * second)
			require.ErrorIs(t, f.asksAbroad("oslo1", "rome", second), cluster.ErrUnheard)
			require.NoError(t, f.asksAbroad("oslo2", "rome", second))
			n.Heal()
			f.reachesAbroad("oslo1", "rome", 14*second)
		},
		"a node that starts again is reached again": func(t *testing.T, n *weirtest.Network) {
			f := settlers(t, n, 1)
			defer f.close()
			f.reachesAbroad("oslo1", "rome", second)
			for range 3 {
				n.Host("rome1").Kill()
				time.Sleep(second)
				require.ErrorIs(t, f.asksAbroad("oslo1", "rome", second), cluster.ErrUnheard)
				f.settle("rome1", "rome", "oslo")
				f.reachesAbroad("oslo1", "rome", 3*second)
			}
		},
		"an address of this node's own region is the wrong one": func(t *testing.T, n *weirtest.Network) {
			n.SetName("rome.test", "oslo1", "oslo2")
			f := newFleet(t, n)
			defer f.close()
			for _, h := range []string{"oslo1", "oslo2"} {
				f.settle(h, "oslo", "rome")
			}
			time.Sleep(10 * second)
			require.ErrorIs(t, f.asksAbroad("oslo1", "rome", second), cluster.ErrUnheard)
			require.NotZero(t, f.clusters["oslo1"].Stats().Refused["region"]+f.clusters["oslo2"].Stats().Refused["region"])
			require.Equal(t, "oslo1-1 serving, oslo2-1 serving", f.roster("oslo1"))
			_, err := f.ask("oslo1", "oslo2", second)
			require.NoError(t, err)
		},
		"both sides say why they do not meet, and not in a flood": func(t *testing.T, n *weirtest.Network) {
			var here, there bytes.Buffer // written from one goroutine each
			n.SetName("rome.test", "paris1")
			f := newFleet(t, n)
			f.start("oslo1", n.Host("oslo1").Cluster(cluster.Config{
				Region: "oslo", Regions: map[string][]string{"rome": {"rome.test:7946"}}, Logger: slog.New(slog.NewTextHandler(&here, nil)),
			}))
			f.start("paris1", n.Host("paris1").Cluster(cluster.Config{Region: "paris", Logger: slog.New(slog.NewTextHandler(&there, nil))}))
			time.Sleep(9 * second)
			f.close()
			for _, log := range []string{here.String(), there.String()} {
				require.Equal(t, 1, strings.Count(log, "level=WARN"), log)
			}
			require.Contains(t, there.String(), `found one of \"paris\"`)
			require.Contains(t, there.String(), "reason=region")
			require.Contains(t, here.String(), "cannot reach another region")
		},
		"above its bound a queue to another region is full": func(t *testing.T, n *weirtest.Network) {
			f := settlers(t, n, 1)
			defer f.close()
			f.reachesAbroad("oslo1", "rome", second)
			n.Host("rome1").Freeze()
			for range 1<<14 + 1 {
				f.clusters["oslo1"].Region("rome").Tell([]byte("news"))
			}
			require.ErrorIs(t, f.asksAbroad("oslo1", "rome", second), cluster.ErrBusy)
			require.EqualValues(t, 1, f.clusters["oslo1"].Stats().Dropped)
			time.Sleep(5 * second)
			require.ErrorIs(t, f.asksAbroad("oslo1", "rome", second), cluster.ErrUnheard)
			n.Host("rome1").Thaw()
			f.reachesAbroad("oslo1", "rome", 14*second)
		},
	} {
		t.Run(promise, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				check(t, weirtest.NewNetwork(1, weirtest.Link{Latency: 100 * milli, Jitter: 50 * milli}))
			})
		})
	}
}

func TestAClustersRegionsReachEachOtherOverItsWAN(t *testing.T) {
	bothWays(t, func(t *testing.T, o weirtest.Options) {
		o.Nodes = []string{"oslo1", "oslo2", "rome1", "x"}
		o.Regions = map[string]string{"oslo1": "oslo", "oslo2": "oslo", "rome1": "rome", "rome2": "rome"}
		o.WAN = weirtest.Link{Latency: 60 * milli, Jitter: 10 * milli}
		var rome2 bool
		c := newCluster(t, o)
		reaches := func(from string, hosts ...string) bool {
			for _, to := range hosts {
				if weirtest.Asks(c, from, to) {
					return true
				}
			}
			return false
		}
		await := func(what func() bool) time.Duration {
			t.Helper()
			begun := time.Now()
			require.NoError(t, c.Await(t.Context(), func() bool {
				require.Less(t, time.Since(begun), 20*second)
				return what()
			}))
			return time.Since(begun)
		}
		whole := func() bool {
			romans := []string{"rome1"}
			if rome2 {
				romans = []string{"rome2"}
			}
			return reaches("oslo1", romans...) && reaches("oslo2", romans...) && reaches(romans[0], "oslo1", "oslo2")
		}
		await(whole)
		for _, h := range []string{"oslo1", "oslo2", "rome1"} {
			require.False(t, reaches(h, "x") || reaches("x", h), "x has no region")
		}
		require.False(t, reaches("oslo1", "oslo2"), "they are members")
		_, err := c.Start(t.Context(), "rome2")
		require.NoError(t, err)
		rome2 = true
		c.Kill("rome1")
		t.Log("who was asked died, and another was asked after", await(whole))
		c.Cut([]string{"oslo1", "oslo2"}, []string{"rome2"})
		time.Sleep(5 * second)
		require.False(t, reaches("oslo1", "rome2") || reaches("rome2", "oslo1", "oslo2"))
		require.NoError(t, c.Await(t.Context(), c.Settled), "to the regions themselves nothing happened")
		c.Heal()
		t.Log("reached after a heal and", await(whole))
		require.Len(t, c.Node("oslo1").Members(), 2)
		for _, reason := range []string{"region", "seed", "garbage"} {
			require.NotContains(t, c.Node("rome2").Stats().Cluster.Refused, reason)
		}
	})
}
