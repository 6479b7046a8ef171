package main

import (
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
)

// grantLasts is how long a region may continue to use units that another region grants a
// second time, because a crash lost the memory of the first grant. It is the term of a
// grant plus the allowed difference between clocks.
const grantLasts = 11250 * time.Millisecond

// planet describes all regions over time. A planet depends only on the scenario. The
// judge uses a planet for Global limits.
type planet struct {
	scenario *Scenario
	names    []string
	courses  []*course // the course of each region
	torn     []span    // when a region could not send to another region
}

// span is the time between two moments.
type span struct{ from, to time.Duration }

func planetOf(s *Scenario, courses map[string]*course) *planet {
	p := &planet{scenario: s, names: s.regions()}
	for _, name := range p.names {
		p.courses = append(p.courses, courses[name])
	}
	p.torn = p.courses[0].torn
	return p
}

func (c *course) end() time.Duration { return c.eras[len(c.eras)-1].to }

func (p *planet) region(node int16) int {
	return slices.Index(p.names, p.scenario.Nodes[node].Region)
}

// situation combines the situations of all regions. If a crash loses the memory of
// grants, the loss has effects for grantLasts.
func (p *planet) situation(l *weir.Limit, from, to time.Duration) (all situation) {
	all.Global = true
	for _, c := range p.courses {
		s := c.situation(l, from-grantLasts, to)
		torn := c.reduceToGlobal(&s, from-grantLasts, to)
		e := bounds.Excess(l.Partition, s.Situation)
		if torn || s.Sides > 1 || s.Crashes+s.Late+s.Changes > 0 {
			e++ // granted or received units of which other members have no copy yet
		}
		all.Regional += e
		all.Changes += s.Changes
		all.Crashes += s.Crashes
		all.Bare += s.Bare
		all.Late += s.Late
		all.Stepped += s.Stepped
		all.Sides = max(all.Sides, s.Sides)
		all.Strangers += s.Strangers
		all.moves += s.moves
	}
	for _, t := range p.torn {
		all.torn = all.torn || t.from < to && t.to >= from
	}
	return all
}

// reduceToGlobal reduces the situation of a region in a span to the events that affect a
// Global limit. Members that die without a copy at the same time count as a single crash.
// If all members of a region die, the other regions remember the grants of the region:
// the region may admit the units that it had once more, but no further units. The result
// inside reports whether members died without a copy while other members of the region
// lived.
func (c *course) reduceToGlobal(s *situation, from, to time.Duration) (inside bool) {
	s.Bare = 0
	last := time.Duration(-1)
	for i := range c.events {
		e := &c.events[i]
		switch {
		case !e.overlaps(from, to):
		case e.kind == killed && e.fresh:
			if e.from != last {
				s.Bare++
				last = e.from
			}
			inside = inside || !e.region
		case e.kind == killed && e.region:
			s.Crashes--
		case e.kind == changed && e.region:
			s.Changes--
		}
	}
	return inside
}

func (p *planet) inFlight(l *weir.Limit, from, to time.Duration, admitted func(from, to time.Duration) int64) (units int64) {
	for _, c := range p.courses {
		units += c.inFlight(l, from, to, admitted)
	}
	return units
}
