package page

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func counted(process string, of map[weir.Source]weir.Outcomes) Counters {
	return Counters{Process: process, Decisions: of}
}

func TestRatesCoverAllProcesses(t *testing.T) {
	var r rates
	at := time.Unix(1_000_000, 0)
	first := r.update(at, []Counters{counted("a", map[weir.Source]weir.Outcomes{weir.Owner: {Allowed: 1000, Denied: 7}}), counted("b", nil)})
	require.Nil(t, first.checks, "what was counted before anybody looked has no rate")

	m := r.update(at.Add(2*time.Second), []Counters{
		counted("a", map[weir.Source]weir.Outcomes{weir.Owner: {Allowed: 1010, Denied: 9}, weir.StandIn: {Allowed: 4}, weir.Pushback: {Denied: 2}}),
		counted("b", map[weir.Source]weir.Outcomes{weir.Owner: {Allowed: 6}, weir.FailedOpen: {Allowed: 8}, weir.Budget: {Denied: 2}}),
	})
	require.Equal(t, []rate{
		{"authority", "owner", 8, 1}, {"authority", "pushback", 0, 1},
		{"shares", "budget", 0, 1}, {"shares", "failed_open", 4, 0},
		{"stand-in", "stand_in", 2, 0},
	}, m.checks)
	require.Equal(t, map[string][]rate{
		"a": {{"authority", "", 5, 2}, {"stand-in", "", 2, 0}},
		"b": {{"authority", "", 3, 0}, {"shares", "", 4, 1}},
	}, m.processes)
}

func TestRestartedProcessHasPlausibleRates(t *testing.T) {
	var r rates
	at := time.Unix(1_000_000, 0)
	r.update(at, []Counters{counted("a", map[weir.Source]weir.Outcomes{weir.Owner: {Allowed: 1 << 40}})})
	m := r.update(at.Add(time.Second), []Counters{counted("a", map[weir.Source]weir.Outcomes{weir.Owner: {Allowed: 3}})})
	require.Equal(t, []rate{{"authority", "owner", 3, 0}}, m.checks, "counters that are lower began anew")
	m = r.update(at.Add(2*time.Second), nil)
	require.Empty(t, m.checks)
	m = r.update(at.Add(2*time.Second), []Counters{counted("a", nil)})
	require.Empty(t, m.checks, "its counters began anew, and nothing was counted since")
	m = r.update(at.Add(2*time.Second), []Counters{counted("a", map[weir.Source]weir.Outcomes{weir.Owner: {Allowed: 3}})})
	require.Empty(t, m.checks, "no time has passed")
}

func TestProcessHasRatesFromSecondUpdate(t *testing.T) {
	var r rates
	at := time.Unix(1_000_000, 0)
	of := func(process string, n uint64) Counters {
		return counted(process, map[weir.Source]weir.Outcomes{weir.Owner: {Allowed: n}})
	}
	r.update(at, []Counters{of("a", 10)})
	m := r.update(at.Add(time.Second), []Counters{of("a", 20), of("b", 1<<40)})
	require.Equal(t, []rate{{"authority", "owner", 10, 0}}, m.checks, "b may have counted for days")
	require.NotContains(t, m.processes, "b")
	m = r.update(at.Add(2*time.Second), []Counters{of("b", 1<<40+5)})
	require.Equal(t, []rate{{"authority", "owner", 5, 0}}, m.checks)
	m = r.update(at.Add(4*time.Second), []Counters{of("a", 80), of("b", 1<<40+5)})
	require.Equal(t, []rate{{"authority", "owner", 20, 0}}, m.checks, "a was missing: its 60 are those of three seconds")
	r.update(at.Add(4*time.Second+forgetAfter), nil)
	require.Empty(t, r.before, "what is long gone is forgotten")
}

func TestLimitsThatDenyMostComeFirst(t *testing.T) {
	var r rates
	at := time.Unix(1_000_000, 0)
	of := func(allowed, denied, shadow uint64) weir.LimitTotals {
		return weir.LimitTotals{Outcomes: weir.Outcomes{Allowed: allowed, Denied: denied}, Shadow: weir.Outcomes{Denied: shadow}}
	}
	both := func(limits map[string]weir.LimitTotals) []Counters {
		return []Counters{{Process: "a", Limits: limits}, {Process: "b", Limits: limits}}
	}
	r.update(at, both(map[string]weir.LimitTotals{"quiet": of(5, 100, 0), "strict": of(1, 1, 0)}))
	m := r.update(at.Add(2*time.Second), both(map[string]weir.LimitTotals{"quiet": of(15, 100, 0), "strict": of(1, 5, 0), "planned": of(0, 0, 9)}))
	require.Equal(t, []limitRate{
		{Limit: "planned", Shadow: 9, AllShadow: 18},
		{Limit: "strict", Denied: 4, AllDenied: 10},
		{Limit: "quiet", Allowed: 10, AllDenied: 200},
	}, m.limits)
	many := make(map[string]weir.LimitTotals)
	for i := range 100 {
		many[fmt.Sprint(i)] = of(1, uint64(i), 0)
	}
	m = r.update(at.Add(3*time.Second), both(many))
	require.Len(t, m.limits, limitsShown)
	require.Equal(t, "99", m.limits[0].Limit)
}

// measuredAt returns a histogram of n checks that all took the same time.
func measuredAt(n uint64, took time.Duration) (l weir.Latency) {
	l.Count = n
	for _, bound := range weir.LatencyBounds() {
		if took <= bound {
			l.Buckets = append(l.Buckets, n)
		} else {
			l.Buckets = append(l.Buckets, 0)
		}
	}
	return l
}

func TestLatencyCoversLastSeconds(t *testing.T) {
	var r rates
	at, all := time.Unix(1_000_000, 0), weir.Latency{Buckets: make([]uint64, len(weir.LatencyBounds()))}
	look := func(more weir.Latency) []latency {
		all.Count += more.Count
		all.Buckets = slices.Clone(all.Buckets)
		for i, n := range more.Buckets {
			all.Buckets[i] += n
		}
		at = at.Add(time.Second)
		return r.update(at, []Counters{{Process: "a", Latency: map[weir.Source]weir.Latency{weir.Forwarded: all}}}).latency
	}
	both := func(p50, p99 float64) []latency {
		return []latency{{"", "", p50, p99}, {"authority", "forwarded", p50, p99}}
	}
	look(measuredAt(1000, time.Second))
	require.Empty(t, look(measuredAt(0, 0)), "before anybody looked")
	require.Equal(t, both(250, 250), look(measuredAt(98, 200*time.Microsecond)))
	require.Equal(t, both(250, 50_000), look(measuredAt(10, 40*time.Millisecond)))
	require.Equal(t, both(250, -1), look(measuredAt(10, 2*time.Second)), "longer than the last bound")
	for range 10 {
		look(measuredAt(100, 100*time.Microsecond))
	}
	for range 60 {
		look(measuredAt(0, 0))
	}
	require.Equal(t, both(100, 100), look(measuredAt(50, 90*time.Microsecond)))
	for range 80 {
		look(measuredAt(0, 0))
	}
	require.Empty(t, look(measuredAt(0, 0)))
}

func TestTotalLatencyCombinesSources(t *testing.T) {
	var r rates
	r.update(time.Unix(1, 0), []Counters{{Process: "a"}})
	m := r.update(time.Unix(2, 0), []Counters{{Process: "a", Latency: map[weir.Source]weir.Latency{
		weir.Owner: measuredAt(90, 3*time.Microsecond), weir.StandIn: measuredAt(10, 20*time.Millisecond),
	}}})
	require.Equal(t, []latency{{"", "", 5, 25_000}, {"authority", "owner", 5, 5}, {"stand-in", "stand_in", 25_000, 25_000}}, m.latency)
}
