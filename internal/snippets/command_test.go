package snippets

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATextOfTheShellIsSplitIntoItsCommands(t *testing.T) {
	for text, want := range map[string][][]string{
		"":                                       nil,
		"go test work # all":                     {{"go", "test", "work"}},
		"SEED=7 make sim; time go version":       {{"make", "sim"}, {"go", "version"}},
		"go run ./x -n 1 >out; make a&&make b":   {{"go", "run", "./x", "-n", "1"}, {"make", "a"}, {"make", "b"}},
		"go test -run '^$' -bench \"A|B\" . | x": {{"go", "test", "-run", "^$", "-bench", "A|B", "."}, {"x"}},
		"curl -d '\n{\"a\": 1}' \\\n  x=y":       {{"curl", "-d", "\n{\"a\": 1}", "x=y"}},
		`echo "it's" a\ b ''`:                    {{"echo", "it's", "a b", ""}},
	} {
		got, err := split(text)
		require.NoError(t, err, "%s", text)
		require.Equal(t, want, got, "%s", text)
	}
	for _, text := range []string{"echo 'a", "echo $(date)", "echo `date`", "while x; do (y); done", "cat <file"} {
		_, err := split(text)
		require.Error(t, err, "%s", text)
	}
}

func TestADocumentHasItsSnippetsAndCommandsWhereTheyAre(t *testing.T) {
	d := document{"a.md", []string{
		"Call `make sim` or `go test -bench 'A\\|B' .`, not `gofmt`.",
		"```sh", "make a", "```",
		"```", "nothing", "```",
		"```console", "$ weir x 'a", "b'", "out", "$ weir y", "```",
	}}
	require.Equal(t, []Snippet{
		{"a.md", 3, "sh", "make a\n"}, {"a.md", 6, "", "nothing\n"}, {"a.md", 9, "console", "$ weir x 'a\nb'\nout\n$ weir y\n"},
	}, d.snippets())
	commands, err := d.commands()
	require.NoError(t, err)
	require.Equal(t, []Command{
		{"a.md", 1, []string{"make", "sim"}, ""},
		{"a.md", 1, []string{"go", "test", "-bench", "A|B", "."}, ""},
		{"a.md", 3, []string{"make", "a"}, ""},
		{"a.md", 9, []string{"weir", "x", "a\nb"}, "out\n"},
		{"a.md", 9, []string{"weir", "y"}, ""},
	}, commands)
}
