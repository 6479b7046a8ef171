package cluster

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// Tests that run in parallel do little but wait for deadlines.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) // the command line overrides it
	os.Exit(m.Run())
}
