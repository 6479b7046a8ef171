package processtests

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// machineTests is the -run of the tests that want the machine for themselves.
const machineTests = "RealNetwork|LostPackets|Siege|BusyMachine"

// wantsTheMachine skips a test where all are run: it takes long, and looks at how soon real
// processes answer, so that it wants the machine for itself. -run has it run.
func wantsTheMachine(t *testing.T) {
	t.Helper()
	require.Regexp(t, machineTests, t.Name(), "or make alone leaves it out")
	if flag.Lookup("test.run").Value.String() == "" {
		t.Skip("it takes long, and wants the machine for itself: make alone, or -run " + t.Name())
	}
}

func TestWhatWantsTheMachineIsRunByMakeAndByCI(t *testing.T) {
	for _, file := range []string{"../../Makefile", "../../.ci/run"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), "-run '"+machineTests+"' ./internal/processtests", file)
	}
}
