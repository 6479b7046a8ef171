package worker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOutcomesAreCountedByKind(t *testing.T) {
	var c Counts
	for _, o := range []Outcome{Admitted | Here, Here, Admitted, Stray | Admitted, Failed, Here | Failed} {
		c.add(o)
	}
	require.Equal(t, Counts{Checks: 6, Admitted: 3, Here: 3, Stray: 1, Failed: 2}, c)
	c.Merge(c)
	require.Equal(t, Counts{Checks: 12, Admitted: 6, Here: 6, Stray: 2, Failed: 4}, c)
}

func TestMeasuredChecksExcludeFillAndWarmUp(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		releases bool
	}{{time.Hour, false}, {1, false}, {time.Hour, true}} {
		w := &Worker{setup: Setup{Part: drawCount / 64, Callers: 1}, workload: Workload{
			Keys: 3, Quota: Quota{4, c.interval}, draw: func(r *rand.Rand) int { return r.IntN(2) + 1 }, fill: func(i int) int { return 3 * i },
		}}
		asked, all := make(map[string]int64), 0
		w.instance = &Instance{Releases: c.releases, Allow: func(key string) Outcome {
			asked[key]++
			if all++; all <= 2 {
				return Failed
			}
			return Admitted
		}}
		var tally Tally
		require.NoError(t, w.Run(time.Millisecond, &tally))
		require.Equal(t, Counts{Checks: all, Admitted: all - 2, Failed: 2}, tally.All)
		for i, n := range w.asked {
			require.Equal(t, asked[string(AppendKey(nil, i))], n, "key %d", i)
		}
		least, most := int64(8), int64(8)
		if c.releases {
			least = int64(all)
		}
		if c.releases || c.interval == 1 {
			most = int64(all) // all checked units are regained
		}
		require.Equal(t, []int64{least, most}, []int64{tally.Least, tally.Most})
		require.Positive(t, tally.Checks)
		require.Less(t, tally.Checks, all-9, "the warm-up is not measured")
		require.Equal(t, Counts{Checks: tally.Checks, Admitted: tally.Checks}, tally.Counts)
	}
}
