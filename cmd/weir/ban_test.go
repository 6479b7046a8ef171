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
	p.expect(t, []call{
		{`^denied: 0 of 1 left, by owner, retry after 3[56]\d\d s, the key is banned\n`, denied, []string{"check", "login", "192.0.2.1"}},
		{`(?m)^login +192\.0\.2\.1 +[0-9a-f]{32} +20`, ok, []string{"ban", "list"}},
		{`^the key is released on all members\n$`, ok, []string{"ban", "release", "login", "192.0.2.1"}},
		{"^allowed", ok, []string{"check", "login", "192.0.2.1"}},
		{"set either a key or -id", usage, []string{"ban", "release", "login"}},
		{"set either a key or -id", usage, []string{"ban", "release", "login", "k", "-id", "5f"}},
	})
}
