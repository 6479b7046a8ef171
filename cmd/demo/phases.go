package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// regionNames are those of a run with regions, as many as are wanted.
var regionNames = []string{"eu", "us", "ap", "sa"}

// Regions with a part of their own in what happens.
const (
	firstBusy = 0 // all demand moves here,
	thenBusy  = 1 // and then here; and this one is cut off while it has all
	lonely    = 2 // of the user of the small limit, where nobody else asks then
)

// phase is a part of a run with regions: what begins at a time.
type phase struct {
	name  string
	after time.Duration // from the beginning of traffic
	asks  []int         // by region, out of their sum, what is sent there of all traffic
	cut   bool          // thenBusy is cut off from the others
	moved int           // the region that all demand has moved to, -1 if it has not
	began int64         // in Unix nanoseconds; 0 if it has not
}

// allAsk is how the traffic is spread while all regions ask.
var allAsk = []int{5, 3, 2, 2}

// journey is what happens in a run with regions, spread over it.
func journey(regions []string, duration time.Duration) []phase {
	at := func(percent int) time.Duration { return duration * time.Duration(percent) / 100 }
	all := allAsk[:len(regions)]
	only := func(region int) []int {
		asks := make([]int, len(regions))
		asks[region] = 1
		return asks
	}
	others := slices.Delete(slices.Clone(regions), thenBusy, thenBusy+1)
	return []phase{
		{name: "all regions ask", asks: all, moved: -1},
		{name: "demand moves: all of it to " + regions[firstBusy], after: at(17), asks: only(firstBusy), moved: firstBusy},
		{name: fmt.Sprintf("demand moves: all of it from %s to %s", regions[firstBusy], regions[thenBusy]), after: at(30), asks: only(thenBusy), moved: thenBusy},
		{name: fmt.Sprintf("cut: %s, which has nearly all, is cut off from %s, and all ask again", regions[thenBusy], strings.Join(others, " and ")), after: at(43), asks: all, cut: true, moved: -1},
		{name: "heal: all regions reach each other again", after: at(87), asks: all, moved: -1},
	}
}

// Of the small limit.
const (
	smallRate = 5
	smallPer  = time.Minute
)

// smallAt is when its user comes in a run of this length, before the cut. It does
// not come in a short one: until nothing can be left of what was granted before the
// regions started, the first check of a key has to wait for their answers.
func smallAt(duration time.Duration) (at time.Duration, ok bool) {
	at = duration * 38 / 100
	return at, at >= returned
}

// Of a run with regions.
const (
	customers = 2
	// planetPer is the limits' Per: beside it, the way to another region and back is
	// short.
	planetPer = 2 * time.Second
	// localPart is which part of the requests meets the Regional limit and not the
	// Global one.
	localPart = 4
	// patience is Config.Timeout there: longer than to another region and back, so
	// that a check which waited for one would be seen to.
	patience = 250 * time.Millisecond
	// returned is how long a region that is cut off can keep what others granted it
	// from them: a term of 10 s and its margin.
	returned = 11250 * time.Millisecond
)

// localRate is the Regional limit beside a Global one.
func localRate(limit int64) int64 { return max(1, limit/10) }

// leastRate is how many requests a second are five times what the limits grant: with
// less some of it is left because nobody comes for it in time.
func leastRate(limit int64, per time.Duration) int {
	granted := float64(customers*limit) / per.Seconds()
	return int(math.Ceil(5 * granted * localPart / (localPart - 1)))
}

const (
	smallPath = "/small"
	localPath = "/local"
)
