package snippets_test

import (
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
		case "about", "domain", "rate_limits", "groups": // of other programs
			continue
		}
		if _, err := rules.Parse(s.Position(), []byte(s.Text)); err != nil {
			t.Errorf("%s: %v", s.Position(), err)
		}
	}
}
