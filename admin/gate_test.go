package admin

import (
	"crypto/sha256"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// All bytes of a hash are compared. A token whose hash differs in a single byte is not accepted.
func TestWholeTokenHashIsCompared(t *testing.T) {
	hashes := [][sha256.Size]byte{sha256.Sum256([]byte("one")), sha256.Sum256([]byte("two"))}
	for i := range hashes {
		require.Equal(t, i, indexInConstantTime(hashes, hashes[i]))
		for at := range sha256.Size {
			other := hashes[i]
			other[at] ^= 1
			require.Equal(t, -1, indexInConstantTime(hashes, other), "byte %d", at)
		}
	}
	require.Equal(t, -1, indexInConstantTime(nil, hashes[0]))
	// The time of a comparison that stops at the first difference shows how many bytes of a guess are
	// correct.
	text, err := os.ReadFile("gate.go")
	require.NoError(t, err)
	require.Regexp(t, `subtle\.ConstantTimeSelect\(subtle\.ConstantTimeCompare\(`, string(text))
}
