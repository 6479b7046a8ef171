package main

import (
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	limits "github.com/weir-go/weir"
)

func TestASecretAndASeedAreNewEachTimeAndGoodForAConfig(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		var stdout, stderr strings.Builder
		require.Equal(t, ok, run([]string{"secret"}, &stdout, &stderr), &stderr)
		out := stdout.String()
		lines := regexp.MustCompile(`^secret: ([0-9a-f]{64})\nseed: ([0-9a-f]{64})\n$`).FindStringSubmatch(out)
		require.NotNil(t, lines, out)
		for _, text := range lines[1:] {
			require.False(t, seen[text], "made twice")
			seen[text] = true
		}
		secrets, seed, err := limits.ParseSecrets(out)
		require.NoError(t, err)
		require.Equal(t, lines[1:], []string{hex.EncodeToString(secrets[0]), hex.EncodeToString(seed)})
		require.NoError(t, limits.Config{Bind: ":7946", Secrets: secrets, Seed: seed}.Validate())
		for _, text := range append(lines, strings.ToUpper(lines[2])+"\n") {
			require.ErrorContains(t, limits.Config{Bind: ":7946", Secrets: [][]byte{[]byte(text)}, Seed: seed}.Validate(), "ParseSecrets", "the text in the place of its bytes")
			require.ErrorContains(t, limits.Config{Bind: ":7946", Secrets: secrets, Seed: []byte(text)}.Validate(), "ParseSecrets")
		}
	}
}
