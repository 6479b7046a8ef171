package main

import (
	"slices"
	"time"
)

// askedAgain is how long a check takes at least that several members may have been asked. A node
// that passes it on waits for three quarters of what its asker does, or half: after so much of
// Timeout the third one gives up, and answers itself.
func askedAgain(s *Scenario) time.Duration { return timeoutOf(s) / 8 }

// besides is how often at most a check may be carried out beside what answers it: by the
// owner, as one relay asks it, another one, and the stand-in; by that one; and by the next,
// where the first has just died.
const besides = 5

// leaseLasts is longer than the time in which callers may receive units of a lease, and its node may
// return the other units, even on the slowest link without loss.
const leaseLasts = time.Second

// trouble is a time in which leases may be lost, both ends included.
type trouble struct{ from, to time.Duration }

// meets reports whether some trouble has a moment in common with a time.
func meets(troubles []trouble, from, to time.Duration) bool {
	return slices.ContainsFunc(troubles, func(t trouble) bool { return from <= t.to && t.from <= to })
}

// unheard bounds the units of one key that may be spent though no caller was granted them: those of
// checks that several members may have carried out, those that were spent near a trouble, in which
// messages are lost or late or a node ends, and refunds that no node carried out whole.
//
// Callers are granted all units of a lease within leaseLasts, or the rest comes back. So a lease
// adds nothing to the sum of the spends, unless it is lost: by a reset, or in a trouble.
func unheard(unsure, refunds int64, spends []spent, troubles []trouble) (units int64) {
	for _, s := range spends {
		if s.units == 0 { // it has heard of a reset
			troubles = append(slices.Clip(troubles), trouble{s.at, s.at})
		}
	}
	for _, s := range spends {
		refunds += min(0, s.units)
		if s.units > 0 && meets(troubles, s.at, s.at+leaseLasts) {
			units += s.units
		}
	}
	return units + besides*unsure + max(0, refunds)
}
