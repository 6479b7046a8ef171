package rules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInvalidKeepIsRefusedWithRemedy(t *testing.T) {
	for _, c := range []struct{ fields, want string }{
		{"limit: {rate: 5, per: 1s, keep: 5}", `5:35: keep is 5 of 5: use less, so that other requests get a unit`},
		{"limit: {rate: 5, per: 1s, keep: 100%}", `5:35: keep is 100%: use less`},
		{"limit: {rate: 5, per: 1s, keep: 120%}", `keep is 120%: use 0% to 100%`},
		{"limit: {rate: 5, per: 1s, keep: x%}", `keep is "x%": use a percentage`},
		{"limit: {rate: 5, per: 1s, keep: -1}", `keep is -1: use 1 to 1000000000000`},
		{"limit: {rate: 5, per: 1s, keep: [1]}", `keep`},
		{"limit: {rate: 5, algorithm: in_flight, keep: 1}", `keep with in_flight: its callers wait in one queue; leave keep out`},
		{"limit: {rate: 5, per: 1s, algorithm: leaky_bucket, keep: 20%}", `keep with leaky_bucket`},
		{"limit: {rate: 5, per: 1s, keep: 20%, tiers: {free: {rate: 2, keep: 2}}}", `keep is 2 of 2`},
		{"limit: {rate: 5, per: 1s}\n  critical: {path: /a}", `6:13: critical in a rule whose limits keep nothing: add keep to a limit, like keep: 20%`},
		{"limit: {rate: 5, per: 1s, keep: 1}\n  critical: {}", `6:13: critical is empty, which would select every request`},
		{"limit: {rate: 5, per: 1s, keep: 1}\n  critical: []", `6:13: critical has 0 entries: use 1 to 64`},
		{"limit: {rate: 5, per: 1s, keep: 1}\n  critical: true", `6:13: critical has an entry that is not a map: select requests, like {path: /checkout} or {user: alice}`},
		{"limit: {rate: 5, per: 1s, keep: 1}\n  critical: {users: a}", `unknown field "users": did you mean "user"?`},
		{"limit: {rate: 5, per: 1s, keep: 1}\n  critical: {user: []}", `the list is empty`},
		{"limit: {rate: 5, per: 1s, keep: 1}\n  critical: {path: a}", `path is "a": begin it with /`},
	} {
		_, err := Parse("rules.yaml", []byte("tiers: {free: {}}\nrules:\n- name: r\n  key: ip\n  "+c.fields))
		require.ErrorContains(t, err, c.want, c.fields)
	}
}

// A kept part is a part of the number that applies to a key, and leaves at least a unit.
func TestKeepFollowsNumbersOfTiersAndOverrides(t *testing.T) {
	n := startNode(t)
	b := staticBook(t, n, `
tiers: {half: {multiply: 0.5}, own: {}, least: {}}
rules:
- {name: part, key: user, limit: {rate: 99, per: 1h, keep: 20%, tiers: {own: {rate: 10, keep: 3}, least: {rate: 1}}}}
- {name: units, key: user, limit: {algorithm: token_bucket, rate: 10, burst: 50, per: 1h, keep: 20, tiers: {own: {rate: 10}}}}
`)
	for _, o := range []string{"part", "units"} {
		require.NoError(t, b.Override(o, "key", Override{Rate: 7}))
	}
	for _, c := range []struct {
		limit, tier, key string
		usable, keep     int64
	}{
		{"part", "", "", 79, 20}, {"part", "half", "", 39, 10}, {"part", "own", "", 7, 3}, {"part", "least", "", 1, 0}, {"part", "half", "key", 5, 2},
		{"units", "", "", 30, 20}, {"units", "half", "", 5, 20}, {"units", "own", "", 1, 9}, {"units", "", "key", 1, 6},
	} {
		of, _, _ := b.Current().Limit(c.limit)
		count := b.Current().Count(of, c.tier, c.key)
		ordinary, policy := count.LimiterFor(false)
		critical, criticalPolicy := count.LimiterFor(true)
		require.Equal(t, []int64{c.usable, c.usable + c.keep}, []int64{Capacity(ordinary.Limit()), Capacity(critical.Limit())}, c)
		require.Equal(t, c.keep > 0, policy != criticalPolicy)
		require.Equal(t, count.Policy, policy)
	}
}

func TestCriticalSelectsRequests(t *testing.T) {
	s := mustParse(t, `
tiers: {paid: {}}
rules:
- {name: a, key: ip, limit: {rate: 9, per: 1h, keep: 1}, critical: [{path: /pay/, method: POST}, {user: [alice, bob], tier: paid}, {header: {X-Canary: "1"}}]}
- {name: b, key: ip, limit: {rate: 9, per: 1h, keep: 1}}
`)
	for _, c := range []struct {
		request  Request
		critical bool
	}{
		{Request{Method: "POST", Path: "/pay/7"}, true},
		{Request{Method: "GET", Path: "/pay/7"}, false},
		{Request{Method: "POST", Path: "/x/..%2fpay/7"}, false}, // servers read it in several ways
		{Request{Path: "/", User: "bob", Tier: "paid"}, true},
		{Request{Path: "/", User: "bob"}, false},
		{Request{Path: "/", Tier: "paid"}, false},
		{Request{Path: "/", Header: map[string][]string{"X-Canary": {"1"}}}, true},
		{Request{Path: "/", Header: map[string][]string{"X-Canary": {"1", "2"}}}, false},
	} {
		require.Equal(t, c.critical, s.IsCritical(s.Rules()[0], &c.request), "%+v", c.request)
		require.False(t, s.IsCritical(s.Rules()[1], &c.request))
		c.request.Critical = true
		require.True(t, s.IsCritical(s.Rules()[1], &c.request))
	}
	require.Equal(t, "9 per 1h, keep 1, sliding_window, majority_share", Describe(s.Rules()[0].Limits[0].ForTier("")))
	require.Equal(t, time.Hour, s.Rules()[0].Limits[0].ForTier("").Per)
}
