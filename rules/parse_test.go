package rules

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func mustParse(t testing.TB, text string) *Set {
	t.Helper()
	s, err := Parse("rules.yaml", []byte(text))
	require.NoError(t, err)
	return s
}

func TestTheExamplesAreGood(t *testing.T) {
	files, err := filepath.Glob("examples/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		_, err = Parse(name, text)
		require.NoError(t, err)
	}
}
