package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/weir-go/weir/internal/drawn"
)

// at is admissions at exactly known moments.
func at(moments ...int64) []admission {
	var as []admission
	for _, m := range moments {
		as = append(as, admission{m, m})
	}
	return as
}

// found is what is found in the windows of one key.
func found(admissions []admission, during *occasions, rtt, per time.Duration) (all fullest) {
	all.add(admissions, during, rtt, per)
	return all
}

func most(found fullest) [guarantees]int {
	var m [guarantees]int
	for g, f := range found {
		m[g] = f.most
	}
	return m
}

func TestTheFullestWindow(t *testing.T) {
	for name, c := range map[string]struct {
		admissions []admission
		want       int
	}{
		"nothing was admitted":                         {nil, 0},
		"a window is half-open":                        {at(0, 100), 1},
		"and holds what is nearer":                     {at(0, 99), 2},
		"any window counts, not just those of a grid":  {at(0, 90, 95, 140, 150, 190), 4},
		"the order does not matter":                    {at(190, 95, 0, 150, 90, 140), 4},
		"one moment can hold many":                     {at(7, 7, 7), 3},
		"what may lie outside proves nothing":          {[]admission{{0, 0}, {50, 120}, {60, 70}}, 2},
		"what lies inside for certain does":            {[]admission{{10, 20}, {50, 109}, {60, 70}}, 3},
		"an admission across a freeze is in no window": {[]admission{{0, 500}, {10, 11}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, [guarantees]int{healthy: c.want}, most(found(c.admissions, &occasions{}, 0, 100)))
		})
	}
}

func TestAWindowIsJudgedByTheLastGuaranteeThatItHoldsAMomentOf(t *testing.T) {
	for name, c := range map[string]struct {
		admissions []admission
		during     occasions
		want       [guarantees]int
	}{
		"what a crash admitted is not held against health": {at(0, 10, 20), occasions{crashed: {{5, 15}}}, [guarantees]int{healthy: 1, crashed: 3}},
		"one unit too many just before it":                 {at(0, 98, 99), occasions{crashed: {{100, 200}}}, [guarantees]int{healthy: 3, crashed: 2}},
		"one unit too many just after it":                  {at(201, 202, 203), occasions{crashed: {{100, 200}}}, [guarantees]int{healthy: 3, crashed: 3}},
		"no room for a window between two":                 {at(50, 51, 52), occasions{deployed: {{0, 10}, {100, 110}}}, [guarantees]int{deployed: 3}},
		"just room for one":                                {at(50, 51, 52), occasions{deployed: {{0, 10}, {111, 120}}}, [guarantees]int{healthy: 3, deployed: 3}},
		"a crash in a deploy":                              {at(5, 15, 150), occasions{deployed: {{0, 200}}, crashed: {{10, 10}}}, [guarantees]int{deployed: 1, crashed: 2}},
		"a freeze without an end":                          {at(0, 150, 160), occasions{timedOut: {{120, never}}}, [guarantees]int{healthy: 1, timedOut: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, most(found(c.admissions, &c.during, 0, 100)))
		})
	}
}

// The oracle tries every window there is.
func TestTheFullestWindowIsTheOneThatTryingEveryWindowFinds(t *testing.T) {
	const per, last = 10, 60
	rapid.Check(t, func(t *rapid.T) {
		moment := rapid.Int64Range(0, last)
		pair := func(longest int64) *rapid.Generator[span] {
			return rapid.Custom(func(t *rapid.T) span {
				from := moment.Draw(t, "from")
				return span{from, from + rapid.Int64Range(0, longest).Draw(t, "for")}
			})
		}
		var admissions []admission
		for _, s := range rapid.SliceOfN(pair(12), 0, 40).Draw(t, "admissions") {
			admissions = append(admissions, admission(s))
		}
		var during occasions
		for g := healthy + 1; g < guarantees; g++ {
			during[g] = rapid.SliceOfN(pair(8), 0, 3).Draw(t, g.String())
		}

		rtt := rapid.Int64Range(0, 3).Draw(t, "round trip")
		crash := func(a admission) bool { // it was in flight at one
			return slices.ContainsFunc(during[crashed], func(c span) bool { return a.from <= c.from+rtt && a.to >= c.from-rtt })
		}

		var want [guarantees]int
		for s := int64(-2 * per); s <= last+2*per; s++ {
			held, inFlight, by := 0, 0, healthy
			for _, a := range admissions {
				if a.from >= s && a.to < s+per {
					held++
					if crash(a) {
						inFlight++
					}
				}
			}
			for g, spans := range during {
				for _, o := range spans {
					if o.from < s+per && o.to >= s {
						by = guarantee(g)
					}
				}
			}
			if by == crashed {
				held -= inFlight
			}
			want[by] = max(want[by], held)
		}
		all := found(admissions, &during, time.Duration(rtt), per)
		got := most(all)
		got[crashed] -= all[crashed].inFlight
		require.Equal(t, want, got)
	})
}

// A limiter that forgets its counts when a node restarts hands out up to its
// limit once more, and one that counts on each of three nodes admits three
// times as much.
func TestALimiterThatOverAdmitsIsCaught(t *testing.T) {
	const limit, per = 10, time.Second
	var admissions []admission
	admit := func(ms int64, units int) {
		for range units {
			admissions = append(admissions, admission{ms * 1e6, ms*1e6 + 5e4})
		}
	}
	calm := &occasions{}
	admit(0, limit)
	admit(1001, limit)
	require.Equal(t, limit, found(admissions, calm, 0, per)[healthy].most)
	admit(1500, 1)
	require.Equal(t, limit+1, found(admissions, calm, 0, per)[healthy].most, "one unit too many")
	admit(2600, 3*limit)
	require.Equal(t, 3*limit, found(admissions, calm, 0, per)[healthy].most)
	restart := &occasions{deployed: {{2500e6, 3500e6}}}
	require.Equal(t, limit+1, found(admissions, restart, 0, per)[healthy].most)
	require.Equal(t, 3*limit, found(admissions, restart, 0, per)[deployed].most, "a restart excuses nothing")
}

// A crash excuses what was granted within a round trip of it, and nothing else.
func TestACrashExcusesWhatWasInFlight(t *testing.T) {
	const limit, per, rtt = 10, 1000, 5
	crash := &occasions{crashed: {{500, 600}}}
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
			require.Equal(t, c.broken, f.most > crashed.most(limit, f.inFlight), "%d of %d", f.most, crashed.most(limit, f.inFlight))
		})
	}
}
