package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"
)

func TestPutCommandPublishesRules(t *testing.T) {
	t.Parallel()
	p := begin(t, insecure.NewCredentials(), folder(t))
	file := filepath.Join(t.TempDir(), "rules.yaml")
	for _, c := range []struct {
		text, want string
		code       int
		args       []string
	}{
		{"version: 70\nrules:\n- {name: api, key: user, limit: {rate: 90, per: 1h}}\n", `^version 70 \([0-9a-f]{12}\) is in force\n$`, ok, nil},
		{"version: 70\nrules: []\n", "weir rules put: version is 70: raise it above 70, which is in force", bad, nil},
		{"version: 71\nruls: []\n", "weir rules put: text:1:1: rules is missing\ntext:2:1: unknown field \"ruls\"", bad, nil},
		{"version: 72\ntiers: {paid: {multiply: 2}}\nrules:\n- {name: api, key: ip, multiply: true, limit: {rate: 1, per: 1h}}\n", `warning: text:4:\d+: tiers multiply`, ok, nil},
		{"version: 73\nrules: []\n", `^\{"version":73,.*"by":"jo","reason":"more users"`, ok, []string{"-json", "-by", "jo", "-reason", "more users"}},
	} {
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
		p.expect(t, []call{{c.want, c.code, append([]string{"rules", "put", file}, c.args...)}})
	}
	p.expect(t, []call{{`rules: version 73 .*, published by jo at \S+\n`, ok, []string{"status"}}})
}
