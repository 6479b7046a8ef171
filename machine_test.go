package weir

import (
	"flag"
	"testing"
)

// wantsTheMachine skips a test where all are run: it takes long, and looks at how soon real
// processes answer, so that it wants the machine for itself. -run has it run.
func wantsTheMachine(t *testing.T) {
	t.Helper()
	if flag.Lookup("test.run").Value.String() == "" {
		t.Skip("it takes long, and wants the machine for itself: make alone, or -run " + t.Name())
	}
}
