package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bench/internal/worker"
)

func TestTheOracleGrantsWhatTheLimitDoes(t *testing.T) {
	q := worker.Quota{Units: 10, Interval: time.Minute}
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
		require.Equal(t, c.want, judge([]worker.Count{{Asked: c.asked, Admitted: c.admitted}}, c.algorithm, q, c.took), c.name)
	}
}

func TestTheOracleJudgesEachKeyByItself(t *testing.T) {
	counts := []worker.Count{{Asked: 20, Admitted: 12}, {Asked: 20, Admitted: 7}, {Asked: 5, Admitted: 5}}
	require.Equal(t, verdict{over: 2, denied: 3, granted: 25}, judge(counts, fixed, worker.Quota{Units: 10, Interval: time.Minute}, time.Second))
}

func TestCountsOfProcessesAreOne(t *testing.T) {
	var all []worker.Count
	for range 3 {
		all = addCounts(all, []worker.Count{{Asked: 1, Admitted: 1, Here: 0}, {Asked: 4, Admitted: 2, Here: 3}})
	}
	require.Equal(t, []worker.Count{{Asked: 3, Admitted: 3, Here: 0}, {Asked: 12, Admitted: 6, Here: 9}}, all)
	require.Equal(t, .6, hereOf(all))
	require.Zero(t, hereOf(nil))
}

// A limiter of each algorithm, asked for more than it grants, is what the oracle says it
// may be, and one that grants a unit more is not.
func TestTheOracleAgreesWithLimitersThatAreExact(t *testing.T) {
	q := worker.Quota{Units: 50, Interval: 36 * time.Second}
	for _, r := range rivals() {
		begun := time.Now()
		limiter := r.new(t, q)
		var c worker.Count
		for range 120 {
			c.Add(limiter.Allow("key"))
		}
		algorithm := bucketed // no stricter than the others
		require.Equal(t, verdict{granted: 50}, judge([]worker.Count{c}, algorithm, q, time.Since(begun)), r.name)
		c.Admitted++
		require.Equal(t, verdict{over: 1, granted: 50}, judge([]worker.Count{c}, algorithm, q, time.Since(begun)), r.name)
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
