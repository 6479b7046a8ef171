package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
)

func TestDocumentedDemosAreValid(t *testing.T) {
	calls, err := snippets.CallsOf("go", "run", "./cmd/demo")
	require.NoError(t, err)
	require.NotEmpty(t, calls)
	for _, c := range calls {
		_, err := parse(c.Words, io.Discard)
		require.NoError(t, err, "%s: %q", c.Position(), c.Words)
	}
}
