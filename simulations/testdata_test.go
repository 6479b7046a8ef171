package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What random scenarios once broke is kept as files: of a seed another scenario
// comes as soon as something else is drawn.
func TestWhatRandomScenariosOnceBrokeHolds(t *testing.T) {
	files, err := filepath.Glob("testdata/broke/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s, err := find(file)
			require.NoError(t, err)
			j, err := run(t, s)
			require.NoError(t, err)
			require.Empty(t, judge(j), "replay it with: go run ./simulations ./simulations/%s", file)
		})
	}
}
