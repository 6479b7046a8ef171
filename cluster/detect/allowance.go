package detect

import "time"

// Allowance is a rate with a burst: a token bucket. Time is an argument. After a clock has stepped back,
// no events are added until the clock passes its earlier time. An Allowance is not safe for concurrent
// use.
type Allowance struct {
	burst  float64   // maximum of left
	second float64   // number of events by which left grows in each second
	left   float64   // number of events that may still happen, as of the time in the field at
	at     time.Time // the latest time passed to Has
}

// NewAllowance returns an Allowance. The argument burst is the number of events that may happen at
// once, and the argument second is the number of events in each second after that.
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

// Take reports whether n events may happen now, and if so, counts them.
func (a *Allowance) Take(n int, now time.Time) bool {
	if !a.Has(n, now) {
		return false
	}
	a.left -= float64(n)
	return true
}
