package ratelimit

import (
	"math/bits"
	"time"

	"github.com/weir-go/weir"
)

// ResetAfter returns the time that clients are told to wait after a decision d of l. Clients of
// GitHub's API sleep until X-RateLimit-Reset if no units remain. Therefore the result then ends when
// a unit is available, and not when the whole limit is available. The result is never below
// Retry-After:
//
//	denied                    d.RetryAfter: the same request could be admitted
//	allowed, no units left    a unit is available
//	allowed, units left       d.ResetAfter: the whole limit is available
//
// For an allowed decision without units left, the result is d.ResetAfter, except for buckets: the
// d.ResetAfter of a window or a log without units left is at most the time until a unit is available.
// For a bucket, the level is computed from d.ResetAfter, and the result is the time until there is
// room for a unit. For a share of a bucket, the result may be longer than this time, by less than the
// time in which a unit drains. For a Global bucket, the result may be too short, because the part of
// the region is treated as the whole bucket.
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
	if d.Limit != capacity && d.Limit != capacity-limit.Keep {
		// The decision was made within a share, whose rate is unknown. The level is at most
		// Limit units, and its excess over Limit − 1 drains in at most 1/Limit of d.ResetAfter. The
		// result is too long by less than the time in which a unit drains.
		return (d.ResetAfter-1)/time.Duration(d.Limit) + 1
	}
	// The time in which Limit − 1 units drain, rounded down. The level is above Limit − 1.
	hi, lo := bits.Mul64(uint64(d.Limit-1), uint64(limit.Per))
	rest, _ := bits.Div64(hi, lo, uint64(limit.Rate))
	return max(1, d.ResetAfter-time.Duration(rest))
}

// calendarSlack is the maximum distance between a boundary of a calendar and a time that is computed
// from a decision: clocks differ, and a decision is in transit for some time.
const calendarSlack = time.Second / 2

// ResetAt returns the time at which ResetAfter has passed. The windows of a calendar end at a whole
// minute in every zone. For such a limit, a time within calendarSlack of a whole minute is rounded
// to that minute, because a different clock has determined the rest of the window some time ago.
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
