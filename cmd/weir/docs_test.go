package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
)

// The rules.yaml of the documents is the first file that docs/rules.md shows.
func TestEveryCallInTheDocumentsAnswersAsTheyShow(t *testing.T) {
	all, err := snippets.All()
	require.NoError(t, err)
	first := slices.IndexFunc(all, func(s snippets.Snippet) bool { return s.File == "docs/rules.md" && s.Language == "yaml" })
	require.GreaterOrEqual(t, first, 0)
	calls, err := snippets.CallsOf("weir")
	require.NoError(t, err)
	built, err := snippets.CallsOf("go", "run", "./cmd/weir")
	require.NoError(t, err)
	calls = append(calls, built...)
	require.NotEmpty(t, calls)

	t.Chdir(t.TempDir())
	for _, name := range []string{"rules.yaml", "FILE"} {
		require.NoError(t, os.WriteFile(name, []byte(all[first].Text), 0o600))
	}
	shown := 0
	for _, c := range calls {
		var out, errs strings.Builder
		require.Equal(t, ok, run(c.Words, &out, &errs), "%s: %q: %s", c.At(), c.Words, &errs)
		if c.Output != "" {
			shown++
			require.Equal(t, c.Output, out.String(), "%s", c.At())
		}
	}
	require.NotZero(t, shown)
}
