package main_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/full"
)

func TestTheDefaultRunLeavesTestsToTheFullRun(t *testing.T) {
	for _, c := range []struct {
		value   string
		enabled bool
		times   int
	}{{"", false, 3}, {"0", false, 3}, {"1", true, 100}} {
		t.Setenv(full.Variable, c.value)
		require.Equal(t, c.enabled, full.Enabled(t), "%q", c.value)
		require.Equal(t, c.times, full.Pick(t, 3, 100), "%q", c.value)
		require.Equal(t, 2, full.Pick(t, 5, 2), "all are few")
		ran := false
		t.Run(full.Variable+"="+c.value, func(t *testing.T) {
			full.Only(t, "TestTheDefaultRunLeavesTestsToTheFullRun")
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
		{"a test that is left out", func(t *testing.T) { full.Only(t, "another") }, true},
		{"one that repeats what it does less often", func(t *testing.T) { full.Pick(t, 1, 2) }, true},
		{"one that repeats it as often", func(t *testing.T) { full.Pick(t, 2, 2) }, false},
		{"one that asks", func(t *testing.T) { full.Enabled(t) }, true},
		{"one that does not ask", func(t *testing.T) {}, false},
	} {
		for _, value := range []string{"", "1"} {
			left := filepath.Join(t.TempDir(), "left")
			t.Setenv(full.Variable, value)
			t.Setenv(full.Left, left)
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
