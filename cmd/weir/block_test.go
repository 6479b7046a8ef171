package main

import (
	"testing"

	"google.golang.org/grpc/credentials/insecure"
)

func TestBlockCommandSetsListsAndRemoves(t *testing.T) {
	t.Parallel()
	p := begin(t, insecure.NewCredentials(), folder(t))
	p.expect(t, []call{
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
	})
}

func TestUserCommandShowsAndChangesAllLimits(t *testing.T) {
	t.Parallel()
	p := begin(t, insecure.NewCredentials(), folder(t))
	p.expect(t, []call{
		{"allowed: 59 of 60 left", ok, []string{"check", "api/hourly", "ada"}},
		{`api/hourly +59 +60 +\S+ +60 per 1h, `, ok, []string{"user", "ada"}},
		{`"not_covered":\[`, ok, []string{"user", "ada", "-json"}},
		{"api/hourly: count deleted", ok, []string{"user", "ada", "-reset"}},
		{"api/hourly: override set", ok, []string{"user", "ada", "-multiply", "2", "-for", "1h"}},
		{`api/hourly +120 +120 .*, by an override until `, ok, []string{"user", "ada"}},
		{"api/hourly: override removed", ok, []string{"user", "ada", "-restore"}},
		{`api/hourly +60 +60 `, ok, []string{"user", "ada"}},
		{"the block is in force without an end", ok, []string{"user", "ada", "-block", "-reason", "fraud"}},
		{`(?s)blocked by its user without an end \(fraud\).*, blocked`, ok, []string{"user", "ada"}},
		{"denied", denied, []string{"check", "api/hourly", "ada"}},
		{"no block", ok, []string{"user", "ada", "-unblock"}},
		{"the block is in force", ok, []string{"user", "-api_key", "k", "-block"}},
		{"LIMIT", ok, []string{"user", "-ip", "192.0.2.1"}},
		{"name one client", usage, []string{"user"}},
		{"name one client", usage, []string{"user", "ada", "-ip", "192.0.2.1"}},
		{"several changes", usage, []string{"user", "ada", "-reset", "-block"}},
		{"without -block or -multiply", usage, []string{"user", "ada", "-reset", "-for", "1h"}},
		{"multiply is -1", bad, []string{"user", "ada", "-multiply=-1"}},
	})
}
