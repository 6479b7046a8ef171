// Package full decides which tests belong to the full run alone.
//
// The default run shows each promise once, by its cheapest test. The full run, WEIR_FULL=1,
// adds the tests that show the same promise again: with real gossip in the place of simulated
// membership, on more schedules, or with more nodes. go test -v names each test that the
// default run leaves out, and what shows its promise meanwhile.
package full

import (
	"os"
	"testing"
)

// Variable is the environment variable that switches the full run on. It does so with "1".
const Variable = "WEIR_FULL"

// Enabled reports whether this is the full run. It reads the environment each time, so
// that go test does not reuse a result of the other run.
func Enabled() bool { return os.Getenv(Variable) == "1" }

// Only skips a test outside the full run. shownBy names what shows the same promise in
// the default run, or the command that does.
func Only(t testing.TB, shownBy string) {
	t.Helper()
	if !Enabled() {
		t.Skipf("left to the full run (%s=1); shown meanwhile by %s", Variable, shownBy)
	}
}

// Pick returns few in the default run, and all in the full run, for how often a test
// repeats what it does. It logs what the default run leaves out.
func Pick(t testing.TB, few, all int) int {
	t.Helper()
	if Enabled() || few >= all {
		return all
	}
	t.Logf("%d times of %d; the others are left to the full run (%s=1)", few, all, Variable)
	return few
}
