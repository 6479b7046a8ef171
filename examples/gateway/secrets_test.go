package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecretsAreReadAsTheyArePrintedTheFirstFirst(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.secret")
	for text, want := range map[string][][]byte{
		"secret: 6e6577\nseed: 736565640a\nsecret: 6f6c64\n": {[]byte("new"), []byte("old")},
		"secret: 6e6577": {[]byte("new")},
		"secret: new\n":  nil,
		"seed: 00\n":     nil,
		"":               nil,
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		secrets, err := readSecrets(name)
		if want == nil {
			require.ErrorContains(t, err, name, "%q", text)
			require.NotContains(t, err.Error(), "new", "nothing of a secret is shown")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, secrets)
	}
	_, err := readSecrets(name + "x")
	require.Error(t, err)
	none, err := readSecrets("")
	require.NoError(t, err)
	require.Nil(t, none)
}
