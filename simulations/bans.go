package main

import (
	"slices"
	"time"

	"github.com/weir-go/weir"
)

const (
	// repeating is how long a node repeats that a key is banned or paused without asking the owner.
	repeating = 10 * time.Second
	// A ban survives a crash of its owner if the ban is older than banCopying and a
	// round trip.
	banCopying = 200 * time.Millisecond
)

// checkBanned checks for each key and region that a ban or a pause lasts until the end
// that callers were told, and that no ban begins before there were enough denials. It
// checks nothing if nodes may evict counts, or if a clock steps, which moves the ends of
// bans.
func checkBanned(r *trial, broken func(time.Duration, string, ...any)) {
	if r.mayEvict() || slices.ContainsFunc(r.Scenario.Faults, func(f Fault) bool { return f.Kind == FaultSkew }) {
		return
	}
	for _, a := range r.asks {
		if a.l.Ban == (weir.Ban{}) && !a.l.Pauses || a.callers != allCallers {
			continue
		}
		of := make(map[string][]*Check)
		for _, i := range a.of {
			c := &a.checks[i]
			region := r.Scenario.Nodes[c.Node].Region
			of[region] = append(of[region], c)
		}
		for _, region := range r.Scenario.regions() {
			checkLasting(r.courses[region], a, of[region], broken)
			if a.l.Ban != (weir.Ban{}) {
				checkDenials(r.courses[region], a, of[region], broken)
			}
		}
	}
}

// checkLasting reports the first admission before the end of a ban or a pause that a caller was told earlier.
func checkLasting(course *course, a *asks, checks []*Check, broken func(time.Duration, string, ...any)) {
	var told []*Check
	for _, c := range checks {
		if c.Banned > 0 {
			told = append(told, c)
		}
		if !c.Allowed || c.Err != "" {
			continue
		}
		for _, pushback := range []bool{false, true} {
			i := len(told) - 1
			for i >= 0 && (told[i].Answered >= c.Asked || (told[i].Source == weir.Pushback) != pushback) {
				i--
			}
			if i < 0 || pushback && a.l.Pauses { // the owner may not have the pause yet
				continue
			}
			t, from := told[i], told[i].Asked
			if pushback {
				from = max(0, from-repeating)
			}
			// A fault that breaks a connection lets a stand-in decide at the same instant.
			if c.Answered < t.Asked+t.Banned && course.keepsBans(a.l, from, c.Answered+1) {
				broken(c.Answered, "%v: a check was admitted at %v as %v, and another was told at %v as %v that the key is banned until %v",
					a, c.Asked, c.Source, t.Asked, t.Source, t.Asked+t.Banned)
				return
			}
		}
	}
}

// checkDenials reports the first ban of a key that was denied too rarely. A denial reaches the owner at most
// two Timeouts, a second and the pauses after its answer. The checks of a killed process are not in the journal.
func checkDenials(course *course, a *asks, checks []*Check, broken func(time.Duration, string, ...any)) {
	ends, late := time.Duration(0), 2*timeoutOf(course.scenario)+time.Second
	for _, c := range checks {
		if c.Banned == 0 {
			continue
		}
		isNew := c.Asked+c.Banned > ends+late
		if ends = max(ends, c.Answered+c.Banned); !isNew {
			continue
		}
		longest := slices.Max(a.l.Ban.For[:])
		since := c.Asked + c.Banned - longest - a.l.Ban.Within*9/8 - late
		since -= 2 * course.longestPause(since, c.Answered, course.members...)
		denials := int64(0)
		for _, d := range checks {
			if !d.Allowed && d.Err == "" && d.Banned == 0 && d.Answered >= since && d.Asked <= c.Answered {
				denials++
			}
		}
		crashes := slices.ContainsFunc(course.events, func(e event) bool { return e.kind == killed && e.overlaps(since, c.Answered) })
		if denials < a.l.Ban.Denials && !crashes {
			broken(c.Answered, "%v: the key is banned at %v until %v after %d denials since %v, where %d within %v ban it",
				a, c.Asked, c.Asked+c.Banned, denials, max(0, since), a.l.Ban.Denials, a.l.Ban.Within)
			return
		}
	}
}

// keepsBans reports whether a ban that began before a span must be in force in the whole
// span. Nodes that join or leave in order do not end a ban, nor does a crash if other
// members have copies of the ban.
func (c *course) keepsBans(l *weir.Limit, from, to time.Duration) bool {
	s := c.situation(l, from, to)
	slow := slices.ContainsFunc(c.eras, func(e era) bool { return e.slow > 0 && e.from < to && e.to+c.settle > from })
	if slow || s.Sides != 1 || s.Strangers+s.Changes+s.Bare+s.Late > 0 {
		return false
	}
	return !slices.ContainsFunc(c.events, func(e event) bool {
		isYoung := e.kind == killed && e.from < from+banCopying+c.longestTrip(&e)
		return e.overlaps(from, to) && (e.region || e.alone || isYoung)
	})
}

// addKeyPauses adds loads that pause keys of some limits without bans.
func (d *dice) addKeyPauses() {
	for i := range d.s.Limits {
		l := &d.s.Limits[i]
		if inFlightLimit(*l) || d.s.hasReservations(l.Name) || l.Ban != (weir.Ban{}) || d.oneIn(4) {
			continue
		}
		for _, load := range d.s.Loads {
			if load.Limit == l.Name && load.Rate > 0 {
				l.Pauses = true
				d.s.Loads = append(d.s.Loads, Load{Limit: l.Name, Keys: load.Keys, Rate: round(d.logarithmic(0.05, 2)), Pauses: d.logarithm(1e8, 1e10)})
				break
			}
		}
	}
}

// addBans makes some limits ban keys.
func (d *dice) addBans() {
	for i := range d.s.Limits {
		l := &d.s.Limits[i]
		if inFlightLimit(*l) || d.s.hasReservations(l.Name) || d.oneIn(4) {
			continue
		}
		l.Ban = weir.Ban{Denials: int64(d.logarithmic(1, 100)), Within: d.logarithm(2e8, 2e10)}
		for i := range 1 + d.IntN(2) {
			l.Ban.For[i] = d.logarithm(1e9, 1.5e10).Truncate(time.Second)
		}
	}
}
