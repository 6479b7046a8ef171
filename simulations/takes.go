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

// askedAgain is how long a check takes at least that several members may have been asked. A node
// that passes it on waits for three quarters of what its asker does, or half: after so much of
// Timeout the third one gives up, and answers itself.
func askedAgain(s *Scenario) time.Duration { return timeoutOf(s) / 8 }

// What a lease is, as packages asker and owner have it.
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
	pairs, rest := pair(asks, spends)
	unheard = pairs.given(rest, troubles)
	hot := heats(asks)
	times := make([]int, len(asks)) // that each was carried out besides
	leases := func(s spent, of int64) bool { return of >= 0 && s.units-of >= leastLent && s.at >= hot }
	for _, n := range rest {
		s := spends[n]
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
			continue // given above
		}
		if of := again(func(of int64) bool { return of == s.units }); of > 0 {
			unheard += of
			continue
		}
		lost, lent := meets(troubles, s.at, s.at+leaseLasts), s.units
		if of := pairs.carry(n, func(of int64) bool { return of == s.units || leases(s, of) }, make(map[int]bool)); of > 0 {
			lent -= of
		} else if !leases(s, 0) || !lost && !renews(asks, s.at) {
			of := again(func(of int64) bool { return leases(s, of) })
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

// pairs is which spend carries out each ask, by its index; -1 if none.
type pairs struct {
	asks   []ask
	spends []spent
	of     []int
}

// asked reports whether an ask is carried out once, at its answer at the latest.
func (a *ask) asked() bool { return a.done && !a.leased || a.units < 0 }

// pair pairs takes and refunds with the asks of as many units, and returns the spends that
// are left: each with that which ends first, so that the others are left to later ones. Asks
// are ascending by their begin.
func pair(asks []ask, spends []spent) (p *pairs, rest []int) {
	p = &pairs{asks, spends, slices.Repeat([]int{-1}, len(asks))}
	var open []int // that may be carried out now
	next := 0
	for n, s := range spends {
		for ; next < len(asks) && asks[next].from <= s.at; next++ {
			if asks[next].asked() {
				open = append(open, next)
			}
		}
		open = slices.DeleteFunc(open, func(i int) bool { return asks[i].to < s.at })
		best := -1
		for at, i := range open {
			if asks[i].units == s.units && (best < 0 || asks[i].to < asks[open[best]].to) {
				best = at
			}
		}
		switch {
		case best >= 0:
			p.of[open[best]] = n
			open = slices.Delete(open, best, best+1)
		case s.units != 0:
			rest = append(rest, n)
		}
	}
	return p, rest
}

// given is the units of refunds that nobody carried out, less those of leases that may have
// been lost and were not: callers were granted them, or they came back.
func (p *pairs) given(rest []int, troubles []trouble) (units int64) {
	for i, a := range p.asks {
		switch {
		case a.units < 0 && p.of[i] < 0:
			units -= a.units
		case a.leased && a.done && meets(troubles, a.to, a.to+leaseLasts-leaseSpent):
			units -= a.units
		}
	}
	for _, n := range rest {
		if s := p.spends[n]; s.units < 0 && meets(troubles, s.at, s.at+leaseLasts-leaseKnown) {
			units += s.units
		}
	}
	return units
}

// carry pairs a spend with an ask that fits. The spend that was paired with it goes on to
// another of as many units, as in any bipartite matching. It returns the ask's units, 0 if
// none fits.
func (p *pairs) carry(n int, fits func(of int64) bool, tried map[int]bool) (units int64) {
	at := p.spends[n].at
	for i := range p.asks {
		a := &p.asks[i]
		if a.from > at {
			break
		}
		if !a.asked() || at > a.to || tried[i] || !fits(a.units) {
			continue
		}
		tried[i] = true
		if p.of[i] < 0 || p.carry(p.of[i], func(of int64) bool { return of == a.units }, tried) > 0 {
			p.of[i] = n
			return a.units
		}
	}
	return 0
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
