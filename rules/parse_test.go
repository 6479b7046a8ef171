package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func mustParse(t testing.TB, text string) *Set {
	t.Helper()
	s, err := Parse("rules.yaml", []byte(text))
	require.NoError(t, err)
	return s
}
