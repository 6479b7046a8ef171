package main

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	limits "github.com/weir-go/weir"
)

func TestSecretAndSeedAreNewAndValid(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 10 {
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
	}
}

func TestSecretFileIsForOwnerOnly(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "weir.secret")
	var stdout, stderr strings.Builder
	require.Equal(t, ok, run([]string{"secret", "-o", name}, &stdout, &stderr), &stderr)
	require.Empty(t, stdout.String()+stderr.String())
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	secrets, seed, err := limits.ReadSecrets(name)
	require.NoError(t, err)
	require.NoError(t, limits.Config{Bind: ":7946", Secrets: secrets, Seed: seed}.Validate())

	require.Equal(t, bad, run([]string{"secret", "-o", name}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "weir secret: -o: "+name+" already exists: name a new file")
	_, again, err := limits.ReadSecrets(name)
	require.NoError(t, err)
	require.Equal(t, seed, again, "the seed of a cluster was overwritten")
}

func TestReadableSecretFileCausesWarning(t *testing.T) {
	t.Parallel()
	for mode, want := range map[os.FileMode]string{
		0o600: "",
		0o644: "weir secret: other users of this machine can read this file: use -o FILE, or chmod 600\n",
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "weir.secret"))
		require.NoError(t, err)
		defer file.Close()
		require.NoError(t, file.Chmod(mode))
		var stderr strings.Builder
		require.Equal(t, ok, run([]string{"secret"}, file, &stderr))
		require.Equal(t, want, stderr.String())
	}
}

func TestClientCommandsWarnAboutReadableSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(name, []byte("secret: 00\n"), 0o600))
	asking := []string{"-admin", "unix:" + dir + "/none", "-token_file", name}
	for _, command := range [][]string{
		append([]string{"status"}, asking...), append([]string{"top"}, asking...), append([]string{"check", "l", "k"}, asking...),
		append([]string{"peek", "l", "k"}, asking...), append([]string{"reset", "l", "k"}, asking...),
		append([]string{"ban", "list"}, asking...), append([]string{"ban", "release", "l", "k"}, asking...),
		append([]string{"raise", "list"}, asking...), append([]string{"raise", "accept", "l", "5f", "-for", "1h", "-reason", "r"}, asking...),
		append([]string{"override", "l", "k", "-remove"}, asking...), append([]string{"reserve", "l", "k"}, asking...),
		append([]string{"settle", "l", "k", "r", "1"}, asking...), append(append([]string{"hold"}, asking...), "l", "k", "--", "true"),
		{"status", "-admin", "unix:" + dir + "/none", "-cert", "none", "-key", name},
		{"snapshot", "show", "none", "-shared", name}, {"snapshot", "verify", "none", "-shared", name},
	} {
		for mode, warnings := range map[os.FileMode]int{0o600: 0, 0o644: 1} {
			require.NoError(t, os.Chmod(name, mode))
			var stdout, stderr strings.Builder
			require.Equal(t, bad, run(command, &stdout, &stderr), "%v: %s", command, &stderr)
			require.Equal(t, warnings, strings.Count(stderr.String(), `msg="every user of this machine can read a file of secrets; run chmod 600" path=`+name), "%v: %s", command, &stderr)
		}
	}
}

func TestSecretFilesIncludeAllOptions(t *testing.T) {
	t.Parallel()
	var o serveOptions
	o.Shared, o.ChecksTokens, o.AdminTokens, o.PeerTLS.Key, o.HTTPTLS.Key, o.EnvoyTLS.Key, o.RulesToken = "1", "2", "3", "4", "5", "6", "7"
	o.RegionSecrets = perRegion[string]{"b": "9", "a": "8"}
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, o.secretFiles())
}
