//go:build unix

package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCPUGrowsWithWorkAlone(t *testing.T) {
	before, patience := CPU(), time.Now().Add(time.Minute)
	for CPU()-before < 5*time.Millisecond && time.Now().Before(patience) {
	}
	require.GreaterOrEqual(t, CPU()-before, 5*time.Millisecond)
	before, begun := CPU(), time.Now()
	time.Sleep(50 * time.Millisecond)
	require.Less(t, CPU()-before, time.Since(begun), "a sleep takes no CPU")
}
