package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASeedIsReadAsItIsPrinted(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.secret")
	for text, want := range map[string]string{
		"secret: 00\nseed: 736565640a\n": "seed\n",
		"seed: 73656564":                 "seed",
		"seed: xyz":                      "",
		"secret: 00\n":                   "",
		"":                               "",
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		seed, err := readSeed(name)
		if want == "" {
			require.ErrorContains(t, err, name, "%q", text)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, string(seed))
	}
	_, err := readSeed(name + "x")
	require.Error(t, err)
	_, err = readSeed(os.DevNull)
	require.ErrorContains(t, err, os.DevNull+" is no regular file")
	none, err := readSeed("")
	require.NoError(t, err)
	require.Nil(t, none)
}
