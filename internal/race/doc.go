// Package race tells tests whether the race detector is on.
//
// With it every access to memory is watched, which makes a test some seven to ten times
// as slow, has the scheduler pick at random and sync.Pool drop what it holds. What the
// detector can see is which goroutines meet where: another thousand keys, the same
// schedule over again, or what one goroutine does alone, show it nothing new. So some
// tests are smaller under it, or are left out; the plain run keeps each promise at its
// full size.
package race

import "testing"

// Pick returns few under the race detector, and all otherwise: how often a test repeats what
// shows the detector nothing new.
func Pick(few, all int) int {
	if Enabled {
		return few
	}
	return all
}

// SkipOneGoroutine skips a long test of what one goroutine does alone.
func SkipOneGoroutine(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("the race detector has nothing to see in what one goroutine does, and makes it ten times as long")
	}
}

// SkipAlike skips a long test in which the same goroutines meet as in another one, by
// that one's name.
func SkipAlike(t testing.TB, other string) {
	t.Helper()
	if Enabled {
		t.Skipf("the race detector sees the goroutines of this one in %s, and makes it ten times as long", other)
	}
}
