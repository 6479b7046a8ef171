package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
	"github.com/weir-go/weir/internal/lab"
)

// guarantee is a row of the table of guarantees. If a window contains events of several
// guarantees, the highest guarantee judges it.
type guarantee uint8

const (
	healthy   guarantee = iota // no event that loosens a bound
	deployed                   // gateways start, and leave in order
	crashed                    // a gateway dies
	timedOut                   // a gateway is frozen or thawed, its links change, or a check timed out though the owner was up
	severed                    // all connections of a gateway end
	restarted                  // all gateways end, and start with their snapshots
	guarantees
)

func (g guarantee) String() string {
	return [...]string{"healthy", "deploy", "crash", "timeout", "sever", "restart"}[g]
}

// means describes the windows that a guarantee judges, and the source of its figure.
func (g guarantee) means(inFlight int64) string {
	return [guarantees]string{
		healthy:  "without a fault: the limit",
		deployed: "in which gateways started, or left in order: the limit",
		crashed:  fmt.Sprintf("in which a gateway was killed: L + L/16 + %d in two round trips around the kill", inFlight),
		timedOut: "in which a gateway was frozen or thawed, or a check timed out: 2L",
	}[g]
}

// circumstances contains the values of a run that are used to compute the bounds.
type circumstances struct {
	roundTrip time.Duration
	long      bool  // set in a soak: so many gateways start and leave that some do so while units are in flight
	saved     int64 // time until which the snapshots of a stop of all gateways contain all admissions
}

// extra returns the number of units above the limit that a window of a key may admit if the
// window contains a moment of the span during.
//
// A unit that was admitted less than a round trip before a crash may have no copy. Within
// a round trip after the crash, the gateway that sent the request may not know of the
// crash.
func (g guarantee) extra(l *weir.Limit, admissions []span, during span, c *circumstances) int64 {
	var s bounds.Situation
	switch g {
	case deployed:
		if c.long {
			s.InFlight = 1 + int64(math.Ceil(float64(l.Rate)*float64(c.roundTrip)/float64(l.Per)))
		}
	case crashed:
		s.Crashes, s.InFlight = 1, lab.InFlight(admissions, during.From, c.roundTrip)
	case timedOut:
		s.Late = 1
	case severed:
		s.Changes, s.Sides = 2, 2
	case restarted:
		if l.Durable != weir.Durable {
			s.Bare = 1 // the count begins again
			break
		}
		for _, a := range admissions {
			if a.To >= c.saved && a.From <= during.From {
				s.Unsaved++
			}
		}
	}
	return bounds.Bound(l, s) - bounds.Healthy(l)
}

type span = lab.Interval

// never is the end of an event that has not ended.
const never = math.MaxInt64

// occasions contains the times of the events of each guarantee. Events of healthy, such as a
// reload, loosen no bound. The highest guarantee with a moment in a window judges the window.
type occasions [guarantees][]span

func near(spans []span, s span) bool {
	return slices.ContainsFunc(spans, s.Touches)
}

// fullest contains the fullest window that each guarantee judges, over all keys.
type fullest [guarantees]lab.Fullest

// lasting is the minimum Per of limits with new keys in each round of a soak.
const lasting = 5 * time.Minute

// add judges the windows of one key. The extra units of all events in a window add up. But
// of the extra units of timeouts, only the highest number counts, and only once.
func (found *fullest) add(key string, admissions []span, l *weir.Limit, during *occasions, c *circumstances) {
	var all []lab.Occasion
	for g, spans := range during {
		for _, s := range spans {
			extra := guarantee(g).extra(l, admissions, s, c)
			all = append(all, lab.Occasion{Interval: s, Kind: g, Extra: extra, Once: guarantee(g) == timedOut})
		}
	}
	most := bounds.Healthy(l)
	if l.Per >= lasting { // no window of the key has ended
		most = l.Rate
	}
	lab.JudgeWindows(found[:], key, admissions, all, l.Per, most)
}
