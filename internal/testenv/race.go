package testenv

import "testing"

// PickRace returns the number of repetitions of a test: few under the race detector, which learns
// no more from further repetitions, and all otherwise.
func PickRace(few, all int) int {
	if Race {
		return few
	}
	return all
}

// SkipOneGoroutine skips a long test of a single goroutine under the race detector.
func SkipOneGoroutine(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("the race detector has nothing to see in what one goroutine does, and makes it ten times as long")
	}
}

// SkipAlike skips a long test under the race detector, because the goroutines of the test named
// other access the same memory.
func SkipAlike(t testing.TB, other string) {
	t.Helper()
	if Race {
		t.Skipf("the race detector sees the goroutines of this one in %s, and makes it ten times as long", other)
	}
}
