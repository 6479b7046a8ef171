package main

import (
	"cmp"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
)

// situation contains the number of events of each kind, during a window and for a short
// time before it. For a Global limit, it describes the regions together. If pauses are so
// long that checks may time out, Late is greater by one.
type situation struct {
	bounds.Situation
	moves int  // starts, and leaves in order
	torn  bool // there is a region that cannot send to another
}

// rowName returns the names of the conditions that apply to a window.
func (s situation) rowName() string {
	var rows []string
	for _, r := range []struct {
		name  string
		holds bool
	}{
		{"regions apart", s.torn},
		{"split", s.Sides > 1},
		{"sides that have not met, or have forgotten", s.Strangers > 0},
		{"change of connectivity", s.Changes > 0},
		{"crash", s.Crashes > 0},
		{"crash without a copy", s.Bare > 0},
		{"timeouts", s.Late > 0},
		{"clock step", s.Stepped > 0},
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
	spells, alone, slow, late, stop := make(map[spell]bool), 0, 0, 0, false
	for i := range c.events {
		e := &c.events[i]
		if !e.overlaps(from, to) {
			continue
		}
		stop = stop || e.region
		switch e.kind {
		case changed:
			s.Changes++
		case killed:
			if e.fresh {
				s.Bare++
			} else {
				s.Crashes++
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
			if bounds.IsBucket(l) {
				step = min(1, float64(e.by)/float64(l.Per))
			}
			s.Stepped += step
		}
	}
	for i := range c.eras {
		e := &c.eras[i]
		if e.from >= to || e.to+c.settle <= from {
			continue
		}
		if e.to+settling > from {
			s.Sides = max(s.Sides, e.sides-e.unaware)
			slow = max(slow, e.slow) // maximum number of slow nodes at the same time
			if e.late || e.strained && s.Changes+s.Crashes+s.Bare+len(spells) > 0 {
				late = 1
			}
			s.Nodes = max(s.Nodes, e.nodes())
		}
		if e.unaware == e.sides {
			s.Strangers = max(s.Strangers, e.unaware-1) // the limit itself covers one of these sides
		} else {
			s.Strangers = max(s.Strangers, e.unaware)
		}
	}
	s.Sides, s.Nodes = s.Sides+alone, s.Nodes+alone
	if stop && l.Partition == weir.FailOpen { // each node has the whole limit until it reaches a serving node
		s.Strangers = max(s.Strangers, len(c.members)-1)
	}
	s.Late = len(spells) + late + max(0, slow-1)
	return s
}

// inFlight returns the units that may be in flight when authority moves or a node with
// authority dies. The argument admitted is a function that counts the units of the key that
// were admitted between two times. A crash adds the units that were admitted in two round
// trips around the crash (2a·RTT in docs/guarantees.md). A move adds the units that the limit
// grants in a round trip, and one more, because only whole units are granted.
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
