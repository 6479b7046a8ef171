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

// guarantee is a row of the table of guarantees. A window is judged by the last
// of those that it holds something of.
type guarantee uint8

const (
	healthy  guarantee = iota // nothing happens
	deployed                  // gateways start, and leave in order
	crashed                   // a gateway dies
	timedOut                  // a gateway is frozen or thawed, or a check timed out though the owner was up
	guarantees
)

func (g guarantee) String() string {
	return [...]string{"healthy", "deploy", "crash", "timeout"}[g]
}

// means names the windows that a guarantee judges, and the source of its figure.
func (g guarantee) means(inFlight int64) string {
	return [...]string{
		healthy:  "in which all was well: the limit",
		deployed: "in which gateways started, or left in order: the limit",
		crashed:  fmt.Sprintf("in which a gateway was killed: L + L/16 + %d in two round trips around that", inFlight),
		timedOut: "in which one was frozen or thawed, or a check timed out: 2L",
	}[g]
}

// most is how much a client gets in a window at most, of a limit whose windows admit no more
// than its rate. Where a gateway dies, it may get besides what was in flight.
func (g guarantee) most(limit, inFlight int64) int64 {
	var s bounds.Situation
	switch g {
	case crashed:
		s.Crashes, s.InFlight = 1, inFlight
	case timedOut:
		s.Late = 1
	}
	return bounds.Bound(&weir.Limit{Algorithm: weir.SlidingLog, Rate: limit}, s)
}

type span = lab.Interval

// never is the end of what has not ended.
const never = math.MaxInt64

// occasions is when the guarantees besides the healthy one hold: a window is
// judged by the last that it holds a moment of.
type occasions [guarantees][]span

func near(spans []span, s span) bool {
	return slices.ContainsFunc(spans, s.Touches)
}

// fullest has the fullest window that each guarantee judges, of all keys.
type fullest [guarantees]lab.Fullest

// add judges the windows of one key. Its limit is the number of units for each window of length
// per.
//
// rtt is the duration of a round trip. If a unit was admitted less than rtt before a crash, there
// may be no copy of it. Within rtt after the crash, the gateway that sent the request may not know
// of the crash.
func (found *fullest) add(admissions []span, during *occasions, rtt time.Duration, limit int64, per time.Duration) {
	var all []lab.Occasion
	for g, spans := range during {
		for _, s := range spans {
			inFlight := int64(0)
			if guarantee(g) == crashed {
				inFlight = lab.InFlight(admissions, s.From, rtt)
			}
			all = append(all, lab.Occasion{Interval: s, Kind: g, Extra: guarantee(g).most(limit, inFlight) - limit, Once: true})
		}
	}
	lab.JudgeWindows(found[:], "", admissions, all, per, limit)
}
