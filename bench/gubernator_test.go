package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnbuiltGubernatorIsMissingWithReason(t *testing.T) {
	t.Setenv("GOFLAGS", "-mod=none")
	program, remove, err := buildGubernator(t.Context(), io.Discard)
	require.ErrorContains(t, err, "gubernator was not built: ")
	require.ErrorContains(t, err, "-mod")
	require.Empty(t, program)
	require.NoError(t, remove())

	s := settings{noGubernator: err}
	for _, c := range contenders() {
		if c.gubernator {
			require.Equal(t, err, s.missing(c))
		}
	}
}
