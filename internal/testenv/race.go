package testenv

import "testing"

// PickRace returns the number of repetitions of a test: the argument few under the race detector, which
// learns no more from further repetitions, and the argument all otherwise.
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
		t.Skip("a single goroutine has no data race, and the race detector makes this test ten times as slow")
	}
}

// SkipAlike skips a long test under the race detector. The argument other names a test in which the race
// detector checks the same goroutines.
func SkipAlike(t testing.TB, other string) {
	t.Helper()
	if Race {
		t.Skipf("the race detector checks the same goroutines in %s, and makes this test ten times as slow", other)
	}
}
