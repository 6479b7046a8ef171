package ratelimit

import (
	"math/bits"
	"time"

	"github.com/weir-go/weir"
)

// ResetAfter is what clients are told about when to come back, of l's decision d. Those
// of GitHub's API sleep until X-RateLimit-Reset once nothing remains, so it is never
// later than needed, and never sooner than Retry-After:
//
//	denied                     d.RetryAfter, when the same request could be admitted
//	allowed, nothing left      when one unit is there again
//	allowed, something left    d.ResetAfter, when the whole limit is there again
//
// The second is d.ResetAfter but for the buckets, whose level is known from it: they
// are told when the level has room for a unit. A region's part of a Global bucket is
// taken for the whole there, which can be too soon.
func ResetAfter(d *weir.Decision, l *weir.Limiter) time.Duration {
	if !d.Allowed {
		return d.RetryAfter
	}
	if d.Remaining > 0 || d.Limit <= 1 || d.ResetAfter <= 0 {
		return d.ResetAfter
	}
	limit := l.Limit()
	if limit.Algorithm != weir.TokenBucket && limit.Algorithm != weir.LeakyBucket {
		return d.ResetAfter
	}
	capacity := limit.Burst
	if capacity == 0 {
		capacity = limit.Rate
	}
	if d.Limit != capacity {
		// A share, whose rate is not known. Of its level, Limit units at most, what
		// is above Limit − 1 is at most an equal part: less than a unit too late.
		return (d.ResetAfter-1)/time.Duration(d.Limit) + 1
	}
	// The time that Limit − 1 units take to go, rounded down. The level is above that.
	hi, lo := bits.Mul64(uint64(capacity-1), uint64(limit.Per))
	rest, _ := bits.Div64(hi, lo, uint64(limit.Rate))
	return max(1, d.ResetAfter-time.Duration(rest))
}

// calendarSlack is how far from a calendar's boundary a moment may be that was computed
// from a decision: clocks differ, and a decision is some time on its way.
const calendarSlack = time.Second / 2

// ResetAt is the moment that ResetAfter is from now on. The windows of a calendar end at
// a whole minute in every zone, and so does it if it is that near to one: what is left
// of the window was told by another clock, and some time ago.
func ResetAt(now time.Time, d *weir.Decision, l *weir.Limiter) time.Time {
	after := ResetAfter(d, l)
	at := now.Add(after)
	if after > 0 && l.Limit().Calendar != weir.NoCalendar {
		if whole := at.Round(time.Minute); at.Sub(whole).Abs() <= calendarSlack {
			return whole
		}
	}
	return at
}
