package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
)

func TestDocumentedScenariosAreValid(t *testing.T) {
	all, err := snippets.All()
	require.NoError(t, err)
	read := 0
	for _, s := range all {
		if s.Language != "yaml" || s.Key() != "about" {
			continue
		}
		read++
		_, err := parse("snippet.yaml", []byte(s.Text))
		require.NoError(t, err, "%s", s.Position())
	}
	require.NotZero(t, read)
}

func TestDocumentedCommandsAreValid(t *testing.T) {
	calls, err := snippets.CallsOf("go", "run", "./simulations")
	require.NoError(t, err)
	require.NotEmpty(t, calls)
	root, err := snippets.Root()
	require.NoError(t, err)
	for _, c := range calls {
		o, err := parseArgs(c.Words, io.Discard)
		require.NoError(t, err, "%s: %q", c.Position(), c.Words)
		if o.scenario == "" || o.scenario == strings.ToUpper(o.scenario) { // a placeholder such as NAME or FILE
			continue
		}
		if strings.HasSuffix(o.scenario, ".yaml") {
			o.scenario = filepath.Join(root, filepath.FromSlash(o.scenario))
		}
		_, err = findScenario(o.scenario)
		require.NoError(t, err, "%s: %q", c.Position(), c.Words)
	}
}
