package envoylimit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/snippets"
)

func TestEveryConfigurationInADocumentIsRead(t *testing.T) {
	all, err := snippets.All()
	require.NoError(t, err)
	read := 0
	for _, s := range all {
		if s.Language == "yaml" && s.Key() == "domain" {
			read++
			_, err := Parse(s.At(), []byte(s.Text))
			require.NoError(t, err)
		}
	}
	require.NotZero(t, read)
}
