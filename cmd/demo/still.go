package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/lab"
)

// What a run measures of the machine: a sleep of stillInterval that ends late by more than
// stillSlack is a time when the machine stood still. What takes long for that reason alone
// is no stall.
const (
	stillInterval = 10 * time.Millisecond
	stillSlack    = 20 * time.Millisecond
)

// gatewaysStill returns when some gateway of a region stood still, in the order of time,
// and apart.
func (f *fleet) gatewaysStill(region int) (apart []span) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var spans []span
	for _, inc := range f.all {
		if f.region(inc.gateway) == region {
			spans = append(spans, inc.still...)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.From, b.From) })
	for _, s := range spans {
		if last := len(apart) - 1; last >= 0 && s.From <= apart[last].To {
			apart[last].To = max(apart[last].To, s.To)
		} else {
			apart = append(apart, s)
		}
	}
	return apart
}

// within returns the parts of these spans that are in another one. They are in the order of
// time, and apart.
func within(in span, spans []span) (parts []span) {
	for _, s := range spans {
		if part := (lab.Between(max(s.From, in.From), min(s.To, in.To))); part.To > part.From {
			parts = append(parts, part)
		}
	}
	return parts
}

// unsettled returns for how long a check may have changed counts that was answered without
// authority while a gateway stood still, and false if none did. The owner answers late then, and
// its units are given back. A copy gives back the newest units, whichever these are. still is when
// gateways stood still.
func unsettled(check span, still []span) (span, bool) {
	if len(within(check, still)) == 0 {
		return span{}, false
	}
	until := untilHealed(check).To
	for _, part := range within(lab.Between(check.From, never), still) {
		if part.From > until {
			break
		}
		until = max(until, untilHealed(part).To)
	}
	return lab.Between(check.From, until), true
}

// stood returns for how much of a span the demo stood still, as l has measured, or gateways
// did, at these times, which are apart.
func stood(l *lab.SchedulingDelay, s span, gateways []span) time.Duration {
	still := func(s span) time.Duration { return l.Within(s.Span().From, s.Span().To) }
	sum := still(s)
	for _, part := range within(s, gateways) {
		sum += part.Length() - still(part) // that counts once
	}
	return sum
}

// stalls returns how many of these answers took longer than a bound, by what is looked at of
// each, and not because the demo or the gateway stood still.
func (t *tally) stalls(all []answer, of func(*answer) span, bound time.Duration) (n int) {
	t.fleet.mu.Lock()
	defer t.fleet.mu.Unlock()
	for i := range all {
		if t.waitAbove(&all[i], of(&all[i]), bound) > 0 {
			n++
		}
	}
	return n
}

// slowest returns the longest wait for an answer of a gateway that was up, as stalls judges
// it: stalls of a bound counts answers if and only if it is above the bound.
func (t *tally) slowest() (longest time.Duration) {
	t.fleet.mu.Lock()
	defer t.fleet.mu.Unlock()
	longest = t.longest
	for i := range t.answers {
		if a := &t.answers[i]; !a.down && (a.err == nil || a.gaveUp()) {
			longest = max(longest, t.waitAbove(a, a.waited(), longest))
		}
	}
	return longest
}

// waitAbove returns the length of s, without the times in which the demo or the gateway of a
// stood still, or zero if that is not above a bound. The caller must hold the fleet's mu.
func (t *tally) waitAbove(a *answer, s span, bound time.Duration) time.Duration {
	if s.Length() <= bound { // nearly all spans are this short, and it costs more to search for such times
		return 0
	}
	if wait := s.Length() - stood(t.lateness, s, a.to.still); wait > bound {
		return wait
	}
	return 0
}
