package lab

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProcessHasMemoryAndFiles(t *testing.T) {
	c := startChild(t)
	for _, pid := range []int{os.Getpid(), c.PID()} {
		require.Positive(t, Resident(pid))
		require.GreaterOrEqual(t, OpenFiles(pid), int64(3))
	}
	require.InDelta(t, CPU(), CPUOf(os.Getpid()), float64(time.Second/5))
	before := OpenFiles(os.Getpid())
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	require.Equal(t, before+1, OpenFiles(os.Getpid()))
	require.NoError(t, f.Close())
	require.NoError(t, c.End(eventually))
	require.Equal(t, int64(-1), Resident(c.PID()))
	require.Equal(t, int64(-1), OpenFiles(c.PID()))
	require.Zero(t, CPUOf(c.PID()))
}
