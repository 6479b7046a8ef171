package wire

import "time"

// clampDuration returns n times unit. It returns 0 if n is negative, and the maximum, the argument most,
// if the product is above it. The arguments unit and most must be above 0. The result never overflows, so no
// sender decides how long this process waits or remembers.
func clampDuration[N int64 | uint16 | uint32 | uint64](n N, unit, most time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	if uint64(n) > uint64(most/unit) {
		return most
	}
	return time.Duration(n) * unit
}
