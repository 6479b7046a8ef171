package wire

import "time"

// clampDuration returns n units of time, 0 if n is negative, and most if n units are more than most.
// unit and most must be above 0. The result never overflows, so no sender decides how long this
// process waits or remembers.
func clampDuration[N int64 | uint16 | uint32 | uint64](n N, unit, most time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	if uint64(n) > uint64(most/unit) {
		return most
	}
	return time.Duration(n) * unit
}
