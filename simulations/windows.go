package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-go/weir"
)

// subject is what one count decides: a key of a limit in one region.
type subject struct {
	limit  int16
	key    int32
	region string
}

// everywhere stands for the region of a Global limit.
const everywhere = "in all regions"

// asks is all checks of one subject, ascending by Asked.
type asks struct {
	subject
	l      *weir.Limit
	course *course // of the region; of the first, if the limit is Global
	planet *planet // nil unless it is
	checks []Check // of the whole journal
	of     []int32 // indices in checks
	admits []int32 // those of them that were admitted, ascending by Asked
	ends   []int32 // the same, ascending by Answered
	holds  []Held  // of an in-flight limit, ascending by From
}

// situation returns the situation of a window of Per that begins at from, or at 0 if from is below.
func (a *asks) situation(from time.Duration) situation {
	from = max(0, from)
	if a.planet != nil {
		return a.planet.situation(a.l, from, from+a.l.Per)
	}
	return a.course.situation(a.l, from, from+a.l.Per)
}

// inFlight is what may be on its way in a span, when authority moves or dies.
func (a *asks) inFlight(from, to time.Duration) int64 {
	if a.planet != nil {
		return a.planet.inFlight(a.l, from, to, a.admitted)
	}
	return a.course.inFlight(a.l, from, to, a.admitted)
}

// places is how many places there are at a time for what is admitted, and place
// is that of a node: the sides of a region, those of most nodes first; of a Global
// limit, the regions.
func (a *asks) places(at time.Duration) int {
	if a.planet != nil {
		return len(a.planet.names)
	}
	return a.course.at(at).sides
}

func (a *asks) place(at time.Duration, node int16) int {
	if a.planet != nil {
		return a.planet.region(node)
	}
	return a.course.at(at).rank(int(node))
}

// window is units admitted in a span of time. All of them were admitted in it for
// certain: a unit is admitted somewhere between Asked and Answered, and counts
// where both lie in the span. So what is found is never above the truth, and falls
// short of it by what is under way at the span's ends.
type window struct {
	from, to time.Duration
	units    int64
}

// windows calls yield for each window of this length that begins where an
// admitted check was asked: no other can hold more.
func (a *asks) windows(per time.Duration, yield func(w window)) {
	var units int64
	next := 0
	isShort := func(c *Check) bool { return c.Answered-c.Asked < per } // else no window holds it
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

// since returns those of some checks, ascending by Asked, that were asked from a moment on.
func (a *asks) since(of []int32, from time.Duration) []int32 {
	i, _ := slices.BinarySearchFunc(of, from, func(i int32, t time.Duration) int { return cmp.Compare(a.checks[i].Asked, t) })
	return of[i:]
}

// admitted is how many units were admitted in a span at most.
func (a *asks) admitted(from, to time.Duration) (units int64) {
	// Nothing is under way for longer than a check may take.
	longest := 2*timeoutOf(a.course.scenario) + time.Second
	for _, at := range a.since(a.admits, from-longest) {
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

// densest is the span with the most units above what flows in at rate units a
// Per, among the admissions that lie between two moments: for the buckets, of
// which the healthy row speaks for any time.
func (a *asks) densest(from, to time.Duration) (most window, above float64) {
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
		// The span reaches to the latest answer so far, as if all were admitted then.
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
