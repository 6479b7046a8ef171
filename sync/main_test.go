package countsync

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/weir-go/weir/internal/testenv"
)

// asked reports whether the command line has how many schedules rapid draws.
var asked bool

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	os.Exit(m.Run())
}

// checks has rapid draw so many schedules in this test, few in the default run. The hundred
// that rapid draws by itself are too few to meet what goes wrong once in a thousand. Under the
// race detector a hundred are enough, as it looks for races. What the command line asks for comes
// first. It sets a flag, so that no test that calls it may be parallel.
func checks(t *testing.T, few, all int) {
	t.Helper()
	if asked {
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
