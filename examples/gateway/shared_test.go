package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecretsAndSeedAreReadFromFiles(t *testing.T) {
	for _, c := range []struct {
		about         string
		secrets, seed string // texts of files; no file if empty
		want          []string
		wantSeed      string
		wrong         string
	}{
		{"neither", "", "", nil, "", ""},
		{"both in one", "secret: 6e6577\nseed: 736565640a\nsecret: 6f6c64\n", "", []string{"new", "old"}, "seed\n", ""},
		{"each in its own", "secret: 6e6577", "seed: 73656564", []string{"new"}, "seed", ""},
		{"a seed alone", "", "seed: 73656564", nil, "seed", ""},
		{"one seed twice", "secret: 6e6577\nseed: 73656564", "secret: 6e6577\nseed: 73656564", []string{"new"}, "seed", ""},
		{"two seeds", "secret: 6e6577\nseed: 73656564", "seed: 00", nil, "", "differ: remove one of them"},
		{"no secret", "seed: 73656564", "", nil, "", `no line that begins with "secret:"`},
		{"no seed", "", "secret: 6e6577", nil, "", `no line that begins with "seed:"`},
		{"no hex", "secret: new", "", nil, "", "hexadecimal"},
	} {
		var o options
		write := func(name, text string) string {
			if text == "" {
				return ""
			}
			name = filepath.Join(t.TempDir(), name)
			require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
			return name
		}
		o.secrets, o.seed = write("secrets", c.secrets), write("seed", c.seed)
		err := o.readShared()
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong, c.about)
			require.NotContains(t, err.Error(), "new", "nothing of a secret is shown")
			continue
		}
		require.NoError(t, err, c.about)
		var got []string
		for _, secret := range o.node.Secrets {
			got = append(got, string(secret))
		}
		require.Equal(t, c.want, got, c.about)
		require.Equal(t, c.wantSeed, string(o.node.Seed), c.about)
	}
	o := options{secrets: filepath.Join(t.TempDir(), "none")}
	require.Error(t, o.readShared())
}
