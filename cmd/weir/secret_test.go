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
		var both [2][]byte
		for i, text := range lines[1:] {
			require.False(t, seen[text], "made twice")
			seen[text] = true
			var err error
			both[i], err = hex.DecodeString(text)
			require.NoError(t, err)
		}
		require.NoError(t, limits.Config{Bind: ":7946", Secrets: both[:1], Seed: both[1]}.Validate())
	}
}
