package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func (a *testAPI) statusOf(pairs ...string) (s keyStatus) {
	a.t.Helper()
	a.get("GET", "/v1/status"+query(pairs...), "", http.StatusOK, &s)
	return s
}

func namesIn(s keyStatus) (names []string) {
	for _, l := range s.Limits {
		names = append(names, l.Name)
	}
	return names
}

func TestStatusHasRulesWithKnownKeys(t *testing.T) {
	a := newTestAPI(t)
	for _, c := range []struct {
		about string
		query []string
		names []string
		keys  []string
	}{
		{"a user", []string{"user", "u|1"}, []string{"api/burst", "api/hourly", "all"}, []string{`u\|1`, `u\|1`, ""}},
		{"an address", []string{"ip", "2001:db8::1"}, []string{"address", "all"}, []string{"2001:db8::/64", ""}},
		{"an IPv4 address in IPv6", []string{"ip", "::ffff:192.0.2.1"}, []string{"address", "all"}, []string{"192.0.2.1", ""}},
		{"a user and a header", []string{"user", "u", "header", "x-project: p"}, []string{"api/burst", "api/hourly", "both", "all"}, []string{"u", "u", "u|p", ""}},
		{"an API key", []string{"api_key", "k"}, []string{"all"}, []string{""}},
		{"a user of a tier", []string{"user", "u", "tier", "premium"}, []string{"api/burst", "api/hourly", "all", "paid"}, []string{"u", "u", "", "u"}},
		{"a whole key", []string{"key", "u"}, []string{"api/burst", "api/hourly", "address", "both", "all"}, []string{"u", "u", "u", "u", ""}},
		{"the empty key", []string{"key", ""}, []string{"api/burst", "api/hourly", "address", "both", "all"}, []string{"", "", "", "", ""}},
		{"a whole key under one rule", []string{"key", "u", "rule", "api"}, []string{"api/burst", "api/hourly"}, []string{"u", "u"}},
		{"under a rule of another key", []string{"user", "u", "rule", "address"}, nil, nil},
		{"after a limit", []string{"key", "u", "after", "api/hourly"}, []string{"address", "both", "all"}, []string{"u", "u", ""}},
	} {
		s := a.statusOf(c.query...)
		require.Equal(t, c.names, namesIn(s), c.about)
		for i, l := range s.Limits {
			require.Equal(t, c.keys[i], l.Key, c.about)
		}
		require.Empty(t, s.Next, c.about)
	}
	require.True(t, a.statusOf("user", "monitoring").Exempt)
	require.False(t, a.statusOf("user", "u").Exempt)
}

func TestStatusSpendsNothing(t *testing.T) {
	a := newTestAPI(t)
	now := a.book.Current()
	l, _, _ := now.Limit("api/hourly")
	for tier, limit := range map[string]int64{"free": 1000, "premium": 10000} {
		d, err := now.Limiter(l, tier, "u").AllowN(t.Context(), "u", 100)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		s := a.statusOf("user", "u", "tier", tier)
		require.Equal(t, tier, s.Tier)
		require.Equal(t, tier, s.Limits[1].Tier)
		require.Equal(t, limit, s.Limits[1].Limit)
	}
	at := time.Now()
	first := a.statusOf("user", "u", "header", "X-Project: p")
	require.EqualValues(t, 3, first.Version)
	require.True(t, first.Enabled)
	require.Equal(t, "free", first.Tier, "the default")
	hourly := first.Limits[1]
	require.EqualValues(t, 800, hourly.Remaining)
	require.True(t, hourly.Allowed)
	require.Zero(t, hourly.RetryAfterS)
	require.Equal(t, "1000 per 1h, sliding_window, majority_share", hourly.Policy)
	require.Equal(t, "owner", hourly.Source)
	require.Equal(t, a.node.Members()[0].Name, hourly.Owner)
	require.WithinDuration(t, at.Add(2*time.Hour-time.Hour/200), hourly.ResetAt, time.Minute)
	require.True(t, first.Limits[2].Shadow)

	keys := a.node.Stats().Keys
	for range 50 {
		a.statusOf("user", "u", "header", "X-Project: p")
	}
	again := a.statusOf("user", "u", "header", "X-Project: p")
	for i := range again.Limits {
		require.Equal(t, first.Limits[i].Remaining, again.Limits[i].Remaining, again.Limits[i].Name)
	}
	require.Equal(t, keys, a.node.Stats().Keys, "nor makes a count")

	address, _, _ := now.Limit("address")
	for range 5 {
		_, err := now.Limiter(address, "", "192.0.2.1").Allow(t.Context(), "192.0.2.1")
		require.NoError(t, err)
	}
	denied := a.statusOf("ip", "192.0.2.1").Limits[0]
	require.False(t, denied.Allowed)
	require.Zero(t, denied.Remaining)
	require.Positive(t, denied.RetryAfterS)
	require.True(t, denied.Soft.Allowed)
}

func TestStatusHasPages(t *testing.T) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 600 {
		fmt.Fprintf(&text, "- {name: r%03d, key: user, match: {path: /%d}, limit: {rate: 1, per: 1s}}\n", i, i)
	}
	a := startTestAPI(t, text.String())
	var names []string
	pages, after := 0, ""
	for {
		q := []string{"key", "u"}
		if after != "" {
			q = append(q, "after", after)
		}
		s := a.statusOf(q...)
		names = append(names, namesIn(s)...)
		pages++
		if after = s.Next; after == "" {
			break
		}
	}
	require.Equal(t, 3, pages)
	require.Len(t, names, 600)
	for i, name := range names {
		require.Equal(t, fmt.Sprintf("r%03d", i), name)
	}
}
