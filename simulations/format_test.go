package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBundledScenariosAreRead(t *testing.T) {
	all, err := bundled()
	require.NoError(t, err)
	for _, s := range all {
		text := s.yaml()
		again, err := parse(s.Name, text)
		require.NoError(t, err, "%s", text)
		require.Equal(t, s, again, "%s", text)
	}
}
