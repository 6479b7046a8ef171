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
func (g guarantee) means(inFlight int) string {
	return [...]string{
		healthy:  "in which all was well: the limit",
		deployed: "in which gateways started, or left in order: the limit",
		crashed:  fmt.Sprintf("in which a gateway was killed: L + L/16 + %d in two round trips around that", inFlight),
		timedOut: "in which one was frozen or thawed, or a check timed out: 2L",
	}[g]
}

// most is how much a client gets in a window at most, of a limit whose windows admit no more
// than its rate. Where a gateway dies, it may get besides what was in flight.
func (g guarantee) most(limit int64, inFlight int) int {
	var s bounds.Situation
	switch g {
	case crashed:
		s.Crashes, s.InFlight = 1, int64(inFlight)
	case timedOut:
		s.Late = 1
	}
	return int(bounds.Bound(&weir.Limit{Algorithm: weir.SlidingLog, Rate: limit}, s))
}

// admission is one request that was admitted: at some moment from from to to,
// in Unix nanoseconds of the machine's clock, which all gateways count by.
type admission struct{ from, to int64 }

// span is a time, in Unix nanoseconds. Both ends belong to it.
type span struct{ from, to int64 }

func (s span) length() time.Duration { return time.Duration(s.to - s.from) }

func (s span) moments() lab.Span { return lab.Span{From: time.Unix(0, s.from), To: time.Unix(0, s.to)} }

// never is the end of what has not ended.
const never = math.MaxInt64

// occasions is when the guarantees besides the healthy one hold: a window is
// judged by the last that it holds a moment of.
type occasions [guarantees][]span

// by is the guarantee that judges a window.
func (o *occasions) by(window span) guarantee {
	for g := guarantees - 1; g > healthy; g-- {
		if near(o[g], window) {
			return g
		}
	}
	return healthy
}

func near(spans []span, s span) bool {
	return slices.ContainsFunc(spans, func(t span) bool { return s.from <= t.to && s.to >= t.from })
}

// finding is what was found in the windows that one guarantee judges.
type finding struct {
	windows  int // that held something
	most     int // what the one of them held that had the most besides what was in flight
	inFlight int // of that, what was admitted in two round trips around a crash
}

// fullest is what was found in the windows of all keys, by what judges them.
type fullest [guarantees]finding

// add judges the half-open windows of per that lab.Windows finds, and those that lie
// against an occasion. Every other window of its guarantee can be moved to one of these without
// losing an admission.
//
// rtt is how long a round trip takes. What was admitted within one before a crash may
// not have been in a copy yet, and within one after it the gateway that asked may not know of it.
func (found *fullest) add(admissions []admission, during *occasions, rtt, per time.Duration) {
	var edges []int64
	for _, spans := range during {
		for _, s := range spans {
			edges = append(edges, s.from-int64(per), s.to) // no admission is at never, or after it
		}
	}
	admission := func(i int) (from, to int64) { return admissions[i].from, admissions[i].to }
	for begin, held := range lab.Windows(len(admissions), admission, edges, int64(per)) {
		window := span{begin, begin + int64(per) - 1}
		by, inFlight := during.by(window), 0
		if by == crashed {
			inFlight = min(held, inFlightAt(admissions, during[crashed], rtt, window))
		}
		f := &found[by]
		if f.windows++; f.windows == 1 || held-inFlight > f.most-f.inFlight {
			f.most, f.inFlight = held, inFlight
		}
	}
}

// inFlightAt is how many admissions in a window may have been within a round trip of
// a crash.
func inFlightAt(admissions []admission, crashes []span, rtt time.Duration, window span) (n int) {
	for _, a := range admissions {
		if a.from >= window.from && a.to <= window.to && slices.ContainsFunc(crashes, func(c span) bool {
			return a.to >= c.from-int64(rtt) && a.from <= c.from+int64(rtt)
		}) {
			n++
		}
	}
	return n
}
