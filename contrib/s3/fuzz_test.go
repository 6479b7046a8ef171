package s3snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A listed object is a snapshot only if this package writes its name in exactly that
// form.
func FuzzParseName(f *testing.F) {
	for _, seed := range []string{
		"api-1/00000000000000000001.snapshot", "_2e/09223372036854775807.snapshot", "_2E/00000000000000000001.snapshot",
		"a_/00000000000000000001.snapshot", "a/b/00000000000000000001.snapshot", "api-1/1.snapshot", "_zz/", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if node, generation, ok := parseName(text); ok {
			escaped, err := escape(node)
			require.NoError(t, err)
			require.Equal(t, text, name(escaped, generation))
		}
		if escaped, err := escape(text); err == nil {
			node, generation, ok := parseName(name(escaped, 7))
			require.True(t, ok)
			require.Equal(t, text, node)
			require.EqualValues(t, 7, generation)
		}
	})
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{
		"s3://backups", "s3://backups/a/b?endpoint=http://127.0.0.1:9000&region=x&virtual_host=1", "s3://k:s@b", "s3://b?%zz", "s3:b", "s3://b\x00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := ParseURL(text)
		if err != nil {
			return
		}
		b, err := New(o)
		require.NoError(t, err)
		require.NoError(t, b.Close())
	})
}
