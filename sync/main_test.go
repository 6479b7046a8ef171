package countsync

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/weir-go/weir/internal/testenv"
)

// checksGiven reports whether the command line has a number of schedules for rapid.
var checksGiven bool

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { checksGiven = checksGiven || f.Name == "rapid.checks" })
	os.Exit(m.Run())
}

// checks sets the number of schedules that rapid draws in this test: the argument few in the default run, and
// the argument all in the full run. By default rapid draws a hundred, which are too few to find a fault that
// occurs once in a thousand schedules. Under the race detector a hundred are enough, because that
// run looks for races. A number on the command line has precedence. checks sets a flag, so a test
// that calls it must not be parallel.
func checks(t *testing.T, few, all int) {
	t.Helper()
	if checksGiven {
		return
	}
	n := testenv.PickFull(t, few, all)
	if testenv.Race {
		n = min(n, 100)
	}
	before := flag.Lookup("rapid.checks").Value.String()
	set := func(v string) {
		if err := flag.Set("rapid.checks", v); err != nil {
			t.Fatal(err)
		}
	}
	set(fmt.Sprint(n))
	t.Cleanup(func() { set(before) })
}
