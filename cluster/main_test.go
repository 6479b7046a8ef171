package cluster

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Most parallel tests wait for deadlines, so the tests that run at once may outnumber the processors.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) // the command line overrides it
	code := m.Run()
	if left := remainingGoroutines(time.Minute); code == 0 && left != "" {
		fmt.Println("Close has left goroutines behind:\n" + left)
		code = 1
	}
	os.Exit(code)
}

// remainingGoroutines returns the stacks of the goroutines of this package and of memberlist that have
// not ended when the time has passed. It may take a few seconds for the probes of memberlist to end.
func remainingGoroutines(within time.Duration) string {
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		all := make([]byte, 1<<22)
		var left []string
		for i, stack := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
			if i > 0 && (strings.Contains(stack, "weir/cluster") || strings.Contains(stack, "memberlist")) { // the first stack is that of this goroutine
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}
