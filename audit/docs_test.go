package audit_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documented are the fields of the table of audit/README.md.
func documented(t *testing.T) (fields []string) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, table, is := strings.Cut(string(text), "\n## Fields\n")
	require.True(t, is)
	table, _, _ = strings.Cut(table, "\n## ")
	for line := range strings.Lines(table) {
		if name, is := strings.CutPrefix(line, "| `"); is {
			name, _, _ = strings.Cut(name, "`")
			fields = append(fields, name)
		}
	}
	return fields
}
