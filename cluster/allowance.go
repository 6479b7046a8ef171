package cluster

import "time"

// allowance is a rate with a burst. Time is an argument, and a time before the last one
// counts as none, so that a clock that steps back gives nothing twice. It is not safe for
// concurrent use.
type allowance struct {
	burst  float64
	second float64 // what comes back in one
	left   float64
	at     time.Time
}

func newAllowance(burst, second float64) *allowance {
	return &allowance{burst: burst, second: second, left: burst}
}

// has reports whether n may come now.
func (a *allowance) has(n int, now time.Time) bool {
	if !a.at.IsZero() && now.After(a.at) {
		a.left = min(a.burst, a.left+now.Sub(a.at).Seconds()*a.second)
	}
	if a.at.IsZero() || now.After(a.at) {
		a.at = now
	}
	return a.left >= float64(n)
}

// take is has, and they have come.
func (a *allowance) take(n int, now time.Time) bool {
	if !a.has(n, now) {
		return false
	}
	a.left -= float64(n)
	return true
}
