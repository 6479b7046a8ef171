package main

import (
	"slices"
	"time"
)

// askedAgain is how long a check takes at least that several members may have been asked. A node
// that passes it on waits for three quarters of what its asker does, or half: after so much of
// Timeout the third one gives up, and answers itself.
func askedAgain(s *Scenario) time.Duration { return timeoutOf(s) / 8 }

// doubt is a check of so many units that several members may have carried out, until a message that was
// sent at its end has arrived.
type doubt struct {
	from, to time.Duration
	units    int64
}

// covers reports whether s can be a spend of a member for the check. The delay of a message is at most way.
func (d doubt) covers(s spent, way time.Duration) bool {
	return s.units == d.units && s.at >= d.from && s.at <= d.to+way
}

// leaseLasts is longer than the time in which callers may receive units of a lease, and its node may
// return the other units, even on the slowest link without loss.
const leaseLasts = time.Second

// trouble is a time in which leases may be lost, both ends included.
type trouble struct{ from, to time.Duration }

// meets reports whether some trouble has a moment in common with a time.
func meets(troubles []trouble, from, to time.Duration) bool {
	return slices.ContainsFunc(troubles, func(t trouble) bool { return from <= t.to && t.from <= to })
}

// unheard returns an upper bound for the units of one key that were spent without an answer to a caller. It
// adds the spends that a doubt covers, the spends near a trouble, and the refunds that no node applied. In a
// trouble messages are lost or late, or a node ends.
//
// Callers are granted all units of a lease within leaseLasts, or the rest comes back. So a lease
// adds nothing to the sum of the spends, unless it is lost: by a reset, or in a trouble.
func unheard(doubts []doubt, way time.Duration, refunds int64, spends []spent, troubles []trouble) (units int64) {
	for _, s := range spends {
		if s.units == 0 { // it has heard of a reset
			troubles = append(slices.Clip(troubles), trouble{s.at, s.at})
		}
	}
	for _, s := range spends {
		refunds += min(0, s.units)
		if s.units > 0 && (meets(troubles, s.at, s.at+leaseLasts) || slices.ContainsFunc(doubts, func(d doubt) bool { return d.covers(s, way) })) {
			units += s.units
		}
	}
	return units + max(0, refunds)
}
