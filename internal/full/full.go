// Package full decides which tests belong to the full run alone.
//
// The default run shows each promise once, by its cheapest test. The full run, WEIR_FULL=1,
// adds the tests that show the same promise again: with real gossip in the place of simulated
// membership, on more schedules, or with more nodes. go test -v names each test that the
// default run leaves out, and what shows its promise meanwhile.
package full

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// Variable is the environment variable that switches the full run on. It does so with "1".
const Variable = "WEIR_FULL"

// Left is the environment variable that names a file. Each test that does less in the default
// run adds its name to that file as a line, so that a full run after it need play no other.
const Left = "WEIR_LEFT"

// Enabled reports whether this is the full run. A test that asks does less in the default
// run. Enabled reads the environment each time, so that go test does not reuse a result of the
// other run.
func Enabled(t testing.TB) bool {
	t.Helper()
	if os.Getenv(Variable) == "1" {
		return true
	}
	if err := leave(t.Name()); err != nil {
		t.Fatal(err)
	}
	return false
}

// leave adds the name of the test, or of the test that this one is part of, to the file that
// Left names.
func leave(test string) error {
	name := os.Getenv(Left)
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	test, _, _ = strings.Cut(test, "/")
	_, err = file.WriteString(test + "\n") // at once, as tests of other processes add to it too
	return errors.Join(err, file.Close())
}

// Only skips a test outside the full run. shownBy names what shows the same promise in
// the default run, or the command that does.
func Only(t testing.TB, shownBy string) {
	t.Helper()
	if !Enabled(t) {
		t.Skipf("left to the full run (%s=1); shown meanwhile by %s", Variable, shownBy)
	}
}

// Pick returns few in the default run, and all in the full run, for how often a test
// repeats what it does. It logs what the default run leaves out.
func Pick(t testing.TB, few, all int) int {
	t.Helper()
	if few >= all || Enabled(t) {
		return all
	}
	t.Logf("%d times of %d; the others are left to the full run (%s=1)", few, all, Variable)
	return few
}
