package main

import (
	"cmp"
	"slices"
	"time"
)

// besides is how often at most a check may be carried out beside what answers it: by the
// owner, as one relay asks it, another one, and the stand-in; by that one; and by the next,
// where the first has just died.
const besides = 5

// leaseLasts is longer than any lease.
const leaseLasts = time.Second

// ask is what the witness was asked, as its caller saw it.
type ask struct {
	units    int64 // below zero given back
	from, to time.Duration
	done     bool // says the answer
	unsure   bool // several may have been asked, or nobody heard the answer
	leased   bool // it was spent of what the owner had lent
}

// unheard compares what callers saw with what nodes carried out, take by take, of one
// key. It returns units that may be spent though no caller was granted them: what others
// have carried out of a check besides, or of a check that failed, refunds that were not
// carried out whole, and what was lent, with a check or as a lease was renewed. And it
// returns those that nobody can have asked for: nodes spent them and no check explains it.
// Spends are ascending by time. takers is when nodes ended, with what they had borrowed, and
// links were cut, with what was to be given back through them.
func unheard(asks []ask, spends []spent, takers []time.Duration) (unheard, unasked int64) {
	asks = slices.Clone(asks)
	slices.SortStableFunc(asks, func(a, b ask) int { return cmp.Compare(a.from, b.from) })
	var open []*ask   // that may be carried out now
	var unsure []*ask // that may be later, or besides
	times := make(map[*ask]int)
	settle := func(until time.Duration) { // those that ended have not been carried out in time
		open = slices.DeleteFunc(open, func(a *ask) bool {
			ended := a.to < until
			if ended && a.units < 0 {
				unheard -= a.units
			}
			return ended
		})
	}
	next := 0
	for n, s := range spends {
		if s.units == 0 {
			continue // it has heard of a reset
		}
		for ; next < len(asks) && asks[next].from <= s.at; next++ {
			a := &asks[next]
			if a.done && !a.leased || a.units < 0 {
				open = append(open, a)
			}
			if a.unsure && a.units > 0 {
				unsure = append(unsure, a)
			}
		}
		settle(s.at)
		best := -1
		for i, a := range open { // the first to end, so that the others' takes are left to them
			if a.units == s.units && (best < 0 || a.to < open[best].to) {
				best = i
			}
		}
		if best >= 0 {
			open = slices.Delete(open, best, best+1)
			continue
		}
		if s.units < 0 {
			continue // of a take that came too late, or of a part of what was given back
		}
		alone := func(a *ask) bool { return a.units == s.units }
		withLease := func(a *ask) bool {
			return a.units > 0 && a.units < s.units && lends(asks, spends[n+1:], takers, s.at, s.units-a.units)
		}
		again := func(explains func(*ask) bool) bool {
			at := slices.IndexFunc(unsure, func(a *ask) bool { return times[a] < besides && explains(a) })
			if at >= 0 {
				times[unsure[at]]++
				unheard += s.units
			}
			return at >= 0
		}
		if again(alone) {
			continue
		}
		if at := slices.IndexFunc(open, withLease); at >= 0 {
			unheard += s.units - open[at].units
			open = slices.Delete(open, at, at+1)
			continue
		}
		if again(withLease) {
			continue
		}
		if renews(asks, s.at) && lends(asks, spends[n+1:], takers, s.at, s.units) {
			unheard += s.units
			continue
		}
		unasked += s.units
	}
	for _, a := range asks[next:] {
		if a.units < 0 {
			unheard -= a.units
		}
	}
	settle(never)
	return unheard, unasked
}

// renews reports whether a lease may be renewed at a time, which no check asks for: some of
// it has been granted.
func renews(asks []ask, at time.Duration) bool {
	return slices.ContainsFunc(asks, func(a ask) bool { return a.leased && a.to <= at && at <= a.to+leaseLasts })
}

// lends reports whether units may have been debited at a time for a lease: before it has
// ended some are granted of it, or come back, or the count is reset, a node ends or a link is
// cut, any of which takes a lease that nothing was granted of.
func lends(asks []ask, later []spent, takers []time.Duration, at time.Duration, units int64) bool {
	lives := func(when time.Duration) bool { return when >= at && when <= at+leaseLasts }
	granted := func(a ask) bool { return a.leased && lives(a.to) }
	reset := func(s spent) bool { return s.units == 0 && lives(s.at) }
	returned := func(s spent) bool {
		return s.units < 0 && -s.units <= units && lives(s.at) && !wereAsked(asks, later, s)
	}
	return slices.ContainsFunc(asks, granted) || slices.ContainsFunc(later, returned) ||
		slices.ContainsFunc(later, reset) || slices.ContainsFunc(takers, lives)
}

// wereAsked reports whether a refund is one that callers asked for: there are as many of its
// units as asks that were under way.
func wereAsked(asks []ask, spends []spent, refund spent) bool {
	var from, to time.Duration
	asked := 0
	for _, a := range asks {
		if a.units == refund.units && a.from <= refund.at && refund.at <= a.to {
			if asked == 0 {
				from, to = a.from, a.to
			}
			asked, from, to = asked+1, min(from, a.from), max(to, a.to)
		}
	}
	alike := 0
	for _, s := range spends {
		if s.units == refund.units && from <= s.at && s.at <= to {
			alike++
		}
	}
	return asked > 0 && alike <= asked
}
