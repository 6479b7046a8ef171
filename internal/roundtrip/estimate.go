// Package roundtrip estimates how long a member takes to answer, as TCP does for
// its retransmission timer (RFC 6298, section 2).
package roundtrip

import "time"

// Estimate is the smoothed mean and the deviation of a member's round trips. The
// zero Estimate has seen none. It is not safe for concurrent use.
type Estimate struct {
	mean      time.Duration // SRTT
	deviation time.Duration // RTTVAR
}

// Add takes in one more round trip. What is not above zero counts as a nanosecond.
func (e *Estimate) Add(took time.Duration) {
	took = max(took, 1)
	if e.mean == 0 {
		e.mean, e.deviation = took, took/2
		return
	}
	e.deviation += ((e.mean - took).Abs() - e.deviation) / 4
	e.mean += (took - e.mean) / 8
}

// Mean returns the smoothed mean, SRTT, zero if no round trip was seen.
func (e *Estimate) Mean() time.Duration { return e.mean }

// Late returns the time after which an answer is late: SRTT + 4·RTTVAR, zero if no
// round trip was seen.
func (e *Estimate) Late() time.Duration { return e.mean + 4*e.deviation }
