package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"
)

func TestBlockCommandSetsListsAndRemoves(t *testing.T) {
	t.Parallel()
	p := begin(t, insecure.NewCredentials(), folder(t))
	for _, c := range []struct {
		want string
		code int
		args []string
	}{
		{"the block is in force until ", ok, []string{"block", "-ip", "192.0.2.7/24", "-for", "1h", "-by", "jo", "-reason", "scanner"}},
		{`ip/192\.0\.2\.0/24 +until \S+ +jo +\S+ +scanner`, ok, []string{"block"}},
		{"the block is in force without an end", ok, []string{"block", "-user", "ada"}},
		{"denied", denied, []string{"check", "api/hourly", "ada"}},
		{"no block", ok, []string{"block", "-user", "ada", "-remove"}},
		{"no block", ok, []string{"block", "-id", "ip/192.0.2.0/24", "-remove"}},
		{"allowed: 59 of 60 left", ok, []string{"check", "api/hourly", "ada"}},
		{"the block is in force", ok, []string{"block", "-rule", "api", "-rule_key", "ada"}},
		{"denied", denied, []string{"check", "api/hourly", "ada"}},
		{"no block", ok, []string{"block", "-rule", "api", "-rule_key", "ada", "-remove"}},
		{"the override is in force", ok, []string{"override", "api/hourly", "ada", "-rate", "0"}},
		{"denied", denied, []string{"check", "api/hourly", "ada"}},
		{"no client is named", usage, []string{"block", "-remove"}},
		{"no client is named", usage, []string{"block", "-for", "1h"}},
		{"several clients are named", usage, []string{"block", "-ip", "192.0.2.1", "-user", "ada"}},
		{"-rule and -rule_key need each other", usage, []string{"block", "-rule", "api"}},
		{"-remove is set with -for", usage, []string{"block", "-user", "ada", "-remove", "-for", "1h"}},
		{"-id is only for -remove", usage, []string{"block", "-id", "user/1"}},
		{`"192.0.2.1/33" is no address or network`, bad, []string{"block", "-ip", "192.0.2.1/33"}},
	} {
		code, out := p.ask(c.args...)
		require.Equal(t, c.code, code, out)
		require.Regexp(t, c.want, out)
	}
}
