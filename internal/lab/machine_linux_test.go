package lab

import (
	"os"
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

func TestAProcessHasItsMemoryAndFiles(t *testing.T) {
	c, _ := child(t, 0)
	for _, pid := range []int{os.Getpid(), c.PID()} {
		require.Positive(t, Resident(pid))
		require.GreaterOrEqual(t, OpenFiles(pid), int64(3))
	}
	before := OpenFiles(os.Getpid())
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	require.Equal(t, before+1, OpenFiles(os.Getpid()))
	require.NoError(t, f.Close())
	require.NoError(t, c.Stop(eventually))
	require.Equal(t, int64(-1), Resident(c.PID()))
	require.Equal(t, int64(-1), OpenFiles(c.PID()))
}
