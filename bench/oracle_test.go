package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheOracleGrantsWhatTheLimitDoes(t *testing.T) {
	q := quota{10, time.Minute}
	for _, c := range []struct {
		name            string
		algorithm       string
		asked, admitted uint32
		took            time.Duration
		want            verdict
	}{
		{"nothing asked", bucketed, 0, 0, time.Second, verdict{}},
		{"all of what is asked", bucketed, 7, 7, time.Second, verdict{granted: 7}},
		{"all of the limit", bucketed, 100, 10, time.Second, verdict{granted: 10}},
		{"one too many", bucketed, 100, 11, time.Second, verdict{over: 1, granted: 10}},
		{"one too many, just before a unit is back", bucketed, 100, 11, time.Minute - 1, verdict{over: 1, granted: 10}},
		{"a unit that was back", bucketed, 100, 11, time.Minute, verdict{granted: 10}},
		{"one beyond that", bucketed, 100, 12, time.Minute, verdict{over: 1, granted: 10}},
		{"a unit as the window slides", slid, 100, 11, time.Minute, verdict{granted: 10}},
		{"a unit in a window that stands", fixed, 100, 11, time.Minute, verdict{over: 1, granted: 10}},
		{"four instances", bucketed, 100, 40, time.Second, verdict{over: 30, granted: 10}},
		{"one denied below the limit", bucketed, 7, 6, time.Second, verdict{denied: 1, granted: 7}},
		{"one denied of the limit", fixed, 100, 9, time.Second, verdict{denied: 1, granted: 10}},
		{"what may be back and is not given", bucketed, 100, 10, 3 * time.Minute, verdict{granted: 10}},
	} {
		require.Equal(t, c.want, judge([]count{{Asked: c.asked, Admitted: c.admitted}}, c.algorithm, q, c.took), c.name)
	}
}

func TestTheOracleJudgesEachKeyByItself(t *testing.T) {
	counts := []count{{Asked: 20, Admitted: 12}, {Asked: 20, Admitted: 7}, {Asked: 5, Admitted: 5}}
	require.Equal(t, verdict{over: 2, denied: 3, granted: 25}, judge(counts, fixed, quota{10, time.Minute}, time.Second))
}

func TestCountsOfProcessesAreOne(t *testing.T) {
	var all []count
	for range 3 {
		all = addCounts(all, []count{{1, 1, 0}, {4, 2, 3}})
	}
	require.Equal(t, []count{{3, 3, 0}, {12, 6, 9}}, all)
	require.Equal(t, .6, hereOf(all))
	require.Zero(t, hereOf(nil))
}

// A limiter of each algorithm, asked for more than it grants, is what the oracle says it
// may be, and one that grants a unit more is not.
func TestTheOracleAgreesWithLimitersThatAreExact(t *testing.T) {
	q := quota{50, 36 * time.Second}
	for _, r := range rivals() {
		begun := time.Now()
		limiter := r.new(t, q)
		var c count
		for range 120 {
			c.add(limiter.allow("key"))
		}
		algorithm := bucketed // no stricter than the others
		require.Equal(t, verdict{granted: 50}, judge([]count{c}, algorithm, q, time.Since(begun)), r.name)
		c.Admitted++
		require.Equal(t, verdict{over: 1, granted: 50}, judge([]count{c}, algorithm, q, time.Since(begun)), r.name)
	}
}

func TestOutcomesAreCountedByWhatTheyAre(t *testing.T) {
	var c count
	a := newAsker(0, 64)
	for _, o := range []outcome{admitted | here, here, admitted, stray | admitted, failed, here | failed} {
		c.add(o)
		a.note(o)
	}
	require.Equal(t, count{Asked: 6, Admitted: 3, Here: 3}, c)
	require.Equal(t, []int{6, 3, 1, 2}, []int{a.checks, a.here, a.stray, a.failed})
}

// What fails before anything is measured was asked for all the same, and not admitted.
func TestWhatFailsBeforeARunCountsAsFailed(t *testing.T) {
	w := &Worker{keys: []string{"key"}, draws: []string{"key"}, drawn: []uint32{0}, counts: make([]count, 1), callers: []asker{newAsker(0, 64)}}
	w.workload.fill = func(int) int { return 3 }
	asked := 0
	w.instance = &instance{allow: func(string) outcome {
		if asked++; asked <= 2 {
			return failed
		}
		return admitted
	}, close: nothing}
	var filled int
	var tally Tally
	require.NoError(t, w.Fill(time.Minute, &filled))
	require.NoError(t, w.Run(time.Millisecond, &tally))
	require.Equal(t, 2, tally.Failed)
	require.EqualValues(t, tally.Failed, tally.Counts[0].Asked-tally.Counts[0].Admitted)
}

func TestOutcomesAreKeptInOrder(t *testing.T) {
	a := newAsker(0, 64)
	random := rand.New(rand.NewPCG(1, 2))
	var want []outcome
	for range 1000 {
		o := outcome(random.IntN(16))
		want = append(want, o&(admitted|here))
		a.note(o)
	}
	for i := range want {
		require.Equal(t, want[i], a.outcomeOf(i), i)
	}
}

func TestTimesAndSharesAreReadAtAGlance(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ns", 98: "98 ns", 1234: "1.2 µs", 45_600: "46 µs", 1_500_000: "1.5 ms", 234 * time.Millisecond: "234 ms", 12 * time.Second: "12 s",
	} {
		require.Equal(t, want, timeOf(d))
	}
	for share, want := range map[float64]string{0: "0 %", 1: "100 %", .25: "25 %", .00001: "0.01 %", .999999: "99.99 %", .005: "0.50 %"} {
		require.Equal(t, want, percentOf(share))
	}
	for n, want := range map[float64]string{12: "12", 45_678: "46 k", 1_234_567: "1.23 M", 12_345_678: "12.3 M"} {
		require.Equal(t, want, perSecondOf(n))
	}
}
