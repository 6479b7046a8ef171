// Package testenv tells tests how they run: in the full run or the default one, under the race
// detector, and with which examples.
//
// The default run shows each promise once, by its cheapest test. The full run, WEIR_FULL=1,
// adds the tests that show the same promise again: with real gossip in the place of simulated
// membership, on more schedules, or with more nodes. go test -v names each test that the
// default run leaves out, and the test that shows its promise there.
//
// Under the race detector every access to memory is watched, which makes a test some seven to ten times
// as slow, makes the scheduler pick at random and sync.Pool drop objects. The detector can see
// which goroutines meet where. Another thousand keys, the same schedule over again, or a test of one
// goroutine show it nothing new. So some tests are smaller under it, or are left out; the plain run
// keeps each promise at its full size.
//
// rapid draws the same examples in each run, so that a test fails because of a change and not by
// chance. WEIR_SEED=7 draws those of another seed, and WEIR_SEED=0 others in each run, as the search
// workflow does. -rapid.seed comes before both.
package testenv

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// FullVariable is the environment variable that switches the full run on. It does so with "1".
const FullVariable = "WEIR_FULL"

// LeftVariable is the environment variable that names a file. Each test that does less in the default
// run adds its name to that file as a line, so that a full run after it need play no other.
const LeftVariable = "WEIR_LEFT"

// IsFull reports whether this is the full run. A test that asks does less in the default
// run. IsFull reads the environment each time, so that go test does not reuse a result of the
// other run.
func IsFull(t testing.TB) bool {
	t.Helper()
	if os.Getenv(FullVariable) == "1" {
		return true
	}
	if err := leave(t.Name()); err != nil {
		t.Fatal(err)
	}
	return false
}

// leave adds the name of the test, or of the test that this one is part of, to the file that
// LeftVariable names.
func leave(test string) error {
	name := os.Getenv(LeftVariable)
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

// SkipUnlessFull skips a test outside the full run. shownBy names what shows the same promise in
// the default run, or the command that does.
func SkipUnlessFull(t testing.TB, shownBy string) {
	t.Helper()
	if !IsFull(t) {
		t.Skipf("left to the full run (%s=1); shown meanwhile by %s", FullVariable, shownBy)
	}
}

// PickFull returns few in the default run, and all in the full run, for how often a test
// repeats what it does. It logs the number of repetitions that are left out.
func PickFull(t testing.TB, few, all int) int {
	t.Helper()
	if few >= all || IsFull(t) {
		return all
	}
	t.Logf("%d times of %d; the others are left to the full run (%s=1)", few, all, FullVariable)
	return few
}
