package lab

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAProcessHasItsMemoryAndFiles(t *testing.T) {
	c := child(t)
	for _, pid := range []int{os.Getpid(), c.PID()} {
		require.Positive(t, Resident(pid))
		require.GreaterOrEqual(t, OpenFiles(pid), int64(3))
	}
	before := OpenFiles(os.Getpid())
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	require.Equal(t, before+1, OpenFiles(os.Getpid()))
	require.NoError(t, f.Close())
	require.NoError(t, c.End(eventually))
	require.Equal(t, int64(-1), Resident(c.PID()))
	require.Equal(t, int64(-1), OpenFiles(c.PID()))
}
