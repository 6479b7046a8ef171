package main

import (
	"math"
	"slices"
	"time"
)

// admission is one request that was admitted: at some moment from from to to,
// in Unix nanoseconds of the machine's clock, which all gateways count by.
type admission struct{ from, to int64 }

// span is a time, in Unix nanoseconds. Both ends belong to it.
type span struct{ from, to int64 }

func (s span) length() time.Duration { return time.Duration(s.to - s.from) }

// never is the end of what has not ended.
const never = math.MaxInt64

// occasions is when the guarantees besides the healthy one hold: a window is
// judged by the last that it holds a moment of.
type occasions [guarantees][]span

// by is the guarantee that judges the window between two moments.
func (o *occasions) by(from, to int64) guarantee {
	for g := guarantees - 1; g > healthy; g-- {
		if near(o[g], span{from, to}) {
			return g
		}
	}
	return healthy
}

func near(spans []span, s span) bool {
	for _, t := range spans {
		if s.from <= t.to && s.to >= t.from {
			return true
		}
	}
	return false
}

// finding is what was found in the windows that one guarantee judges.
type finding struct {
	windows  int // that held something
	most     int // what the one of them held that had the most besides what was in flight
	inFlight int // of that, what was admitted in two round trips around a crash
}

// fullest judges the half-open windows of per: those that begin with an admission,
// and those that lie against an occasion. Every other window of its guarantee can
// be moved to one of these without losing an admission. An admission whose moment
// is known only to lie on both sides of a window's end is not held against it, so
// what this finds did happen.
//
// rtt is how long a round trip takes. What was admitted within one before a crash may
// not have been in a copy yet, and within one after it whoever asked may not know of it.
func fullest(admissions []admission, during *occasions, rtt, per time.Duration) [guarantees]finding {
	var begins, froms, tos []int64
	for _, a := range admissions {
		begins = append(begins, a.from)
		if a.to-a.from < int64(per) { // others are certainly in no window
			froms, tos = append(froms, a.from), append(tos, a.to)
		}
	}
	for _, spans := range during {
		for _, s := range spans {
			begins = append(begins, s.from-int64(per))
			if s.to != never {
				begins = append(begins, s.to)
			}
		}
	}
	slices.Sort(begins)
	slices.Sort(froms)
	slices.Sort(tos)

	var found [guarantees]finding
	for _, begin := range slices.Compact(begins) {
		end := begin + int64(per)
		ended, _ := slices.BinarySearch(tos, end)
		before, _ := slices.BinarySearch(froms, begin)
		if held := ended - before; held > 0 { // who began before has ended before end
			by, inFlight := during.by(begin, end-1), 0
			if by == crashed {
				inFlight = min(held, inFlightAt(admissions, during[crashed], rtt, span{begin, end - 1}))
			}
			f := &found[by]
			if f.windows++; f.windows == 1 || held-inFlight > f.most-f.inFlight {
				f.most, f.inFlight = held, inFlight
			}
		}
	}
	return found
}

// inFlightAt is how many admissions in a window may have been within a round trip of
// a crash.
func inFlightAt(admissions []admission, crashes []span, rtt time.Duration, window span) (n int) {
	for _, a := range admissions {
		if a.from < window.from || a.to > window.to {
			continue
		}
		for _, c := range crashes {
			if a.to >= c.from-int64(rtt) && a.from <= c.from+int64(rtt) {
				n++
				break
			}
		}
	}
	return n
}
