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
		asked, admitted uint32
		took            time.Duration
		want            verdict
	}{
		{"nothing asked", 0, 0, time.Second, verdict{}},
		{"all of what is asked", 7, 7, time.Second, verdict{granted: 7}},
		{"all of the limit", 100, 10, time.Second, verdict{granted: 10}},
		{"one too many", 100, 11, time.Second, verdict{over: 1, granted: 10}},
		{"one too many, just before a unit is back", 100, 11, time.Minute - 1, verdict{over: 1, granted: 10}},
		{"a unit that was back", 100, 11, time.Minute, verdict{granted: 10}},
		{"one beyond that", 100, 12, time.Minute, verdict{over: 1, granted: 10}},
		{"four instances", 100, 40, time.Second, verdict{over: 30, granted: 10}},
		{"one denied below the limit", 7, 6, time.Second, verdict{denied: 1, granted: 7}},
		{"one denied of the limit", 100, 9, time.Second, verdict{denied: 1, granted: 10}},
		{"what may be back and is not given", 100, 10, 3 * time.Minute, verdict{granted: 10}},
	} {
		require.Equal(t, c.want, judge([]worker.Count{{Asked: c.asked, Admitted: c.admitted}}, q, c.took), c.name)
	}
	counts := []worker.Count{{Asked: 20, Admitted: 12}, {Asked: 20, Admitted: 7}, {Asked: 5, Admitted: 5}}
	require.Equal(t, verdict{over: 2, denied: 3, granted: 25}, judge(counts, q, time.Second), "each key by itself")
}

func TestTimesAndSharesAreReadAtAGlance(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ns", 98: "98 ns", 1234: "1.2 µs", 45_600: "46 µs", 1_500_000: "1.5 ms", 234 * time.Millisecond: "234 ms", 12 * time.Second: "12 s",
	} {
		require.Equal(t, want, formatDuration(d))
	}
	for share, want := range map[float64]string{0: "0 %", 1: "100 %", .25: "25 %", .00001: "0.01 %", .999999: "99.99 %", .005: "0.50 %"} {
		require.Equal(t, want, formatPercent(share))
	}
	for n, want := range map[float64]string{12: "12", 45_678: "46 k", 1_234_567: "1.23 M", 12_345_678: "12.3 M"} {
		require.Equal(t, want, formatRate(n))
	}
}
