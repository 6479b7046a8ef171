package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileAndTextAreReadAlike(t *testing.T) {
	const text = "# of May\nsecret: 6e6577; secret: 6f6c64\nseed: 73656564\n"
	file := filepath.Join(t.TempDir(), "weir.secret")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	for from, read := range map[string]func() ([][]byte, []byte, error){
		"a text": func() ([][]byte, []byte, error) { return ParseSecrets(text) },
		"a file": func() ([][]byte, []byte, error) { return ReadSecrets(file) },
	} {
		secrets, seed, err := read()
		require.NoError(t, err, from)
		require.Equal(t, [][]byte{[]byte("new"), []byte("old")}, secrets, from)
		require.Equal(t, []byte("seed"), seed, from)
	}
}

func TestMissingFileIsNotErrInvalidSecrets(t *testing.T) {
	_, _, err := ParseSecrets("secret: hush-hush")
	require.ErrorIs(t, err, ErrInvalidSecrets)
	require.NotContains(t, err.Error(), "hush")
	_, _, err = ReadSecrets(t.TempDir())
	require.ErrorIs(t, err, ErrInvalidSecrets)
	_, _, err = ReadSecrets(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, ErrInvalidSecrets)
}

func TestSecretTextIsDistinguishedFromBytes(t *testing.T) {
	const digits = "000102030405060708090A0b0c0d0e0f"
	for _, text := range []string{digits, " " + digits + "\n", digits + digits, "seed: x", "secret: x"} {
		require.True(t, IsSecretText([]byte(text)), text)
	}
	for _, bytes := range []string{"", digits[:31], digits[:30], "0123456789abcdef", "a phrase of more than sixteen bytes"} {
		require.False(t, IsSecretText([]byte(bytes)), bytes)
	}
}
