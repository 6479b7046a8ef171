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
		asks             []ask
		spends           []spent
		unheard, unasked int64
		takers           []time.Duration
	}{
		"a take that was granted":               {[]ask{yes}, []spent{took(2, 10*ms)}, 0, 0, nil},
		"another one beside it":                 {[]ask{yes}, []spent{took(2, 10*ms), took(2, 10*ms)}, 0, 2, nil},
		"one of other units":                    {[]ask{yes}, []spent{took(3, 10*ms)}, 0, 3, nil},
		"one after the answer":                  {[]ask{yes}, []spent{took(2, 12*ms)}, 0, 2, nil},
		"one before the check":                  {[]ask{slow}, []spent{took(2, 9*ms)}, 0, 2, nil},
		"a slow one, granted alone":             {[]ask{slow}, []spent{took(2, 30*ms)}, 0, 0, nil},
		"a slow one, by two":                    {[]ask{slow}, []spent{took(2, 30*ms), took(2, 50*ms)}, 2, 0, nil},
		"a slow one, by two, and given back":    {[]ask{slow}, []spent{took(2, 30*ms), took(2, 50*ms), took(-2, 70*ms)}, 2, 0, nil},
		"a slow one, carried out late":          {[]ask{slow}, []spent{took(2, 30*ms), took(2, 20_000*ms)}, 2, 0, nil},
		"a slow one, by more than can be asked": {[]ask{slow}, []spent{took(2, 30*ms), took(2, 31*ms), took(2, 32*ms), took(2, 33*ms), took(2, 34*ms), took(2, 35*ms), took(2, 36*ms)}, 10, 2, nil},
		"one that failed, carried out":          {[]ask{failed}, []spent{took(2, 30*ms)}, 2, 0, nil},
		"one that failed, not carried out":      {[]ask{failed}, nil, 0, 0, nil},
		"a lease, of which two are granted": {
			[]ask{yes, lent}, []spent{took(7, 10*ms), took(-3, 500*ms)}, 5, 0, nil,
		},
		"a slow one, by two, and a lease with the second": {
			[]ask{slow}, []spent{took(2, 30*ms), took(7, 50*ms), took(-2, 70*ms), took(-5, 500*ms)}, 7, 0, nil,
		},
		"a lease that is renewed, and comes back": {
			[]ask{yes, lent}, []spent{took(7, 10*ms), took(5, 300*ms), took(-3, 301*ms), took(-5, 800*ms)}, 10, 0, nil,
		},
		"a lease of which nothing is granted, and one more": {
			[]ask{yes}, []spent{took(7, 10*ms), took(5, 300*ms), took(-5, 301*ms)}, 5, 5, nil,
		},
		"a lease that is renewed, and neither granted nor given back": {
			[]ask{yes, lent}, []spent{took(7, 10*ms), took(-3, 301*ms), took(5, 302*ms)}, 5, 5, nil,
		},
		"a lease that comes back": {[]ask{yes}, []spent{took(7, 10*ms), took(-5, 500*ms)}, 5, 0, nil},
		"more than a check, and a refund that was asked for": {
			[]ask{yes, back}, []spent{took(7, 10*ms), took(-2, 20*ms)}, 0, 7, nil,
		},
		"more than a check, and no lease": {
			[]ask{yes, {units: 2, from: 1200 * ms, to: 1200 * ms, done: true, leased: true}}, []spent{took(7, 10*ms), took(-5, 1200*ms)}, 0, 7, nil,
		},
		"a refund":                         {[]ask{yes, back}, []spent{took(2, 10*ms), took(-2, 20*ms)}, 0, 0, nil},
		"a refund that nobody carried out": {[]ask{yes, back}, []spent{took(2, 10*ms)}, 2, 0, nil},
		"a refund of a part":               {[]ask{yes, back}, []spent{took(2, 10*ms), took(-1, 20*ms)}, 2, 0, nil},
		"two at once, of which the longer is first": {
			[]ask{{units: 2, from: 10 * ms, to: 60 * ms, done: true}, yes}, []spent{took(2, 10*ms), took(2, 50*ms)}, 0, 0, nil,
		},
		"a lease that comes back beside a refund of as many": {
			[]ask{yes, {units: -5, from: 20 * ms, to: 21 * ms}}, []spent{took(7, 10*ms), took(-5, 20*ms), took(-5, 20*ms)}, 5, 0, nil,
		},
		"a lease, and a refund of as many": {
			[]ask{yes, {units: -5, from: 20 * ms, to: 21 * ms}}, []spent{took(7, 10*ms), took(-5, 20*ms)}, 0, 7, nil,
		},
		"a lease that a reset ends":                {[]ask{yes}, []spent{took(7, 10*ms), took(0, 300*ms)}, 5, 0, nil},
		"a lease, and a reset when it has ended":   {[]ask{yes}, []spent{took(7, 10*ms), took(0, 1200*ms)}, 0, 7, nil},
		"a lease that ends with the node":          {[]ask{yes}, []spent{took(7, 10*ms)}, 5, 0, []time.Duration{500 * ms}},
		"a lease, and a node that ended before it": {[]ask{yes}, []spent{took(7, 10*ms)}, 0, 7, []time.Duration{9 * ms}},
		"a lease, and a node that ends after it":   {[]ask{yes}, []spent{took(7, 10*ms)}, 0, 7, []time.Duration{1200 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			units, unasked := unheard(c.asks, c.spends, c.takers)
			require.Equal(t, c.unheard, units)
			require.Equal(t, c.unasked, unasked)
		})
	}
}
