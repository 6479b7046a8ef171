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
// taken for the whole there.
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
	// Of at most Limit units one takes an equal part to go at least, also where a share
	// of the limit counts, whose rate is not known to the unit.
	per := (d.ResetAfter-1)/time.Duration(d.Limit) + 1
	capacity := limit.Burst
	if capacity == 0 {
		capacity = limit.Rate
	}
	rate := uint64(limit.Rate)
	if d.Limit < capacity {
		rate = mulDiv(rate, uint64(d.Limit), uint64(capacity)) + 1
	}
	rest := mulDiv(uint64(d.Limit-1), uint64(limit.Per), rate)
	return min(per, d.ResetAfter-time.Duration(min(rest, uint64(d.ResetAfter)-1)))
}

// mulDiv is ⌊a·b/d⌋, or the largest uint64 if that is less.
func mulDiv(a, b, d uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= d {
		return 1<<64 - 1
	}
	q, _ := bits.Div64(hi, lo, d)
	return q
}
