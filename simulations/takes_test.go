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
		unsure, refunds int64
		spends          []spent
		unheard         int64
		troubles        []trouble
	}{
		"a take":                                 {0, 0, []spent{took(2, 10*ms), took(2, 10*ms)}, 0, nil},
		"a slow one":                             {2, 0, []spent{took(2, 30*ms), took(2, 50*ms)}, besides * 2, nil},
		"a refund":                               {0, 2, []spent{took(2, 10*ms), took(-2, 20*ms)}, 0, nil},
		"a refund that nobody carried out":       {0, 2, []spent{took(2, 10*ms)}, 2, nil},
		"a refund of a part":                     {0, 2, []spent{took(2, 10*ms), took(-1, 20*ms)}, 1, nil},
		"more comes back than is refunded":       {0, 2, []spent{took(7, 10*ms), took(-2, 20*ms), took(-5, 900*ms)}, 0, nil},
		"a lease":                                {0, 0, []spent{took(7, 10*ms)}, 0, nil},
		"a lease that a reset ends":              {0, 0, []spent{took(7, 10*ms), took(0, 300*ms)}, 7, nil},
		"a lease, and a reset when it has ended": {0, 0, []spent{took(7, 10*ms), took(0, 1200*ms)}, 0, nil},
		"a lease, in a trouble":                  {0, 0, []spent{took(7, 10*ms)}, 7, []trouble{{500 * ms, 500 * ms}}},
		"a lease, and a trouble before it":       {0, 0, []spent{took(7, 10*ms)}, 0, []trouble{{0, 9 * ms}}},
		"a lease, and a trouble after it":        {0, 0, []spent{took(7, 10*ms)}, 0, []trouble{{1200 * ms, never}}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.unheard, unheard(c.unsure, c.refunds, c.spends, c.troubles))
		})
	}
}
