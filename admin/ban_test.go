package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const banningRules = `
rules:
- {name: login, key: ip, limit: {rate: 1, per: 1h}, ban: {denials: 2, within: 1m, for: 1h}}
- {name: partner, key: api_key, limit: {rate: 1, per: 1h}, ban: {denials: 1, within: 1m, for: 2h}}
- {name: plain, key: ip, limits: [{name: a, rate: 1, per: 1h}, {name: b, rate: 1, algorithm: in_flight}]}
`

func TestBansAreListedAndReleased(t *testing.T) {
	d, a := readAPI(t), startTestAPI(t, banningRules)
	begun := time.Now()
	take := func(limit, key string) (took Take) {
		a.get("POST", "/v1/take", `{"limit":"`+limit+`","key":"`+key+`"}`, 200, &took)
		return took
	}
	for _, of := range []struct {
		limit, key string
		denials    int
	}{{"login", "192.0.2.1", 2}, {"partner", "sk-0123456789abcdef", 1}} {
		require.True(t, take(of.limit, of.key).Allowed)
		for range of.denials {
			require.False(t, take(of.limit, of.key).Banned)
		}
		require.True(t, take(of.limit, of.key).Banned)
	}
	var list Bans
	a.get("GET", "/v1/bans", "", 200, &list)
	require.Len(t, list.Bans, 2)
	secret, b := list.Bans[0], list.Bans[1]
	require.Equal(t, "…cdef", *secret.Key)
	require.True(t, secret.Masked)
	require.Equal(t, []any{"login", "192.0.2.1", false}, []any{b.Limit, *b.Key, b.Masked})
	require.WithinDuration(t, begun.Add(time.Hour), b.Until, time.Minute)
	require.WithinDuration(t, begun, *b.Since, time.Minute)
	var stats Stats
	a.get("GET", "/v1/stats", "", 200, &stats)
	require.Equal(t, BanStats{Begun: 1, Denied: 1}, stats.Bans["login"])

	for _, c := range []struct {
		query, detail string
		status        int
	}{
		{query("limit", "login"), "name the ban: send key, or the id from the list", 400},
		{query("limit", "login", "key", "a", "id", b.ID), "name the ban: send key, or the id from the list", 400},
		{query("limit", "login", "id", "5f"), `id is "5f": use the 32 hexadecimal digits from the list`, 400},
		{query("limit", "plain/a", "key", "a"), `limit "plain/a" has no ban: its rule has none, or it is in_flight`, 400},
		{query("limit", "logins", "key", "a"), `there is no limit "logins": did you mean "login"?`, 404},
	} {
		w := a.ask("DELETE", "/v1/bans"+c.query, "")
		require.Equal(t, c.status, w.Code)
		require.Contains(t, w.Body.String(), strings.ReplaceAll(c.detail, `"`, `\"`))
	}
	d.exchange(a, "GET", "/v1/bans", "", "/v1/bans", http.StatusOK)
	d.exchange(a, "DELETE", "/v1/bans"+query("limit", "partner", "id", secret.ID), "", "/v1/bans", http.StatusOK)
	d.exchange(a, "DELETE", "/v1/bans"+query("limit", "login", "key", "192.0.2.1"), "", "/v1/bans", http.StatusOK)
	require.True(t, take("login", "192.0.2.1").Allowed)
	require.True(t, take("partner", "sk-0123456789abcdef").Allowed)
	a.get("GET", "/v1/bans", "", 200, &list)
	require.Empty(t, list.Bans)
	require.Contains(t, a.log.String(), `msg="an operator released a ban" limit=partner id=`+secret.ID)
	require.NotContains(t, a.log.String(), "192.0.2.1 ")
	require.NotContains(t, a.log.String(), "sk-0123")
}
