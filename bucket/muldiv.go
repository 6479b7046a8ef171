package bucket

import (
	"math"
	"math/bits"
	"time"
)

// mulDiv is ⌊a·b/d⌋, or the largest uint64 if that is less or d is zero.
func mulDiv(a, b, d uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= d {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, d)
	return q
}

// mulDivUp is ⌈(a·b + c)/d⌉, or the largest uint64 if that is less or d is zero.
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

// add is a + b, or the largest uint64 if that is less.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// sub is a − b, or zero if that is more.
func sub(a, b uint64) uint64 { return a - min(a, b) }

// since is how long now is after at: zero if it is before.
func since(at, now int64) uint64 {
	if now <= at {
		return 0
	}
	return uint64(now) - uint64(at)
}

// after is at + d, or the end of time if that is sooner.
func after(at int64, d uint64) int64 {
	if d > since(at, math.MaxInt64) {
		return math.MaxInt64
	}
	return int64(uint64(at) + d)
}

// before is at − d, or the beginning of time if that is later.
func before(at int64, d uint64) int64 {
	if d > since(math.MinInt64, at) {
		return math.MinInt64
	}
	return int64(uint64(at) - d)
}

// until is how long it is from now to at + d: zero if that is past, and the
// longest duration if it is farther.
func until(at int64, d uint64, now int64) time.Duration {
	d = add(sub(d, since(at, now)), since(now, at))
	return time.Duration(min(d, math.MaxInt64))
}
