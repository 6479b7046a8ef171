package bucket

import (
	"math"
	"math/bits"
	"time"
)

// mulDiv returns ⌊a·b/d⌋. If the result does not fit, or if d is zero, it returns the largest uint64.
func mulDiv(a, b, d uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= d {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, d)
	return q
}

// mulDivUp returns ⌈(a·b + c)/d⌉. If the result does not fit, or if d is zero, it returns the
// largest uint64.
func mulDivUp(a, b, c, d uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(lo, c, 0)
	hi += carry
	if hi >= d {
		return math.MaxUint64
	}
	q, r := bits.Div64(hi, lo, d)
	if r > 0 && q < math.MaxUint64 {
		q++
	}
	return q
}

// add returns a + b, or the largest uint64 if the sum does not fit.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// sub returns a − b, or zero if b is larger than a.
func sub(a, b uint64) uint64 { return a - min(a, b) }

// timeSince returns now − at, or zero if now is less than at.
func timeSince(at, now int64) uint64 {
	if now <= at {
		return 0
	}
	return uint64(now) - uint64(at)
}

// after returns at + d, or the largest int64 if the sum does not fit.
func after(at int64, d uint64) int64 {
	if d > timeSince(at, math.MaxInt64) {
		return math.MaxInt64
	}
	return int64(uint64(at) + d)
}

// before returns at − d, or the smallest int64 if the difference does not fit.
func before(at int64, d uint64) int64 {
	if d > timeSince(math.MinInt64, at) {
		return math.MinInt64
	}
	return int64(uint64(at) - d)
}

// timeUntil returns at + d − now. It returns zero if the difference is negative, and the largest
// Duration if the difference does not fit.
func timeUntil(at int64, d uint64, now int64) time.Duration {
	d = add(sub(d, timeSince(at, now)), timeSince(now, at))
	return time.Duration(min(d, math.MaxInt64))
}
