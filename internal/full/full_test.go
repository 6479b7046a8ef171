package full

import (
	"os"
	"path/filepath"
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
		require.Equal(t, c.enabled, Enabled(t), "%q", c.value)
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

func TestTheDefaultRunNamesEachTestThatDoesLess(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(t *testing.T)
		less bool
	}{
		{"a test that is left out", func(t *testing.T) { Only(t, "another") }, true},
		{"one that repeats what it does less often", func(t *testing.T) { Pick(t, 1, 2) }, true},
		{"one that repeats it as often", func(t *testing.T) { Pick(t, 2, 2) }, false},
		{"one that asks", func(t *testing.T) { Enabled(t) }, true},
		{"one that does not ask", func(t *testing.T) {}, false},
	} {
		for _, value := range []string{"", "1"} {
			left := filepath.Join(t.TempDir(), "left")
			t.Setenv(Variable, value)
			t.Setenv(Left, left)
			t.Run(c.name, c.test)
			said, err := os.ReadFile(left)
			if !c.less || value == "1" {
				require.ErrorIs(t, err, os.ErrNotExist, c.name)
				continue
			}
			require.NoError(t, err, c.name)
			require.Equal(t, "TestTheDefaultRunNamesEachTestThatDoesLess\n", string(said), c.name)
		}
	}
}
