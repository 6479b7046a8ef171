package weirtest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/testenv"
	"github.com/weir-go/weir/weirtest"
)

// newRegions starts nodes of two regions that know each other by name: "oslo1", ... and
// "rome1", ...
func newRegions(t *testing.T, n *weirtest.Network, perRegion int) *fleet {
	f := newFleet(t, n)
	regions := []string{"oslo", "rome"}
	for i, region := range regions {
		var hosts []string
		for j := range perRegion {
			hosts = append(hosts, fmt.Sprint(region, j+1))
		}
		n.SetName(region+".test", hosts...)
		for _, h := range hosts {
			f.startIn(h, region, regions[1-i])
		}
	}
	return f
}

func (f *fleet) startIn(host, region, other string) {
	f.start(host, f.n.Host(host).Cluster(cluster.Config{
		Region: region, Regions: map[string][]string{other: {other + ".test:7946"}},
	}))
}

// askAbroad sends a request from a host to another region, and returns its error.
func (f *fleet) askAbroad(from, region string, wait time.Duration) error {
	_, err := f.clusters[from].Region(region).Ask(f.t.Context(), []byte("hello"), nil, wait)
	return err
}

// awaitReach sends requests from a host until an answer comes, and returns how long
// that took.
func (f *fleet) awaitReach(from, region string, within time.Duration) time.Duration {
	f.t.Helper()
	return f.await(within, func() string {
		if err := f.askAbroad(from, region, second); err != nil {
			return fmt.Sprintf("%s does not reach %s: %v", from, region, err)
		}
		return ""
	})
}

func TestSimulatedRegionsKeepTheirPromises(t *testing.T) {
	for promise, check := range map[string]func(t *testing.T, n *weirtest.Network){
		"a cut between regions holds asks, and a heal ends it": func(t *testing.T, n *weirtest.Network) {
			f := newRegions(t, n, 2)
			f.awaitReach("oslo1", "rome", second)
			n.Split([]string{"oslo1", "oslo2"}, []string{"rome1", "rome2"})
			require.ErrorIs(t, f.askAbroad("oslo1", "rome", second), cluster.ErrTimeout)
			time.Sleep(4 * second)
			require.ErrorIs(t, f.askAbroad("oslo1", "rome", second), cluster.ErrDisconnected)
			time.Sleep(time.Duration(testenv.PickFull(t, 5, 60)) * time.Minute)
			require.ErrorIs(t, f.askAbroad("oslo1", "rome", second), cluster.ErrDisconnected)
			require.Equal(t, "oslo1-1 serving, oslo2-1 serving", f.roster("oslo1"), "the region is whole")
			n.Heal()
			t.Log("reached after", f.awaitReach("oslo1", "rome", 14*second))
		},
		"a cut in one direction cuts the asking node, and no other pair": func(t *testing.T, n *weirtest.Network) {
			f := newRegions(t, n, 1)
			f.startIn("oslo2", "oslo", "rome")
			for _, h := range []string{"oslo1", "oslo2"} {
				f.awaitReach(h, "rome", second)
			}
			n.Cut("rome1", "oslo1")
			time.Sleep(5 * second)
			require.ErrorIs(t, f.askAbroad("oslo1", "rome", second), cluster.ErrDisconnected)
			require.NoError(t, f.askAbroad("oslo2", "rome", second))
			n.Heal()
			f.awaitReach("oslo1", "rome", 14*second)
		},
		"a node that starts again is reached again": func(t *testing.T, n *weirtest.Network) {
			f := newRegions(t, n, 1)
			f.awaitReach("oslo1", "rome", second)
			for range 3 {
				n.Host("rome1").Kill()
				time.Sleep(second)
				require.ErrorIs(t, f.askAbroad("oslo1", "rome", second), cluster.ErrDisconnected)
				f.startIn("rome1", "rome", "oslo")
				f.awaitReach("oslo1", "rome", 3*second)
			}
		},
		"above its bound a queue to another region is full": func(t *testing.T, n *weirtest.Network) {
			f := newRegions(t, n, 1)
			f.awaitReach("oslo1", "rome", second)
			n.Host("rome1").Freeze()
			for range 1<<14 + 1 {
				f.clusters["oslo1"].Region("rome").Send([]byte("news"))
			}
			require.ErrorIs(t, f.askAbroad("oslo1", "rome", second), cluster.ErrBusy)
			require.EqualValues(t, 1, f.clusters["oslo1"].Stats().Dropped)
			time.Sleep(5 * second)
			require.ErrorIs(t, f.askAbroad("oslo1", "rome", second), cluster.ErrDisconnected)
			n.Host("rome1").Thaw()
			f.awaitReach("oslo1", "rome", 14*second)
		},
	} {
		t.Run(promise, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				check(t, weirtest.NewNetwork(1, weirtest.Link{Latency: 100 * milli, Jitter: 50 * milli}))
			})
		})
	}
}
