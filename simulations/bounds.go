package main

import (
	"cmp"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
)

func capacity(l *weir.Limit) int64 { return bounds.Capacity(l) }

func isBucket(l *weir.Limit) bool {
	return l.Algorithm == weir.TokenBucket || l.Algorithm == weir.LeakyBucket
}

// situation counts the events during a window and shortly before the window.
type situation struct {
	c        int // changes of connectivity
	kills    int // crashes of members whose counts have a copy
	bare     int // crashes of members whose counts may have no copy
	moves    int // starts, and leaves in order
	timeouts int // spells in which checks may time out although the member with authority lives
	steps    float64
	late     int // 1 if nodes are paused for so long that checks time out
	sides    int // the maximum number of sides at one time that know of each other
	unaware  int // the maximum number of sides at one time that may have the whole limit beside these sides, or beside each other: they do not know of other sides, or have forgotten them
	nodes    int // the maximum number of nodes that ran at one time
	slow     int // the maximum number of nodes at one time with a link on which checks may time out

	// For a Global limit, the fields above describe its regions together.
	regions int     // number of regions; 0 for other limits
	abroad  float64 // sum of the excesses of the regions
	torn    bool    // a region cannot send to another region
}

// toBounds returns the situation in the terms of the guarantees table.
func (s situation) toBounds() bounds.Situation {
	return bounds.Situation{
		Changes: s.c, Sides: s.sides, Crashes: s.kills, Bare: s.bare, Late: s.timeouts + s.late,
		Strangers: s.unaware, Nodes: s.nodes, Stepped: s.steps, Global: s.regions > 0, Regional: s.abroad,
	}
}

// bound returns the maximum number of units of a window of Per, without the units in
// flight.
func (s situation) bound(l *weir.Limit) int64 { return bounds.Bound(l, s.toBounds()) }

// rowName returns the names of the conditions that apply to a window.
func (s situation) rowName() string {
	var rows []string
	for _, r := range []struct {
		name  string
		holds bool
	}{
		{"regions apart", s.torn},
		{"split", s.sides > 1},
		{"sides that have not met, or have forgotten", s.unaware > 0},
		{"change of connectivity", s.c > 0},
		{"crash", s.kills > 0},
		{"crash without a copy", s.bare > 0},
		{"timeouts", s.timeouts+s.late > 0},
		{"clock step", s.steps > 0},
		{"joins and leaves", s.moves > 0},
	} {
		if r.holds {
			rows = append(rows, r.name)
		}
	}
	return cmp.Or(strings.Join(rows, " + "), "healthy")
}

func (c *course) situation(l *weir.Limit, from, to time.Duration) (s situation) {
	type spell struct{ node, number int }
	spells, alone, stop := make(map[spell]bool), 0, false
	for i := range c.events {
		e := &c.events[i]
		if !e.overlaps(from, to) {
			continue
		}
		stop = stop || e.region
		switch e.kind {
		case changed:
			s.c++
		case killed:
			if e.fresh {
				s.bare++
			} else {
				s.kills++
			}
		case moved:
			s.moves++
			if e.alone && l.Partition == weir.FailOpen { // with other policies, a leaving node has no units of its own
				alone++
			}
			if 8*c.longestTrip(e) >= timeoutOf(c.scenario) { // passing on a check and its answer takes too long
				spells[spell{-1, 0}] = true
			}
		case timedOut:
			spells[spell{e.node, e.spell}] = true
		case stepped:
			step := 1.0
			if isBucket(l) {
				step = min(1, float64(e.by)/float64(l.Per))
			}
			s.steps += step
		}
	}
	s.timeouts = len(spells)
	for i := range c.eras {
		e := &c.eras[i]
		if e.from >= to || e.to+c.settle <= from {
			continue
		}
		if e.to+settling > from {
			s.sides = max(s.sides, e.sides-e.unaware)
			s.slow = max(s.slow, e.slow)
			if e.late || e.strained && s.c+s.kills+s.bare+s.timeouts > 0 {
				s.late = 1
			}
			s.nodes = max(s.nodes, e.nodes())
		}
		if e.unaware == e.sides {
			s.unaware = max(s.unaware, e.unaware-1) // L includes one of them
		} else {
			s.unaware = max(s.unaware, e.unaware)
		}
	}
	s.sides, s.nodes = s.sides+alone, s.nodes+alone
	if stop && l.Partition == weir.FailOpen { // each node has the whole limit until it reaches a serving node
		s.unaware = max(s.unaware, len(c.members)-1)
	}
	s.timeouts += max(0, s.slow-1)
	return s
}

// inFlight returns the units that may be in flight when authority moves or a node with
// authority dies. The function admitted counts the admissions of the key. A crash adds
// 2a·RTT, the units that are admitted in two round trips around it. A move adds the units
// that the limit grants in a round trip, and one more, because units come one by one.
func (c *course) inFlight(l *weir.Limit, from, to time.Duration, admitted func(from, to time.Duration) int64) (units int64) {
	for i := range c.events {
		e := &c.events[i]
		if !e.overlaps(from, to) {
			continue
		}
		switch e.kind {
		case killed:
			units += admitted(e.from-c.longestTrip(e), e.from+c.longestTrip(e))
		case moved:
			units += 1 + int64(float64(l.Rate)*float64(c.longestTrip(e))/float64(l.Per))
		}
	}
	return units
}

// longestTrip returns the longest round trip between the node of an event and other nodes
// while the event has effects, including the pauses of both ends. For a crash, it is the
// round trip when the node dies.
func (c *course) longestTrip(e *event) (longest time.Duration) {
	to := e.to
	if e.kind == killed {
		to = e.from
	}
	for i := range c.eras {
		if era := &c.eras[i]; era.from <= to && era.to >= e.from {
			longest = max(longest, era.trips[e.node])
		}
	}
	return longest + 2*c.longestPause(e.from-settling, e.to, c.members...)
}
