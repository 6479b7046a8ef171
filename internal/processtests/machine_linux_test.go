package processtests

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// machineTests is the -run pattern of the tests that need the machine to themselves.
const machineTests = "RealNetwork|LostPackets|Siege|BusyMachine"

// wantsTheMachine skips the test unless the -run flag is set. The test takes long and measures
// the latency of real processes, so no other test may run at the same time.
func wantsTheMachine(t *testing.T) {
	t.Helper()
	require.Regexp(t, machineTests, t.Name(), "the command make alone would not run this test")
	if flag.Lookup("test.run").Value.String() == "" {
		t.Skip("the test takes long, and needs an idle machine: run make alone, or use -run " + t.Name())
	}
}

func TestMakeAndCIRunMachineTests(t *testing.T) {
	for _, file := range []string{"../../Makefile", "../../.ci/run"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), "-run '"+machineTests+"' ./internal/processtests", file)
	}
}
