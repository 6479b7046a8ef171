package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
)

// The rules.yaml of the documents is the first file in docs/rules.md.
func TestDocumentedCallsReturnDocumentedResponses(t *testing.T) {
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
		if slices.Contains(c.Words, "-h") {
			require.Equal(t, ok, run(c.Words, &out, &errs), "%s: %q: %s", c.Position(), c.Words, &errs)
			continue
		}
		switch c.Words[0] {
		case "serve":
			_, err := parseServe(c.Words[1:])
			require.NoError(t, err, "%s: %q", c.Position(), c.Words)
			continue
		case "secret": // each document begins with new files
			_ = os.Remove("weir.secret")
		case "completion": // a shell runs it
			continue
		case "rules":
			if c.Words[1] == "put" { // fails without a running node, like the commands below
				require.Equal(t, bad, run(c.Words, &out, &errs), "%s: %q: %s", c.Position(), c.Words, &errs)
				continue
			}
		case "audit", "live", "status", "check", "reserve", "settle", "hold", "peek", "reset", "override", "user", "block", "switch", "ban", "raise", "top", "snapshot": // there is no running node and no snapshot
			require.Equal(t, bad, run(c.Words, &out, &errs), "%s: %q: %s", c.Position(), c.Words, &errs)
			continue
		}
		require.Equal(t, ok, run(c.Words, &out, &errs), "%s: %q: %s", c.Position(), c.Words, &errs)
		if c.Output != "" {
			shown++
			require.Equal(t, c.Output, out.String(), "%s", c.Position())
		}
	}
	require.NotZero(t, shown)
}

// serveModel returns the command-line model of weir serve.
func serveModel(t *testing.T) *kong.Node {
	for _, node := range parser(io.Discard).Model.Children {
		if node.Name == "serve" {
			return node
		}
	}
	t.Fatal("there is no weir serve")
	return nil
}
