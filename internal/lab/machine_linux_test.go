package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMachineCPUIsReadFromProcStat(t *testing.T) {
	used, idle, ok := parseMachineCPU("cpu  100 20 30 4000 50 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
	require.True(t, ok)
	require.Equal(t, 1710*time.Millisecond, used, "guests are users, and counted there")
	require.Equal(t, 40500*time.Millisecond, idle)
	for _, text := range []string{"", "cpu", "cpu 1 2 3 4", "cpu 1 2 3 4 x", "intr 1 2 3 4 5"} {
		_, _, ok = parseMachineCPU(text)
		require.False(t, ok, "%q", text)
	}
	used, idle, ok = MachineCPU()
	require.True(t, ok)
	require.Positive(t, used)
	require.GreaterOrEqual(t, idle, time.Duration(0))
}
