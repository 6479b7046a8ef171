package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testenv"
)

// shownElsewhere names, for the most expensive scenarios of testdata/broke, the test that
// also shows their fault.
var shownElsewhere = map[string]string{
	"count-alone-in-its-shard.yaml": "TestEachShardHasRoomForASample of package bucket",
	"refunded-at-two-nodes.yaml":    "TestEarlyRefundsOffsetUnitsThatArriveLater of package sync",
	"late-stand-in.yaml":            "TestNoMemberIsAskedAfterLateStandIn of package check",
	"only-relay-crashes.yaml":       "only-relay-leaves.yaml, and TestEachRowOfTheTableHasItsBound",
}

// shortFile is the longest virtual time of a file that the default run plays.
const shortFile = 7 * time.Second

// Files keep the random scenarios that once broke an invariant, because a change of the
// draws changes the scenario of a seed.
func TestFoundFailuresStayFixed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/[bh]*/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			s, err := findScenario(file)
			require.NoError(t, err)
			by := shownElsewhere[filepath.Base(file)]
			if by == "" && s.Lasts > shortFile {
				by = "WEIR_FULL=1 go test ./simulations in .ci/run, and the shortest of these files"
			}
			if by != "" {
				testenv.SkipUnlessFull(t, by)
			}
			require.Empty(t, judge(playAside(t, s)), "replay it with: go run ./simulations ./simulations/%s", file)
		})
	}
}
