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
		"one unit too many just before it":                 {at(0, 98, 99), occasions{crashed: {lab.Between(100, 200)}}, [guarantees]int64{healthy: 3}},
		"one unit too many just after it":                  {at(201, 202, 203), occasions{crashed: {lab.Between(100, 200)}}, [guarantees]int64{healthy: 3, crashed: 3}},
		"no room for a window between two":                 {at(50, 51, 52, 105), occasions{deployed: {lab.Between(0, 10), lab.Between(100, 110)}}, [guarantees]int64{deployed: 4}},
		"just room for one":                                {at(50, 51, 52), occasions{deployed: {lab.Between(0, 10), lab.Between(111, 120)}}, [guarantees]int64{healthy: 3, deployed: 3}},
		"a crash in a deploy":                              {at(5, 15, 150), occasions{deployed: {lab.Between(0, 200)}, crashed: {lab.Between(10, 10)}}, [guarantees]int64{deployed: 1, crashed: 2}},
		"a freeze without an end":                          {at(0, 150, 160), occasions{timedOut: {lab.Between(120, never)}}, [guarantees]int64{healthy: 1, timedOut: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, most(found(c.admissions, &c.during, 0, 100)))
		})
	}
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
		"one more, when all have seen it":     {[]int64{561}, true},
		"one that was in flight, and another": {[]int64{500, 561}, true},
	} {
		t.Run(name, func(t *testing.T) {
			admissions := at(append(c.inFlight, 200, 201, 202, 203, 204, 205, 206, 207, 208, 560)...)
			f := found(admissions, crash, rtt, per)[crashed]
			require.Equal(t, c.broken, f.Held > f.Most, "%d of %d", f.Held, f.Most)
		})
	}
}
