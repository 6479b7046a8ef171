package detect

import "time"

// Allowance is a rate with a burst. Time is an argument. No events are returned for a time before
// the latest time, so that a clock that steps back returns no event twice. An Allowance is not safe
// for concurrent use.
type Allowance struct {
	burst  float64
	second float64 // returned in each second
	left   float64
	at     time.Time
}

// NewAllowance returns an Allowance for burst events at once, and second events in each second
// after that.
func NewAllowance(burst, second float64) *Allowance {
	return &Allowance{burst: burst, second: second, left: burst}
}

// Has reports whether n events may happen now.
func (a *Allowance) Has(n int, now time.Time) bool {
	if !a.at.IsZero() && now.After(a.at) {
		a.left = min(a.burst, a.left+now.Sub(a.at).Seconds()*a.second)
	}
	if a.at.IsZero() || now.After(a.at) {
		a.at = now
	}
	return a.left >= float64(n)
}

// Take records that n events happen now, and reports true, if they may.
func (a *Allowance) Take(n int, now time.Time) bool {
	if !a.Has(n, now) {
		return false
	}
	a.left -= float64(n)
	return true
}
