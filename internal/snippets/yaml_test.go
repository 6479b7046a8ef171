package snippets_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
	"github.com/weir-go/weir/rules"
)

// ofLanguage returns the snippets of a language, at least 1.
func ofLanguage(t *testing.T, language string) (found []snippets.Snippet) {
	all, err := snippets.All()
	require.NoError(t, err)
	for _, s := range all {
		if s.Language == language {
			found = append(found, s)
		}
	}
	require.NotEmpty(t, found)
	return found
}

func TestRulesFilesOfDocumentsAreValid(t *testing.T) {
	for _, s := range ofLanguage(t, "yaml") {
		switch s.Key() {
		case "about", "domain", "rate_limits", "groups": // files of other programs
			continue
		}
		if _, err := rules.Parse(s.Position(), []byte(s.Text)); err != nil {
			t.Errorf("%s: %v", s.Position(), err)
		}
	}
}

// docs/operate.md has a rules file with errors, and a table. The table must list each error that Parse returns
// for the file, and no other error.
func TestErrorsOfDocumentedControlsAreReported(t *testing.T) {
	const file = "docs/operate.md"
	all, err := snippets.All()
	require.NoError(t, err)
	at := slices.IndexFunc(all, func(s snippets.Snippet) bool { return s.File == file && s.Language == "text" })
	require.GreaterOrEqual(t, at, 0)
	_, reported := rules.Parse("f", []byte(all[at].Text))
	require.Error(t, reported)
	root, err := snippets.Root()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, file))
	require.NoError(t, err)
	var documented []string
	for _, m := range regexp.MustCompile("`(\\d+:\\d+: [^`]*)`").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, "f:"+m[1])
	}
	require.ElementsMatch(t, strings.Split(strings.TrimSpace(reported.Error()), "\n"), documented)
}
