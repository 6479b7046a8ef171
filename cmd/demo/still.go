package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// The measurement of the machine: if a sleep of stillInterval ends late by more than
// stillSlack, the machine stood still. A delay for that reason alone is not a stall.
const (
	stillInterval = 10 * time.Millisecond
	stillSlack    = 20 * time.Millisecond
)

// gatewaysStill returns when gateways of a region stood still, sorted by beginnings.
func (f *fleet) gatewaysStill(region int) (spans []span) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, inc := range f.all {
		if f.region(inc.gateway) == region {
			spans = append(spans, inc.still...)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.From, b.From) })
	return spans
}

// partsWithin returns the parts of the given spans that lie within another span, in the order of
// the given spans.
func partsWithin(in span, spans []span) (parts []span) {
	for _, s := range spans {
		if part := lab.Between(max(s.From, in.From), min(s.To, in.To)); part.To > part.From {
			parts = append(parts, part)
		}
	}
	return parts
}

// unsettled returns the time in which a check that was answered without authority may have
// changed counts, and whether a gateway stood still during the check. If a gateway stood
// still, the owner answers late, and the units that it granted are refunded. A copy refunds
// the newest units, which may be units of another check. The argument still is a result of
// gatewaysStill.
func unsettled(check span, still []span) (span, bool) {
	if len(partsWithin(check, still)) == 0 {
		return span{}, false
	}
	until := untilHealed(check).To
	for _, part := range partsWithin(lab.Between(check.From, never), still) {
		if part.From > until {
			break
		}
		until = max(until, untilHealed(part).To)
	}
	return lab.Between(check.From, until), true
}

// standStillTime returns how long the demo, as measured by l, or a gateway stood still during
// the span s. The spans of the gateway must not overlap.
func standStillTime(l *lab.SchedulingDelay, s span, gateway []span) time.Duration {
	sum := l.DelayWithin(s)
	for _, part := range partsWithin(s, gateway) {
		sum += part.Length() - l.DelayWithin(part) // counts the time only once in which both stood still
	}
	return sum
}

// stalls returns how many of these answers took longer than a bound, although neither the
// demo nor the gateway stood still. spanOf returns the judged span of an answer.
func (t *tally) stalls(all []answer, spanOf func(*answer) span, bound time.Duration) (n int) {
	t.fleet.mu.Lock()
	defer t.fleet.mu.Unlock()
	for i := range all {
		if t.waitAbove(&all[i], spanOf(&all[i]), bound) > 0 {
			n++
		}
	}
	return n
}

// slowest returns the longest wait for an answer of a gateway that was up, as judged by
// stalls: stalls counts answers for a bound if and only if slowest is above the bound.
func (t *tally) slowest() (longest time.Duration) {
	t.fleet.mu.Lock()
	defer t.fleet.mu.Unlock()
	longest = t.longest
	for i := range t.answers {
		if a := &t.answers[i]; !a.down && (a.err == nil || a.hasTimedOut()) {
			longest = max(longest, t.waitAbove(a, a.waited(), longest))
		}
	}
	return longest
}

// waitAbove returns the length of the span s without the stand-stills of the demo and of the
// gateway that sent the answer a. If the result would not be above the bound, it is 0. The
// caller must hold the fleet's mu.
func (t *tally) waitAbove(a *answer, s span, bound time.Duration) time.Duration {
	if s.Length() <= bound { // nearly all spans are this short, and a search for stand-stills costs more
		return 0
	}
	if wait := s.Length() - standStillTime(t.delay, s, a.to.still); wait > bound {
		return wait
	}
	return 0
}
