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
	yes := ask{units: 2, from: 10 * ms, to: 11 * ms, done: true}
	slow := ask{units: 2, from: 10 * ms, to: 60 * ms, done: true, unsure: true}
	failed := ask{units: 2, from: 10 * ms, to: 60 * ms, unsure: true}
	lent := ask{units: 2, from: 200 * ms, to: 200 * ms, done: true, leased: true}
	back := ask{units: -2, from: 20 * ms, to: 21 * ms}
	for name, c := range map[string]struct {
		asks     []ask
		spends   []spent
		unheard  int64
		troubles []trouble
	}{
		"a take that was granted":            {[]ask{yes}, []spent{took(2, 10*ms)}, 0, nil},
		"another one beside it":              {[]ask{yes}, []spent{took(2, 10*ms), took(2, 10*ms)}, 0, nil},
		"one of other units":                 {[]ask{yes}, []spent{took(3, 10*ms)}, 0, nil},
		"one after the answer":               {[]ask{yes}, []spent{took(2, 12*ms)}, 0, nil},
		"one before the check":               {[]ask{slow}, []spent{took(2, 9*ms)}, 0, nil},
		"a slow one, granted alone":          {[]ask{slow}, []spent{took(2, 30*ms)}, 0, nil},
		"a slow one, by two":                 {[]ask{slow}, []spent{took(2, 30*ms), took(2, 50*ms)}, 2, nil},
		"a slow one, by two, and given back": {[]ask{slow}, []spent{took(2, 30*ms), took(2, 50*ms), took(-2, 70*ms)}, 2, nil},
		"a slow one, carried out late":       {[]ask{slow}, []spent{took(2, 30*ms), took(2, 20_000*ms)}, 2, nil},
		"a slow one, by many":                {[]ask{slow}, []spent{took(2, 30*ms), took(2, 31*ms), took(2, 32*ms), took(2, 33*ms), took(2, 34*ms), took(2, 35*ms), took(2, 36*ms)}, 12, nil},
		"one that failed, carried out":       {[]ask{failed}, []spent{took(2, 30*ms)}, 2, nil},
		"one that failed, not carried out":   {[]ask{failed}, nil, 0, nil},
		"a refund":                           {[]ask{yes, back}, []spent{took(2, 10*ms), took(-2, 20*ms)}, 0, nil},
		"a refund that nobody carried out":   {[]ask{yes, back}, []spent{took(2, 10*ms)}, 2, nil},
		"a refund of a part":                 {[]ask{yes, back}, []spent{took(2, 10*ms), took(-1, 20*ms)}, 2, nil},
		"two at once, of which the longer is first": {
			[]ask{{units: 2, from: 10 * ms, to: 60 * ms, done: true}, yes}, []spent{took(2, 10*ms), took(2, 50*ms)}, 0, nil,
		},
		"a lease":                 {[]ask{yes, lent}, []spent{took(7, 10*ms)}, 0, nil},
		"a lease that is renewed": {[]ask{yes, lent}, []spent{took(7, 10*ms), took(5, 300*ms)}, 0, nil},
		"a slow one, by two, and a lease with the second": {[]ask{slow}, []spent{took(2, 30*ms), took(7, 50*ms)}, 2, nil},
		"a lease that a reset ends":                       {[]ask{yes}, []spent{took(7, 10*ms), took(0, 300*ms)}, 7, nil},
		"a lease, and a reset when it has ended":          {[]ask{yes}, []spent{took(7, 10*ms), took(0, 1200*ms)}, 0, nil},
		"a lease, in a trouble":                           {[]ask{yes}, []spent{took(7, 10*ms)}, 7, []trouble{{500 * ms, 500 * ms}}},
		"a lease, and a trouble before it":                {[]ask{yes}, []spent{took(7, 10*ms)}, 0, []trouble{{0, 9 * ms}}},
		"a lease, and a trouble after it":                 {[]ask{yes}, []spent{took(7, 10*ms)}, 0, []trouble{{1200 * ms, never}}},
		"one that is renewed late, in a trouble":          {[]ask{yes}, []spent{took(2, 10*ms), took(5, 2000*ms)}, 5, []trouble{{0, never}}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.unheard, unheard(c.asks, c.spends, c.troubles))
		})
	}
}
