package full

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDefaultRunLeavesTestsToTheFullRun(t *testing.T) {
	for _, c := range []struct {
		value   string
		enabled bool
		times   int
	}{{"", false, 3}, {"0", false, 3}, {"1", true, 100}} {
		t.Setenv(Variable, c.value)
		require.Equal(t, c.enabled, Enabled(), "%q", c.value)
		require.Equal(t, c.times, Pick(t, 3, 100), "%q", c.value)
		require.Equal(t, 2, Pick(t, 5, 2), "all are few")
		ran := false
		t.Run(Variable+"="+c.value, func(t *testing.T) {
			Only(t, "TestTheDefaultRunLeavesTestsToTheFullRun")
			ran = true
		})
		require.Equal(t, c.enabled, ran, "%q", c.value)
	}
}
