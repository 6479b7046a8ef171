package countsync

import (
	"flag"
	"os"
	"testing"

	"github.com/weir-go/weir/internal/race"
)

// A hundred schedules, as rapid draws by default, are too few to meet what goes
// wrong once in a thousand.
func TestMain(m *testing.M) {
	checks := "2000"
	if race.Enabled {
		checks = "100"
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		panic(err)
	}
	flag.Parse()
	os.Exit(m.Run())
}
