package testenv

import "testing"

// PickRace returns few under the race detector, and all otherwise: how often a test repeats what
// shows the detector nothing new.
func PickRace(few, all int) int {
	if Race {
		return few
	}
	return all
}

// SkipOneGoroutine skips a long test of what one goroutine does alone.
func SkipOneGoroutine(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("the race detector has nothing to see in what one goroutine does, and makes it ten times as long")
	}
}

// SkipAlike skips a long test in which the same goroutines meet as in another one, by
// that one's name.
func SkipAlike(t testing.TB, other string) {
	t.Helper()
	if Race {
		t.Skipf("the race detector sees the goroutines of this one in %s, and makes it ten times as long", other)
	}
}
