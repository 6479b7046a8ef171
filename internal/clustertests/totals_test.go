package clustertests

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestTotalsHasEveryMemberAndNamesMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, false)
		defer w.close(t)
		limiters := w.limiters(t, weir.Limit{Name: "test", Rate: 5, Per: time.Hour, NoLeases: true})
		named := make(map[string]string) // members by host
		for _, host := range w.names {
			for _, m := range w.nodes[host].Members() {
				if m.Self {
					named[host] = m.Name
				}
			}
		}
		for i, host := range w.names {
			for range i + 1 {
				allowed(t, limiters[host], "key", 1)
			}
			_, err := w.nodes[host].AllowAll(t.Context(), weir.Ask{Limiter: limiters[host], Key: "key", Units: 6 - int64(i), Shadow: true})
			require.NoError(t, err)
		}
		totals, err := w.nodes["a"].Totals(t.Context())
		require.NoError(t, err)
		require.Empty(t, totals.Missing)
		require.Len(t, totals.Members, 3)
		var all, shadows weir.Outcomes
		for _, of := range totals.Members {
			all.Allowed, all.Denied = all.Allowed+of.Limits["test"].Allowed, all.Denied+of.Limits["test"].Denied
			shadows.Allowed, shadows.Denied = shadows.Allowed+of.Limits["test"].Shadow.Allowed, shadows.Denied+of.Limits["test"].Shadow.Denied
			sum := uint64(0)
			for _, o := range of.Decisions {
				sum += o.Allowed + o.Denied
			}
			require.Equal(t, sum, of.Limits["test"].Allowed+of.Limits["test"].Denied, "shadows are apart")
		}
		require.EqualValues(t, 6, all.Allowed+all.Denied)
		require.EqualValues(t, 3, shadows.Allowed+shadows.Denied)
		require.Positive(t, shadows.Denied)

		w.network.Host("c").Freeze()
		began := time.Now()
		totals, err = w.nodes["a"].Totals(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{named["c"]}, totals.Missing)
		require.Len(t, totals.Members, 2)
		require.LessOrEqual(t, time.Since(began), time.Second)
		w.network.Host("c").Thaw()
	})
}
