package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What was spent is held to what callers saw, take by take.
func TestWhatNobodyWasGrantedMayBeSpentOnlyWhereNodesCarriedItOut(t *testing.T) {
	const ms = time.Millisecond
	took := func(units int64, at time.Duration) spent { return spent{units: units, at: at} }
	for name, c := range map[string]struct {
		doubts   []doubt
		refunds  int64
		spends   []spent
		unheard  int64
		troubles []trouble
	}{
		"a take":                                 {nil, 0, []spent{took(2, 10*ms), took(2, 10*ms)}, 0, nil},
		"a slow one":                             {[]doubt{{20 * ms, 60 * ms, 2}}, 0, []spent{took(2, 30*ms), took(2, 64*ms), took(1, 40*ms), took(2, 70*ms), took(2, 10*ms)}, 4, nil},
		"a refund":                               {nil, 2, []spent{took(2, 10*ms), took(-2, 20*ms)}, 0, nil},
		"a refund that nobody carried out":       {nil, 2, []spent{took(2, 10*ms)}, 2, nil},
		"a refund of a part":                     {nil, 2, []spent{took(2, 10*ms), took(-1, 20*ms)}, 1, nil},
		"more comes back than is refunded":       {nil, 2, []spent{took(7, 10*ms), took(-2, 20*ms), took(-5, 900*ms)}, 0, nil},
		"a lease":                                {nil, 0, []spent{took(7, 10*ms)}, 0, nil},
		"a lease that a reset ends":              {nil, 0, []spent{took(7, 10*ms), took(0, 300*ms)}, 7, nil},
		"a lease, and a reset when it has ended": {nil, 0, []spent{took(7, 10*ms), took(0, 1200*ms)}, 0, nil},
		"a lease, in a trouble":                  {nil, 0, []spent{took(7, 10*ms)}, 7, []trouble{{500 * ms, 500 * ms}}},
		"a lease, and a trouble before it":       {nil, 0, []spent{took(7, 10*ms)}, 0, []trouble{{0, 9 * ms}}},
		"a lease, and a trouble after it":        {nil, 0, []spent{took(7, 10*ms)}, 0, []trouble{{1200 * ms, never}}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.unheard, unheard(c.doubts, 5*ms, c.refunds, c.spends, c.troubles))
		})
	}
}
