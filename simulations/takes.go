package main

import (
	"cmp"
	"slices"
	"time"
)

// askedAgain is how long a check takes at least that several members may have been asked. A node
// that passes it on waits for three quarters of what its asker does, or half: after so much of
// Timeout the third one gives up, and answers itself.
func askedAgain(s *Scenario) time.Duration { return timeoutOf(s) / 8 }

// The times of a lease, as packages asker and owner have them.
const (
	leaseSpent = 500 * time.Millisecond // time in which callers may receive units of the lease
	leaseKnown = 750 * time.Millisecond // time in which the node may return the other units
	leaseLasts = time.Second            // longer than both, even on the slowest link without loss
)

// ask is a request to the witness, as its caller saw it.
type ask struct {
	units    int64 // below zero given back
	from, to time.Duration
	done     bool // the answer grants it
	unsure   bool // several members may have been asked, or the caller heard no answer
	leased   bool // it was granted of a lease
}

// trouble is a time in which leases may be lost, both ends included.
type trouble struct{ from, to time.Duration }

// meets reports whether some trouble has a moment in common with a time.
func meets(troubles []trouble, from, to time.Duration) bool {
	return slices.ContainsFunc(troubles, func(t trouble) bool { return from <= t.to && t.from <= to })
}

// unheard compares the answers that callers saw with the spends of nodes, of one key. It returns
// the units that may be spent though no caller was granted them: spends that belong to no answer,
// from the first check on that several members may have carried out, or near a trouble, and
// refunds that no node carried out whole.
//
// Callers are granted all units of a lease within leaseLasts, or the rest comes back. So a lease
// adds nothing to the sum of the spends, unless it is lost: by a reset, or in a trouble, in which
// messages are lost or late or a node ends. The grants and returns of leases near a trouble are
// subtracted. Spends are ascending by time.
func unheard(asks []ask, spends []spent, troubles []trouble) (units int64) {
	asks = slices.Clone(asks)
	slices.SortStableFunc(asks, func(a, b ask) int { return cmp.Compare(a.from, b.from) })
	for _, s := range spends {
		if s.units == 0 { // it has heard of a reset
			troubles = append(slices.Clip(troubles), trouble{s.at, s.at})
		}
	}
	left, rest := pair(asks, spends)
	for i, a := range asks {
		if left[i] && a.units < 0 || a.leased && a.done && meets(troubles, a.to, a.to+leaseLasts-leaseSpent) {
			units -= a.units
		}
	}
	for _, s := range rest {
		switch {
		case s.units > 0 && meets(troubles, s.at, s.at+leaseLasts),
			s.units < 0 && meets(troubles, s.at, s.at+leaseLasts-leaseKnown):
			units += s.units
		case s.units > 0:
			most := int64(0) // of the check that it may belong to; the rest is a lease
			for _, a := range asks {
				if a.unsure && a.from <= s.at && a.units <= s.units {
					most = max(most, a.units)
				}
			}
			units += most
		}
	}
	return units
}

// pair pairs spends with the asks of as many units, which are ascending by their begin: each with
// the one that ends first, so that the others are left to later spends. It returns the asks, by
// index, and the spends that are left.
func pair(asks []ask, spends []spent) (left []bool, rest []spent) {
	left = slices.Repeat([]bool{true}, len(asks))
	var open []int // indexes of the asks that a node may carry out at the time of s
	next := 0
	for _, s := range spends {
		for ; next < len(asks) && asks[next].from <= s.at; next++ {
			if a := asks[next]; a.done && !a.leased || a.units < 0 { // it is carried out once
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
			left[open[best]] = false
			open = slices.Delete(open, best, best+1)
		case s.units != 0:
			rest = append(rest, s)
		}
	}
	return left, rest
}
