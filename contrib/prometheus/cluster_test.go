package weirprom

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirtest"
)

// TestASplitIsSeenInWhatAlarmsLookAt plays what docs/metrics.md has alarms for.
func TestASplitIsSeenInWhatAlarmsLookAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := weirtest.NewCluster(t.Context(), weirtest.Options{})
		require.NoError(t, err)
		defer c.Close()
		node := c.Node("c")
		r := registry(t, New(node, nil))
		limit, err := node.Limiter(weir.Limit{Name: "limit", Rate: 90, Per: time.Hour})
		require.NoError(t, err)
		ask := func() (shares float64) {
			before := series(t, r)
			for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				_, err := limit.Allow(t.Context(), key)
				require.NoError(t, err)
			}
			after := series(t, r)
			sum := 0.0
			for source := weir.Owner; source.String() != "unknown"; source++ {
				for _, outcome := range []string{"allowed", "denied"} {
					name := "weir_decisions_total{outcome=" + outcome + ",source=" + source.String() + "}"
					sum += after[name] - before[name]
					if source == weir.Budget {
						shares += after[name] - before[name]
					}
				}
			}
			require.EqualValues(t, 8, sum, "each decision has one source")
			return shares
		}

		require.Zero(t, ask())
		before := series(t, r)
		require.EqualValues(t, 3, before["weir_cluster_members{state=serving}"])
		shares := 0.0
		for _, name := range []string{"a", "b", "c"} {
			shares += series(t, registry(t, New(c.Node(name), nil)))["weir_ring_share_ratio"]
		}
		require.InDelta(t, 1, shares, 1e-9)
		require.InDelta(t, 1.0/3, before["weir_ring_share_ratio"], 0.1)
		trips := 0
		for name, value := range before {
			require.False(t, strings.HasPrefix(name, "weir_cluster_unheard_seconds"), "all are heard")
			if strings.HasPrefix(name, "weir_cluster_round_trip_seconds") {
				trips++
				require.Positive(t, value)
			}
		}
		require.Equal(t, 2, trips)
		time.Sleep(time.Second)
		require.Positive(t, series(t, r)["weir_stream_sent_total"])
		require.Positive(t, series(t, r)["weir_store_bytes"])

		c.Cut([]string{"a", "b"}, []string{"c"})
		time.Sleep(time.Minute)
		got := series(t, r)
		require.EqualValues(t, 1, got["weir_cluster_members{state=serving}"])
		require.EqualValues(t, 2, got["weir_cluster_members{state=unheard}"]+got["weir_cluster_members{state=dead}"])
		require.EqualValues(t, 8, ask(), "all within a share")
		for _, m := range node.Members() {
			if since, is := got["weir_cluster_unheard_seconds{member="+m.Name+"}"]; is || !m.Self {
				require.InDelta(t, 60, since, 2, m.Name)
			}
		}
		time.Sleep(time.Second) // they are counted now and then
		require.NotZero(t, series(t, r)["weir_stream_tallies"])

		c.Heal()
		require.NoError(t, c.Await(t.Context(), c.Settled))
		require.Zero(t, ask())
		require.EqualValues(t, 3, series(t, r)["weir_cluster_members{state=serving}"])
	})
}
