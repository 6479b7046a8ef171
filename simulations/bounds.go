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

// situation is what a window holds, or has shortly before it.
type situation struct {
	c        int // changes of connectivity
	kills    int // of members whose counts somebody has a copy of
	bare     int // of others
	moves    int // starts and leaves in good order
	timeouts int // spells in which checks time out though their authority lives
	steps    float64
	late     int // 1 if nodes are paused for so long that checks time out
	sides    int // the most at one time that know of each other
	unaware  int // the most at one time that may have the whole limit beside these, or beside one another: they do not know of others, or have forgotten them
	nodes    int // the most that ran at one time
	slow     int // the most ends of links at one time on which checks may time out

	// Of a Global limit, where all else is of its regions together:
	regions int     // 0 of others
	abroad  float64 // their excesses
	torn    bool    // some region does not reach another one
}

// guaranteed is the situation as the guarantees table has it.
func (s situation) guaranteed() bounds.Situation {
	return bounds.Situation{
		Changes: s.c, Sides: s.sides, Crashes: s.kills, Bare: s.bare, Late: s.timeouts + s.late,
		Strangers: s.unaware, Nodes: s.nodes, Stepped: s.steps, Global: s.regions > 0, Regional: s.abroad,
	}
}

// bound is the most units that a window of Per may hold, without what is in flight.
func (s situation) bound(l *weir.Limit) int64 { return bounds.Bound(l, s.guaranteed()) }

// row names what a window falls under.
func (s situation) row() string {
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
			if e.alone && l.Partition == weir.FailOpen { // else one that leaves has nothing of its own
				alone++
			}
			if 8*c.trip(e) >= timeoutOf(c.scenario) { // a check that is passed on and back
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
			s.unaware = max(s.unaware, e.unaware-1) // L is one's
		} else {
			s.unaware = max(s.unaware, e.unaware)
		}
	}
	s.sides, s.nodes = s.sides+alone, s.nodes+alone
	if stop && l.Partition == weir.FailOpen { // each node has the limit for itself until it reaches one that serves
		s.unaware = max(s.unaware, len(c.members)-1)
	}
	s.timeouts += max(0, s.slow-1)
	return s
}

// inFlight is what may be on its way when authority moves or dies: of a key whose
// admissions the function counts. Each crash: 2a·RTT, which is what is admitted in
// two round trips around it. Each move: what is admitted in a round trip at the
// limit's own pace, one unit at least, as units come one by one.
func (c *course) inFlight(l *weir.Limit, from, to time.Duration, admitted func(from, to time.Duration) int64) (units int64) {
	for i := range c.events {
		e := &c.events[i]
		if !e.overlaps(from, to) {
			continue
		}
		switch e.kind {
		case killed:
			units += admitted(e.from-c.trip(e), e.from+c.trip(e))
		case moved:
			units += 1 + int64(float64(l.Rate)*float64(c.trip(e))/float64(l.Per))
		}
	}
	return units
}

// trip is how long a round trip between a node and others takes while its coming and going
// is felt, the pauses of both ends included: of a crash, when it dies.
func (c *course) trip(e *event) (longest time.Duration) {
	to := e.to
	if e.kind == killed {
		to = e.from
	}
	for i := range c.eras {
		if era := &c.eras[i]; era.from <= to && era.to >= e.from {
			longest = max(longest, era.trips[e.node])
		}
	}
	return longest + 2*c.pauses(e.from-settling, e.to, c.members...)
}
