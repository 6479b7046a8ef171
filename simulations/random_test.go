package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryRandomScenarioIsValidAndReadsBackFromItsFile(t *testing.T) {
	for seed := range uint64(300) {
		s := random(seed)
		require.NoError(t, s.validate(), "seed %d\n%s", seed, s.yaml())
		again, err := parse(s.Name, s.yaml())
		require.NoError(t, err, "seed %d\n%s", seed, s.yaml())
		require.Equal(t, s, again, "seed %d\n%s", seed, s.yaml())
		require.Equal(t, s, random(seed), "seed %d", seed)
	}
}
