package rules

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatTheDocumentationShowsIsGood(t *testing.T) {
	text, err := os.ReadFile("../docs/rules.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		_, err := Parse("docs/rules.md", block[1])
		require.NoError(t, err, "%s", block[1])
	}
}
