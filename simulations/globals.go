package main

import (
	"slices"
	"time"

	"github.com/weir-go/weir"
)

func steps(s *Scenario) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == FaultSkew })
}

// enoughPerSecond is the rate from which on units are so many that what regions
// have follows demand to a few in a hundred.
const enoughPerSecond = 1000

// fullPlanet looks at each calm minute of a Global limit of which every region is
// asked for more than all of it.
func fullPlanet(a *asks, broken func(time.Duration, string, ...any)) {
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

// telling is how long after a unit was spent another region may be told of it: what
// was spent is told ten times in a Per, once a second at most and every ten
// seconds at least; of a limit that nobody asks for any more it is noticed within
// two seconds; and what is lost, or waits for a packet that was, is told again.
func telling(l *weir.Limit) time.Duration {
	return min(max(l.Per/10, time.Second), 10*time.Second) + 8*time.Second
}

// lent is what may lie in leases of a key, which counts as used though nobody was granted
// it: the nodes of a region but the owner have one each, of an eighth of what is left.
func lent(s *Scenario, l *weir.Limit) int64 {
	if l.NoLeases {
		return 0
	}
	most, nodes := 0, make(map[string]int)
	for _, n := range s.Nodes {
		nodes[n.Region]++
		most = max(most, nodes[n.Region]-1)
	}
	return int64(most) * (capacity(l) / 8)
}

// counted is how long a unit may count as used.
func counted(l *weir.Limit) time.Duration {
	switch {
	case isBucket(l):
		return time.Duration(float64(capacity(l)) / float64(l.Rate) * float64(l.Per))
	case l.Algorithm == weir.SlidingWindow:
		return 2 * l.Per
	}
	return l.Per
}

// peeks looks at what nodes say while all regions reach each other, or have for as
// long as units count that nobody knew about.
func peeks(r *trial, broken func(time.Duration, string, ...any)) {
	if r.planet == nil || steps(r.Scenario) {
		return
	}
	calm := r.planet.calm()
	of := make(map[subject]*asks)
	for _, a := range r.asks {
		of[a.subject] = a
	}
	told := make(map[subject]bool)
	for _, look := range r.Looks {
		l := &r.Scenario.Limits[look.Limit]
		memory := counted(l) + telling(l)
		is := false
		for _, q := range calm {
			is = is || (q.from == 0 || q.from+memory <= look.At) && look.At >= q.from && look.Answered <= q.to
		}
		s := subject{look.Limit, look.Key, everywhere}
		if !is || told[s] {
			continue
		}
		spent := int64(0)
		if a := of[s]; a != nil {
			spent = a.admitted(look.At-memory, look.Answered)
		}
		if isBucket(l) {
			spent *= 2 // what was spent of a grant goes along with it, and is told as well
		}
		spent += lent(r.Scenario, l)
		if look.Used > spent {
			told[s] = true
			broken(look.Answered, "limit %q key %d: %s says that %d units are used, and %d were granted since %v",
				l.Name, look.Key, r.Scenario.Nodes[look.Node].Name, look.Used, spent, max(0, look.At-memory))
		}
	}
}
