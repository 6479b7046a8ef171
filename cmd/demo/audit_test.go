package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// at is admissions at exactly known moments.
func at(moments ...int64) []admission {
	var as []admission
	for _, m := range moments {
		as = append(as, admission{m, m})
	}
	return as
}

func TestBusiest(t *testing.T) {
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
			require.Equal(t, c.want, busiest(c.admissions, 100))
		})
	}
}

func TestHealthyWindowsHoldNothingOfAFault(t *testing.T) {
	for name, c := range map[string]struct {
		admissions []admission
		faults     []span
		want       int
	}{
		"without faults every window is healthy":       {at(0, 10, 20), nil, 3},
		"what a fault admitted is not held against it": {at(0, 10, 20), []span{{5, 15}}, 1},
		"one unit too many just before a fault":        {at(0, 98, 99), []span{{100, 200}}, 3},
		"one unit too many just after it":              {at(201, 202, 203), []span{{100, 200}}, 3},
		"a window that would hold a fault's end":       {at(199, 201, 202), []span{{100, 200}}, 2},
		"no room for a window between two faults":      {at(50, 51, 52), []span{{0, 10}, {100, 110}}, 0},
		"just room for one":                            {at(50, 51, 52), []span{{0, 10}, {111, 120}}, 3},
		"faults that overlap":                          {at(50, 51, 52), []span{{0, 80}, {40, 45}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, healthy(c.admissions, c.faults, 100))
		})
	}
}

// The oracles try every window there is.
func TestTheAuditFindsWhatTryingEveryWindowFinds(t *testing.T) {
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
		faults := rapid.SliceOfN(pair(8), 0, 4).Draw(t, "faults")

		anywhere, calm := 0, 0
		for s := int64(-2 * per); s <= last+2*per; s++ {
			held, faulty := 0, false
			for _, a := range admissions {
				if a.from >= s && a.to < s+per {
					held++
				}
			}
			for _, f := range faults {
				faulty = faulty || f.from < s+per && f.to >= s
			}
			anywhere = max(anywhere, held)
			if !faulty {
				calm = max(calm, held)
			}
		}
		require.Equal(t, anywhere, busiest(admissions, per))
		require.Equal(t, calm, healthy(admissions, faults, per))
	})
}

// A limiter that forgets its counts when a node restarts hands out up to its
// limit once more, and one that counts on each of three nodes admits three
// times as much.
func TestTheAuditCatchesALimiterThatOverAdmits(t *testing.T) {
	const limit, per = 10, time.Second
	var admissions []admission
	admit := func(ms int64, units int) {
		for range units {
			admissions = append(admissions, admission{ms * 1e6, ms*1e6 + 5e4})
		}
	}
	admit(0, limit)
	admit(1001, limit)
	require.Equal(t, limit, healthy(admissions, nil, per))
	admit(1500, 1)
	require.Equal(t, limit+1, healthy(admissions, nil, per), "one unit too many")
	admit(2600, 3*limit)
	require.Equal(t, 3*limit, healthy(admissions, nil, per))
	fault := []span{{2500e6, 3500e6}}
	require.Equal(t, limit+1, healthy(admissions, fault, per))
	require.Equal(t, 3*limit, busiest(admissions, per), "a fault excuses two limits, not three")
}
