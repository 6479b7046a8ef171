package main

import (
	"flag"
	"os"
	"slices"
	"strconv"
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
		switch c.Words[0] {
		case "serve":
			_, err := parseServe(c.Words[1:], noEnvironment, &errs)
			require.NoError(t, err, "%s: %q: %s", c.At(), c.Words, &errs)
			continue
		case "live", "status", "check", "peek", "reset": // there is no node to ask
			require.Equal(t, bad, run(c.Words, &out, &errs), "%s: %q: %s", c.At(), c.Words, &errs)
			continue
		}
		require.Equal(t, ok, run(c.Words, &out, &errs), "%s: %q: %s", c.At(), c.Words, &errs)
		if c.Output != "" {
			shown++
			require.Equal(t, c.Output, out.String(), "%s", c.At())
		}
	}
	require.NotZero(t, shown)
}

func TestTheDocumentHasEachFlagAsTheCommandSaysIt(t *testing.T) {
	text, err := os.ReadFile("../../docs/serve.md")
	require.NoError(t, err)
	_, flags, found := strings.Cut(string(text), "\n## Flags\n")
	require.True(t, found)
	rows := 0
	for line := range strings.Lines(flags) {
		if strings.HasPrefix(line, "| `-") {
			rows++
		}
	}
	flagsOf(new(serveOptions)).VisitAll(func(f *flag.Flag) {
		rows--
		says := f.Usage
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "false" {
			value := f.DefValue
			if strings.Contains(says, "host") || f.Name == "checks" || f.Name == "admin" || f.Name == "health" || f.Name == "log_format" {
				value = strconv.Quote(value)
			}
			says += " (default " + value + ")"
		}
		require.Contains(t, flags, "| `-"+f.Name+"` | "+says+" |\n")
	})
	require.Zero(t, rows, "the document has flags that the command does not")
}
