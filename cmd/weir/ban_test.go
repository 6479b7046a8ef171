package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"
)

func TestBanCommandsListAndRelease(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte("rules:\n- {name: login, key: ip, limit: {rate: 1, per: 1h}, ban: {denials: 1, within: 1m, for: 1h}}\n"), 0o600))
	p := begin(t, insecure.NewCredentials(), dir)
	for range 3 {
		p.ask("check", "login", "192.0.2.1")
	}
	code, out := p.ask("check", "login", "192.0.2.1")
	require.Equal(t, denied, code, out)
	require.Regexp(t, `^denied: 0 of 1 left, by owner, retry after 3[56]\d\d s, the key is banned\n`, out)
	code, out = p.ask("ban", "list")
	require.Equal(t, ok, code, out)
	require.Regexp(t, `(?m)^login +192\.0\.2\.1 +[0-9a-f]{32} +20`, out)
	code, out = p.ask("ban", "release", "login", "192.0.2.1")
	require.Equal(t, ok, code, out)
	require.Equal(t, "the key is released on all members\n", out)
	code, out = p.ask("check", "login", "192.0.2.1")
	require.Equal(t, ok, code, out)
	for _, args := range [][]string{{"ban", "release", "login"}, {"ban", "release", "login", "k", "-id", "5f"}} {
		code, out = p.ask(args...)
		require.Equal(t, usage, code)
		require.Contains(t, out, "set either a key or -id")
	}
}
