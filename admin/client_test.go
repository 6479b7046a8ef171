package admin

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const clientRules = `
tiers: {free: {}, paid: {multiply: 10}}
default_tier: free
deny: {user: mallory, reason: fraud}
rules:
- {name: api, key: user, limits: [{name: hourly, rate: 6, per: 1h}, {name: burst, algorithm: token_bucket, rate: 2, per: 1s, burst: 4}]}
- {name: soft, match: {path: /soft}, key: user, soft: {over: 50%, for: 1h}, limit: {rate: 4, per: 1h}}
- {name: tasks, match: {path: /tasks}, key: user, limit: {algorithm: in_flight, rate: 2}}
- {name: monthly, match: {path: /m}, key: user, limit: {rate: 5, calendar: month}}
- {name: project, key: [user, "header:X-Project"], limit: {rate: 5, per: 1h}}
- {name: address, key: ip, limit: {rate: 5, per: 1h}}
- {name: keyed, key: api_key, limit: {rate: 5, per: 1h}}
- {name: everyone, key: global, limit: {rate: 5, per: 1h}}
`

func TestAllLimitsOfClientAreShownAndChanged(t *testing.T) {
	a := startTestAPI(t, clientRules)
	show := func(pairs ...string) (c clientStatus, left []int64) {
		a.get("GET", "/v1/clients"+query(pairs...), "", 200, &c)
		for _, l := range c.Limits {
			left = append(left, l.Remaining)
		}
		return c, left
	}
	take := func(limit string, units string) {
		a.get("POST", "/v1/take", `{"limit":"`+limit+`","key":"ada","units":`+units+`}`, 200, new(any))
	}
	full := []int64{6, 4, 4, 2, 5}
	all := []string{"api/hourly", "api/burst", "soft", "tasks", "monthly"}
	c, left := show("user", "ada")
	require.Equal(t, full, left)
	require.Equal(t, []uncovered{{"project", "user|header:X-Project"}}, c.NotCovered)
	require.Equal(t, all, namesIn(c.keyStatus))
	_, left = show("user", "ada", "tier", "paid")
	require.Equal(t, []int64{60, 40, 40, 20, 50}, left)

	take("api/hourly", "6")
	take("soft", "4")
	take("soft", "1")
	take("everyone", "1")
	c, left = show("user", "ada")
	require.Equal(t, []int64{0, 4, 0, 2, 5}, left)
	require.EqualValues(t, 1, c.Limits[2].Soft.Remaining)
	var changed clientAnswer
	a.get("DELETE", "/v1/clients/counts?user=ada", "", 200, &changed)
	require.Equal(t, clientAnswer{Limits: []string{"api/hourly", "api/burst", "soft", "monthly"}, NotCovered: c.NotCovered}, changed)
	require.Contains(t, a.log.String(), `msg="an operator reset a count" limit=monthly id=`)
	c, left = show("user", "ada")
	require.Equal(t, full, left)
	require.EqualValues(t, 2, c.Limits[2].Soft.Remaining)

	a.get("PUT", "/v1/clients/overrides", `{"user":"ada","multiply":1.5,"by":"jo","reason":"import"}`, 200, &changed)
	require.Equal(t, all, changed.Limits)
	for range 2 { // the numbers of the file are multiplied, not those of an override
		c, left = show("user", "ada", "tier", "paid")
		require.Equal(t, []int64{9, 6, 6, 3, 7}, left, "an override is for all tiers")
		require.Equal(t, "import", c.Limits[4].Override.Reason)
		a.get("PUT", "/v1/clients/overrides", `{"user":"ada","multiply":1.5,"reason":"import"}`, 200, new(any))
	}
	_, left = show("user", "bob")
	require.Equal(t, full, left)
	a.get("PUT", "/v1/clients/overrides", `{"user":"ada","multiply":0}`, 200, new(any))
	c, _ = show("user", "ada")
	require.Nil(t, c.Block)
	for _, l := range c.Limits {
		require.Equal(t, []bool{true, false}, []bool{l.Blocked, l.Allowed}, l.Name)
	}
	a.get("DELETE", "/v1/clients/overrides?user=ada", "", 200, &changed)
	require.Equal(t, all, changed.Limits)
	a.get("DELETE", "/v1/clients/overrides?user=ada", "", 200, &changed)
	require.Empty(t, changed.Limits)
	c, left = show("user", "ada")
	require.Equal(t, full, left)
	require.False(t, c.Limits[0].Blocked)

	c, _ = show("user", "mallory")
	require.Equal(t, &clientBlock{Kind: "user", Reason: "fraud"}, c.Block)
	require.True(t, c.Limits[0].Blocked)
	a.get("PUT", "/v1/blocks", `{"api_key":"k","by":"jo","reason":"leaked","until":"2999-01-01T00:00:00Z"}`, 200, new(any))
	c, _ = show("api_key", "k")
	require.Equal(t, []string{"keyed"}, namesIn(c.keyStatus))
	require.Equal(t, []string{"api_key", "jo", "leaked"}, []string{c.Block.Kind, c.Block.By, c.Block.Reason})
	require.True(t, c.Limits[0].Blocked)
	require.Positive(t, c.Limits[0].RetryAfterS)
	c, _ = show("ip", "192.0.2.1")
	require.Equal(t, []string{"address"}, namesIn(c.keyStatus))
	require.Empty(t, c.NotCovered)
}

func TestInvalidClientIsRefused(t *testing.T) {
	a := startTestAPI(t, clientRules)
	const one = "name the client: send one of ip, user and api_key"
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/v1/clients", "", one},
		{"GET", "/v1/clients?user=a&api_key=k", "", one},
		{"DELETE", "/v1/clients/counts?tier=free", "", one},
		{"GET", "/v1/clients?user=a&tier=gold", "", `there is no tier`},
		{"GET", "/v1/clients?ip=here", "", `use an IP address`},
		{"PUT", "/v1/clients/overrides", `{"user":"a"}`, `field \"multiply\" is missing`},
		{"PUT", "/v1/clients/overrides", `{"user":"a","multiply":"2"}`, `use a number, without quotes`},
		{"PUT", "/v1/clients/overrides", `{"user":"a","multiply":-1}`, `multiply is -1: use 0 to 1000000`},
		{"PUT", "/v1/clients/overrides", `{"user":"a","multiply":1e999}`, `multiply is 1e999: use a number`},
	} {
		w := a.ask(c.method, c.path, c.body)
		require.Equal(t, 400, w.Code, c.path)
		require.Contains(t, w.Body.String(), c.want)
	}
}
