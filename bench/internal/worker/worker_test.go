package worker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOutcomesAreCountedByWhatTheyAre(t *testing.T) {
	var c Count
	a := newAsker(0, 64)
	for _, o := range []Outcome{Admitted | Here, Here, Admitted, Stray | Admitted, Failed, Here | Failed} {
		c.Add(o)
		a.add(o)
	}
	require.Equal(t, Count{Asked: 6, Admitted: 3}, c)
	require.Equal(t, []int{6, 3, 1, 2}, []int{a.checks, a.here, a.stray, a.failed})
}

// What fails before anything is measured was asked for all the same, and not admitted.
func TestWhatFailsBeforeARunCountsAsFailed(t *testing.T) {
	w := &Worker{keys: []string{"key"}, draws: []string{"key"}, drawn: []uint32{0}, counts: make([]Count, 1), callers: []asker{newAsker(0, 64)}}
	w.workload.fill = func(int) int { return 3 }
	asked := 0
	w.instance = &Instance{Allow: func(string) Outcome {
		if asked++; asked <= 2 {
			return Failed
		}
		return Admitted
	}, Close: func() error { return nil }}
	var tally Tally
	require.NoError(t, w.Fill(time.Minute, nil))
	require.NoError(t, w.Run(time.Millisecond, &tally))
	require.Equal(t, 2, tally.Failed)
	require.EqualValues(t, tally.Failed, tally.Counts[0].Asked-tally.Counts[0].Admitted)
}

func TestOutcomesAreKeptInOrder(t *testing.T) {
	a := newAsker(0, 64)
	random := rand.New(rand.NewPCG(1, 2))
	var want []Outcome
	for range 1000 {
		o := Outcome(random.IntN(16))
		want = append(want, o&Admitted)
		a.add(o)
	}
	for i := range want {
		require.Equal(t, want[i], a.outcomeOf(i), i)
	}
}
