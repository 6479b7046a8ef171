package main

import (
	"slices"
	"time"
)

func steps(s *Scenario) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == FaultSkew })
}

// enoughPerSecond is the rate from which on units are so many that what regions
// have follows demand to a few in a hundred.
const enoughPerSecond = 1000

// planetGrants looks at each calm minute of a Global limit of which every region is
// asked for more than all of it.
func planetGrants(a *asks, broken func(time.Duration, string, ...any)) {
	if float64(a.l.Rate) < enoughPerSecond*a.l.Per.Seconds() || steps(a.planet.scenario) {
		return
	}
	for _, q := range a.planet.calm() {
		from, to := q.from+2*a.l.Per, min(q.to, a.planet.scenario.Lasts)
		if to-from < max(time.Minute, 2*a.l.Per) {
			continue
		}
		saturated := true
		for region := range a.planet.names {
			d := a.demand(from, to, func(node int16) bool { return a.planet.region(node) == region })
			saturated = saturated && d.saturated(a.l, a.l.Rate, capacity(a.l))
		}
		d := a.demand(from, to, func(int16) bool { return true })
		if least := 0.97 * due(a.l, a.l.Rate, to-from, d); saturated && float64(d.granted) < least {
			broken(to, "%v: %d units from %v to %v, where %d were asked and %.0f are due: all regions reach each other", a, d.granted, from, to, d.offered, least)
		}
	}
}
