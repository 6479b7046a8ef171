package countsync

import (
	"flag"
	"os"
	"testing"
)

// A hundred schedules, as rapid draws by default, are too few to meet what goes
// wrong once in a thousand.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "2000"); err != nil {
		panic(err)
	}
	flag.Parse()
	os.Exit(m.Run())
}
