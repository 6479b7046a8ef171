package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
)

// at is admissions at exactly known moments.
func at(moments ...int64) []span {
	var as []span
	for _, m := range moments {
		as = append(as, lab.Between(m, m))
	}
	return as
}

// found is what is found in the windows of one key.
func found(admissions []span, during *occasions, rtt, per time.Duration) (all fullest) {
	all.add(admissions, during, rtt, 10, per)
	return all
}

func most(found fullest) [guarantees]int64 {
	var m [guarantees]int64
	for g, f := range found {
		m[g] = f.Held
	}
	return m
}

func TestAWindowIsJudgedByTheLastGuaranteeThatItHoldsAMomentOf(t *testing.T) {
	for name, c := range map[string]struct {
		admissions []span
		during     occasions
		want       [guarantees]int64
	}{
		"what a crash admitted is not held against health": {at(0, 10, 20), occasions{crashed: {lab.Between(5, 15)}}, [guarantees]int64{healthy: 1, crashed: 3}},
		"one unit too many just before it":                 {at(0, 98, 99), occasions{crashed: {lab.Between(100, 200)}}, [guarantees]int64{healthy: 3, crashed: 2}},
		"one unit too many just after it":                  {at(201, 202, 203), occasions{crashed: {lab.Between(100, 200)}}, [guarantees]int64{healthy: 3, crashed: 3}},
		"no room for a window between two":                 {at(50, 51, 52), occasions{deployed: {lab.Between(0, 10), lab.Between(100, 110)}}, [guarantees]int64{deployed: 3}},
		"just room for one":                                {at(50, 51, 52), occasions{deployed: {lab.Between(0, 10), lab.Between(111, 120)}}, [guarantees]int64{healthy: 3, deployed: 3}},
		"a crash in a deploy":                              {at(5, 15, 150), occasions{deployed: {lab.Between(0, 200)}, crashed: {lab.Between(10, 10)}}, [guarantees]int64{deployed: 1, crashed: 2}},
		"a freeze without an end":                          {at(0, 150, 160), occasions{timedOut: {lab.Between(120, never)}}, [guarantees]int64{healthy: 1, timedOut: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, most(found(c.admissions, &c.during, 0, 100)))
		})
	}
}

// A limiter that forgets its counts when a node restarts hands out up to its
// limit once more, and one that counts on each of three nodes admits three
// times as much.
func TestALimiterThatOverAdmitsIsCaught(t *testing.T) {
	const limit, per = 10, time.Second
	var admissions []span
	admit := func(ms int64, units int) {
		for range units {
			admissions = append(admissions, lab.Between(ms*1e6, ms*1e6+5e4))
		}
	}
	calm := &occasions{}
	admit(0, limit)
	admit(1001, limit)
	require.EqualValues(t, limit, found(admissions, calm, 0, per)[healthy].Held)
	admit(1500, 1)
	require.EqualValues(t, limit+1, found(admissions, calm, 0, per)[healthy].Held, "one unit too many")
	admit(2600, 3*limit)
	require.EqualValues(t, 3*limit, found(admissions, calm, 0, per)[healthy].Held)
	restart := &occasions{deployed: {lab.Between(2500e6, 3500e6)}}
	require.EqualValues(t, limit+1, found(admissions, restart, 0, per)[healthy].Held)
	require.EqualValues(t, 3*limit, found(admissions, restart, 0, per)[deployed].Held, "a restart excuses nothing")
}

// A crash excuses what was granted within a round trip of it, and nothing else.
func TestACrashExcusesWhatWasInFlight(t *testing.T) {
	const limit, per, rtt = 10, 1000, 5
	crash := &occasions{crashed: {lab.Between(500, 600)}}
	for name, c := range map[string]struct {
		inFlight []int64
		broken   bool
	}{
		"as many as the limit":                {nil, false},
		"one more, long before the crash":     {[]int64{494}, true},
		"one more, a round trip before it":    {[]int64{495}, false},
		"one more, at the crash":              {[]int64{500}, false},
		"one more, a round trip after it":     {[]int64{505}, false},
		"one more, when all have seen it":     {[]int64{560}, true},
		"one that was in flight, and another": {[]int64{500, 560}, true},
	} {
		t.Run(name, func(t *testing.T) {
			admissions := at(append(c.inFlight, 200, 201, 202, 203, 204, 205, 206, 207, 208, 209)...)
			f := found(admissions, crash, rtt, per)[crashed]
			require.Equal(t, c.broken, f.Held > f.Most, "%d of %d", f.Held, f.Most)
		})
	}
}
