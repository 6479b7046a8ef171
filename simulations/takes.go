package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// besides is how often at most a check may be carried out beside what answers it: by the
// owner, as one relay asks it, another one, and the stand-in; by that one; and by the next,
// where the first has just died.
const besides = 5

// What a lease is, as the root's lease.go, heat.go and lent.go have it.
const (
	leaseSpent = 500 * time.Millisecond // how long callers are granted of one at most
	leaseKnown = 750 * time.Millisecond // and how long it may come back
	leaseLasts = time.Second            // longer than either, on the slowest way that loses nothing
	leastLent  = 2                      // units
	// A key is lent once the asks of it weigh so much: each weighs 1, and 1/e of what it
	// did after hotFor, at most.
	hotWeighs = 6
	hotFor    = 2048 * time.Millisecond
)

// ask is what the witness was asked, as its caller saw it.
type ask struct {
	units    int64 // below zero given back
	from, to time.Duration
	done     bool // says the answer
	unsure   bool // several may have been asked, or nobody heard the answer
	leased   bool // it was spent of what the owner had lent
}

// trouble is a time in which leases may be lost, both ends included.
type trouble struct{ from, to time.Duration }

// meets reports whether some trouble has a moment in common with a time.
func meets(troubles []trouble, from, to time.Duration) bool {
	return slices.ContainsFunc(troubles, func(t trouble) bool { return from <= t.to && t.from <= to })
}

// unheard compares what callers saw with what nodes carried out, take by take, of one
// key. It returns units that may be spent though no caller was granted them: what others
// have carried out of a check besides, or of a check that failed, refunds that were not
// carried out whole, and leases that may be lost. And it returns those that nobody can have
// asked for: nodes spent them and no check explains it.
//
// A lease is spent with a check, or as one is renewed, which no check asks for. Callers are
// granted all of it within leaseLasts or it comes back, so that it adds nothing to the sum
// of what nodes spent, unless it is lost: by a reset, or in a trouble, in which messages are
// lost or late or a node ends. What is granted of leases in a trouble or just before, or
// comes back then, is of such leases. Spends are ascending by time.
func unheard(asks []ask, spends []spent, troubles []trouble) (unheard, unasked int64) {
	asks = slices.Clone(asks)
	slices.SortStableFunc(asks, func(a, b ask) int { return cmp.Compare(a.from, b.from) })
	for _, s := range spends {
		if s.units == 0 { // it has heard of a reset
			troubles = append(slices.Clip(troubles), trouble{s.at, s.at})
		}
	}
	left, rest := alone(asks, spends)
	for _, a := range left {
		unheard -= min(0, a.units)
	}
	for _, a := range asks {
		if a.leased && a.done && meets(troubles, a.to, a.to+leaseLasts-leaseSpent) {
			unheard -= a.units
		}
	}
	hot := heats(asks)
	times := make([]int, len(asks)) // that each was carried out besides
	for _, s := range rest {
		lends := func(units int64) bool { return units >= leastLent && s.at >= hot }
		again := func(fits func(of int64) bool) (units int64) {
			for i, a := range asks {
				if a.unsure && a.units > 0 && a.from <= s.at && times[i] < besides && fits(a.units) {
					times[i]++
					return a.units
				}
			}
			return 0
		}
		if s.units < 0 {
			if meets(troubles, s.at, s.at+leaseLasts-leaseKnown) {
				unheard += s.units
			}
			continue
		}
		if of := again(func(of int64) bool { return of == s.units }); of > 0 {
			unheard += of
			continue
		}
		lost, lent := meets(troubles, s.at, s.at+leaseLasts), s.units
		if at := first(left, s.at, func(of int64) bool { return lends(s.units - of) }); at >= 0 {
			lent -= left[at].units
			left = slices.Delete(left, at, at+1)
		} else if !lends(lent) || !lost && !renews(asks, s.at) {
			of := again(func(of int64) bool { return lends(s.units - of) })
			if of == 0 {
				unasked += s.units
				continue
			}
			unheard += of
			lent -= of
		}
		if lost {
			unheard += lent
		}
	}
	return unheard, unasked
}

// alone pairs takes and refunds with the asks that they carry out. It returns the asks
// without a spend, and the spends without an ask.
func alone(asks []ask, spends []spent) (left []ask, rest []spent) {
	var open []ask // that may be carried out now
	next := 0
	for _, s := range spends {
		for ; next < len(asks) && asks[next].from <= s.at; next++ {
			if a := asks[next]; a.done && !a.leased || a.units < 0 {
				open = append(open, a)
			}
		}
		open = slices.DeleteFunc(open, func(a ask) bool {
			if a.to < s.at {
				left = append(left, a)
			}
			return a.to < s.at
		})
		at := first(open, s.at, func(units int64) bool { return units == s.units })
		switch {
		case at >= 0:
			open = slices.Delete(open, at, at+1)
		case s.units != 0:
			rest = append(rest, s)
		}
	}
	for _, a := range asks[next:] {
		if a.units < 0 {
			left = append(left, a)
		}
	}
	return append(left, open...), rest
}

// first is which of the asks that fit and are under way at a time ends first, so that the
// spends of others are left to them; -1 if none is.
func first(asks []ask, at time.Duration, fits func(units int64) bool) int {
	best := -1
	for i, a := range asks {
		if a.from <= at && at <= a.to && fits(a.units) && (best < 0 || a.to < asks[best].to) {
			best = i
		}
	}
	return best
}

// heats is when a key has first been asked for so often that it may be lent; never, if it
// was not. Asks are ascending by time.
func heats(asks []ask) time.Duration {
	weight, before := 0.0, time.Duration(0)
	for _, a := range asks {
		if a.leased || a.units < 0 {
			continue
		}
		weight = weight*math.Exp(-float64(a.from-before)/float64(hotFor)) + 1
		if before = a.from; weight >= hotWeighs {
			return a.from
		}
	}
	return never
}

// renews reports whether a lease may be renewed at a time, which no check asks for: some of
// it has been granted.
func renews(asks []ask, at time.Duration) bool {
	return slices.ContainsFunc(asks, func(a ask) bool { return a.leased && a.to <= at && at <= a.to+leaseLasts })
}
