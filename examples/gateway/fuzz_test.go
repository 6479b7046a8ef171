package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file of secrets, a Seed, tokens or API keys is read as a whole or refused, whatever its
// content is. No error contains a possible secret.
func FuzzConfidentialFiles(f *testing.F) {
	f.Add([]byte("secret: 000102030405060708090a0b0c0d0e0f\nseed: 0001"))
	f.Add([]byte("secret: hush-hush\nseed: zz"))
	f.Add([]byte("key-1 premium\nkey-2\n"))
	name := filepath.Join(f.TempDir(), "f") // only this process uses it
	f.Fuzz(func(t *testing.T, text []byte) {
		require.NoError(t, os.WriteFile(name, text, 0o600))
		o := options{secrets: name}
		secretsErr := o.readShared()
		require.Equal(t, secretsErr == nil, len(o.node.Secrets) > 0)
		o = options{seed: name}
		seedErr := o.readShared()
		require.Equal(t, seedErr == nil, len(o.node.Seed) > 0)
		tokens, err := readTokens(name)
		require.NoError(t, err)
		for _, token := range tokens {
			require.NotEmpty(t, token)
		}
		_, callersErr := readCallers(name)
		for _, err := range []error{secretsErr, seedErr, callersErr} {
			if err == nil {
				continue
			}
			said := strings.ReplaceAll(err.Error(), name, "")
			for word := range strings.FieldsSeq(string(text)) {
				require.True(t, len(word) < 20 || !strings.Contains(said, word))
			}
		}
	})
}
