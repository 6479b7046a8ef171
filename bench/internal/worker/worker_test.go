package worker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOutcomesAreCountedByWhatTheyAre(t *testing.T) {
	var c Counts
	for _, o := range []Outcome{Admitted | Here, Here, Admitted, Stray | Admitted, Failed, Here | Failed} {
		c.add(o)
	}
	require.Equal(t, Counts{Checks: 6, Admitted: 3, Here: 3, Stray: 1, Failed: 2}, c)
	c.Merge(c)
	require.Equal(t, Counts{Checks: 12, Admitted: 6, Here: 6, Stray: 2, Failed: 4}, c)
}

func TestChecksOfFillAndRunAreCountedApart(t *testing.T) {
	w := &Worker{setup: Setup{Part: drawCount, Callers: 1}, workload: Workload{
		Keys: 2, Quota: Quota{4, time.Hour}, draw: func(*rand.Rand) int { return 1 }, fill: func(i int) int { return 3 * i },
	}}
	asked := 0
	w.instance = &Instance{Allow: func(string) Outcome {
		if asked++; asked <= 2 {
			return Failed
		}
		return Admitted
	}}
	var tally Tally
	require.NoError(t, w.Run(time.Millisecond, &tally))
	require.Equal(t, Counts{Checks: asked, Admitted: asked - 2, Failed: 2}, tally.All)
	require.Equal(t, []int64{0, int64(asked)}, w.asked)
	require.Equal(t, []int64{4, 4}, []int64{tally.Least, tally.Most})
	require.Positive(t, tally.Checks)
	require.Less(t, tally.Checks, asked-3, "the warm-up is not measured")
	require.Equal(t, Counts{Checks: tally.Checks, Admitted: tally.Checks}, tally.Counts)
}
