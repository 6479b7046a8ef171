// Package testenv reports how tests run: in the full run or the default run, under the race detector,
// and with which examples.
//
// The default run shows each promise with its cheapest test. The full run, WEIR_FULL=1, adds the tests
// that show the same promise again: with real gossip in the place of simulated membership, on more
// schedules, or with more nodes. go test -v prints each test that the default run skips, and the test
// that shows its promise.
//
// The race detector watches every access to memory. It makes a test seven to ten times as slow, and
// makes the scheduler and sync.Pool choose at random. It finds goroutines that access the same memory.
// More keys, a repeated schedule, or a test of a single goroutine add no such accesses. So some tests
// are smaller under the detector, or are skipped. The run without the detector tests each promise at
// full size.
//
// rapid draws the same examples in each run, so that a test fails because of a change and not by
// chance. WEIR_SEED=7 selects the examples of another seed, and WEIR_SEED=0 new examples in each run,
// as the search workflow does. The flag -rapid.seed takes precedence.
package testenv

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// FullVariable is the environment variable that selects the full run with the value "1".
const FullVariable = "WEIR_FULL"

// LeftVariable is the environment variable with the name of a file. Each test that does less in the
// default run appends its name to that file, so that a later full run plays only these tests.
const LeftVariable = "WEIR_LEFT"

// IsFull reports whether this is the full run. A test that calls IsFull does less in the default
// run. IsFull reads the environment at each call, so that go test does not reuse a result of the
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

// leave appends the name of the top-level test to the file of LeftVariable.
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
	_, err = file.WriteString(test + "\n") // in a single write, because tests of other processes append too
	return errors.Join(err, file.Close())
}

// SkipUnlessFull skips a test outside the full run. shownBy is the test of the default run, or the
// command, that shows the same promise.
func SkipUnlessFull(t testing.TB, shownBy string) {
	t.Helper()
	if !IsFull(t) {
		t.Skipf("runs in the full run only (%s=1); the default run shows its promise by %s", FullVariable, shownBy)
	}
}

// PickFull returns the number of repetitions of a test: the argument few in the default run, and the argument
// all in the full run. It logs how many repetitions the default run omits.
func PickFull(t testing.TB, few, all int) int {
	t.Helper()
	if few >= all || IsFull(t) {
		return all
	}
	t.Logf("%d of %d repetitions; the full run (%s=1) has all", few, all, FullVariable)
	return few
}
