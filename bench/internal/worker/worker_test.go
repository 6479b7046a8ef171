package worker

import (
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
	w := &Worker{keys: []string{"key"}, draws: []string{"key"}, callers: make([]asker, 1)}
	w.workload.fill = func(int) int { return 3 }
	asked := 0
	w.instance = &Instance{Allow: func(string) Outcome {
		if asked++; asked <= 2 {
			return Failed
		}
		return Admitted
	}}
	var filled Counts
	var tally Tally
	require.NoError(t, w.Fill(time.Minute, &filled))
	require.Equal(t, Counts{Checks: 3, Admitted: 1, Failed: 2}, filled)
	require.NoError(t, w.Run(time.Millisecond, &tally))
	require.Positive(t, tally.Checks)
	require.Less(t, tally.Checks, asked-3, "the warm-up is not measured")
	require.Equal(t, Counts{Checks: tally.Checks, Admitted: tally.Checks}, tally.Counts)
}
