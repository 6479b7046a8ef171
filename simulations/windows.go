package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/bounds"
)

// subject identifies a count by its limit, key and region. If the limit has a Keep,
// there are also subjects that cover only some of the callers.
type subject struct {
	limit   int16
	key     int32
	region  string
	callers callers
}

// callers are some or all of the callers of a limit.
type callers uint8

const (
	allCallers callers = iota
	ordinary           // callers without Critical, whose limit is lower by Keep
	critical
)

// everywhere is the region in the subject of a Global limit.
const everywhere = "in all regions"

// asks has all checks of a subject, sorted by Asked.
type asks struct {
	subject
	l      *weir.Limit
	course *course // the course of the region; for a Global limit, the course of the region of its first check
	planet *planet // nil unless the limit is Global
	checks []Check // the checks of the whole journal
	of     []int32 // indices in checks
	admits []int32 // indices of the admitted checks, sorted by Asked
	ends   []int32 // indices of the admitted checks, sorted by Answered
	holds  []Held  // the holds of an in-flight limit, sorted by From
}

// situation returns the situation of a window of Per that begins at the time from, or at
// 0 if this time is negative.
func (a *asks) situation(from time.Duration) situation {
	from = max(0, from)
	if a.planet != nil {
		return a.planet.situation(a.l, from, from+a.l.Per)
	}
	return a.course.situation(a.l, from, from+a.l.Per)
}

// inFlight returns the units that may be in flight in a span, when authority moves or a
// node with authority dies.
func (a *asks) inFlight(from, to time.Duration) int64 {
	if a.planet != nil {
		return a.planet.inFlight(a.l, from, to, a.maxAdmitted)
	}
	return a.course.inFlight(a.l, from, to, a.maxAdmitted)
}

// bound returns the maximum number of units in a window of a situation. Windows of ordinary callers may
// begin with a check of a critical caller, and a crash may lose a sixteenth of the whole limit.
func (a *asks) bound(s situation) int64 {
	if a.callers != ordinary {
		return bounds.Bound(a.l, s.Situation)
	}
	l, whole := *a.l, bounds.Capacity(a.l)+a.l.Keep
	l.Calendar = weir.Day
	return bounds.Bound(&l, s.Situation) + int64(s.Crashes)*(whole/16-bounds.Capacity(a.l)/16)
}

// countPlaces returns the number of places at a time, and placeOf returns the place of a
// node. The places are the sides of the region, sorted by size in descending order, or
// all regions if the limit is Global.
func (a *asks) countPlaces(at time.Duration) int {
	if a.planet != nil {
		return len(a.planet.names)
	}
	return a.course.eraAt(at).sides
}

func (a *asks) placeOf(at time.Duration, node int16) int {
	if a.planet != nil {
		return a.planet.region(node)
	}
	return a.course.eraAt(at).rank(int(node))
}

// window is the number of units that were admitted in a span for certain. A unit is
// admitted at a time between Asked and Answered, and counts if both lie in the span. So
// the number never exceeds the true number, and lacks at most the units of the checks that
// were in progress at the ends of the span.
type window struct {
	from, to time.Duration
	units    int64
}

// eachWindow calls yield for each window of this length that begins when an admitted check
// was asked. No other window can hold more units.
func (a *asks) eachWindow(per time.Duration, yield func(w window)) {
	var units int64
	next := 0
	isShort := func(c *Check) bool { return c.Answered-c.Asked < per } // otherwise no window contains the check
	for _, i := range a.admits {
		first := &a.checks[i]
		for ; next < len(a.ends) && a.checks[a.ends[next]].Answered < first.Asked+per; next++ {
			if c := &a.checks[a.ends[next]]; isShort(c) {
				units += c.Units
			}
		}
		yield(window{first.Asked, first.Asked + per, units})
		if isShort(first) {
			units -= first.Units
		}
	}
}

// askedSince returns the checks of a list that were asked at or after a time. The list
// must be sorted by Asked.
func (a *asks) askedSince(list []int32, from time.Duration) []int32 {
	i, _ := slices.BinarySearchFunc(list, from, func(i int32, t time.Duration) int { return cmp.Compare(a.checks[i].Asked, t) })
	return list[i:]
}

// maxAdmitted returns the maximum number of units that may have been admitted in a span.
func (a *asks) maxAdmitted(from, to time.Duration) (units int64) {
	// No check is under way for longer than this.
	longest := 2*timeoutOf(a.course.scenario) + time.Second
	for _, at := range a.askedSince(a.admits, from-longest) {
		check := &a.checks[at]
		if check.Asked > to {
			break
		}
		if check.Answered >= from {
			units += check.Units
		}
	}
	return units
}

// densestSpan returns the span between two times in which the admitted units exceed the
// inflow most, and this excess. The inflow is Rate units in each Per. The
// function is for buckets, because only the bound of a bucket holds for spans of any length.
func (a *asks) densestSpan(from, to time.Duration) (most window, above float64) {
	var (
		units  int64
		sum    float64
		begins time.Duration
		last   time.Duration
	)
	pace := float64(a.l.Rate) / float64(a.l.Per)
	for _, i := range a.admits {
		check := &a.checks[i]
		if check.Asked < from || check.Answered >= to {
			continue
		}
		// The span ends at the latest answer so far, as if all units were admitted then.
		end := max(last, check.Answered)
		sum -= float64(end-last) * pace
		last = end
		if fresh := -float64(end-check.Asked) * pace; units == 0 || sum < fresh {
			sum, units, begins = fresh, 0, check.Asked
		}
		sum += float64(check.Units)
		units += check.Units
		if sum > above {
			above, most = sum, window{begins, end, units}
		}
	}
	return most, above
}
