package detect

import "time"

// RoundTrips estimates the round-trip time of a member, as TCP does for its retransmission
// timer (RFC 6298, section 2). The zero RoundTrips has no round trip. A RoundTrips is not
// safe for concurrent use.
type RoundTrips struct {
	mean      time.Duration // SRTT
	deviation time.Duration // RTTVAR
}

// Record adds a round trip. A duration of zero or less counts as a nanosecond.
func (r *RoundTrips) Record(took time.Duration) {
	took = max(took, 1)
	if r.mean == 0 {
		r.mean, r.deviation = took, took/2
		return
	}
	r.deviation += ((r.mean - took).Abs() - r.deviation) / 4
	r.mean += (took - r.mean) / 8
}

// Mean returns the smoothed mean, SRTT. It is zero if no round trip was recorded.
func (r *RoundTrips) Mean() time.Duration { return r.mean }

// Timeout returns the time after which an answer is late: SRTT + 4·RTTVAR. It is zero if no
// round trip was recorded.
func (r *RoundTrips) Timeout() time.Duration { return r.mean + 4*r.deviation }
