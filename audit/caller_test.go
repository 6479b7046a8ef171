package audit_test

import (
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
	"github.com/weir-go/weir/httplimit"
	"github.com/weir-go/weir/internal/testnode"
)

func TestCallersAreMaskedWithoutOptionClients(t *testing.T) {
	const chrome = "Mozilla/5.0 (X11; Linux x86_64 (deep) jane@example.com) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.7444.59 Safari/537.36"
	for _, c := range []struct{ client, agent, network, products string }{
		{"203.0.113.77", chrome, "203.0.113.0/24", "Mozilla/5 AppleWebKit/537 Chrome/142 Safari/537"},
		{"2001:db8:1:2::3%" + strings.Repeat("\u009b", 1000), "curl/8.5.0", "2001:db8:1::/48", "curl/8"},
		{"::ffff:203.0.113.77", "", "203.0.113.0/24", ""},
		{"2002:cb00:714d:1::1", "", "2002:cb00:7100::/40", ""},
		{"64:ff9b::cb00:714d", "", "64:ff9b::/48", ""},
		{"", "jane@example.com 4711 bot/1234567890 \x1b[2J (", "", ""},
		{"", "a\r\nb/1\x00 }\"{ " + strings.Repeat("p/1 ", 20), "", "p/1 p/1 p/1 p/1 p/1 p/1 p/1 p/1"},
	} {
		for _, whole := range []bool{false, true} {
			sink := new(kept)
			log, l := audited(t, sink, audit.Options{Sample: 1, Clients: whole})
			caller := &weir.Caller{Route: "GET /items/{id}", UserAgent: c.agent, Tier: "gold"}
			if c.client != "" {
				caller.Client = netip.MustParseAddr(c.client)
			}
			_, err := l.Allow(weir.WithCaller(t.Context(), caller), "k")
			require.NoError(t, err)
			require.NoError(t, log.Close(t.Context()))
			r := sink.records()[0]
			want := []string{"GET /items/{id}", "gold", c.network, c.products}
			if whole {
				want[2], want[3] = "", c.agent
				if caller.Client.IsValid() {
					want[2] = caller.Client.Unmap().WithZone("").String()
				}
			}
			require.Equal(t, want, []string{r.Route, r.Tier, r.Client, r.Agent})
			text, err := json.Marshal(r)
			require.NoError(t, err)
			require.NotContains(t, string(text), "\n")
			require.NotContains(t, string(text), "\x1b")
		}
	}
}

func TestLongCallerTextsAreCut(t *testing.T) {
	sink := new(kept)
	log, l := audited(t, sink, audit.Options{Sample: 1, Clients: true})
	long := strings.Repeat("x", 10_000)
	_, err := l.Allow(weir.WithCaller(t.Context(), &weir.Caller{Route: long, UserAgent: long, Tier: long}), "k")
	require.NoError(t, err)
	require.NoError(t, log.Close(t.Context()))
	r := sink.records()[0]
	require.Equal(t, []int{128, 256, 64}, []int{len(r.Route), len(r.Agent), len(r.Tier)})
}

func TestRecordsDescribeRequestOfMiddleware(t *testing.T) {
	sink := new(kept)
	log := newLog(t, sink, audit.Options{Sample: 1})
	n := testnode.Start(t, weir.Config{Observer: weir.Observers(nil, log, log)})
	require.True(t, n.UsesCallers())
	book := testnode.Book(t, n, `
tiers: {gold: {multiply: 2}}
rules:
- {name: a, match: {path: "/items/{id}"}, key: user, limit: {rate: 5, per: 1m, keep: 1}}
- {name: b, key: user, limit: {algorithm: token_bucket, rate: 1, per: 1s, burst: 3}}`)
	m, err := httplimit.New(n, book, httplimit.Options{})
	require.NoError(t, err)
	r := httptest.NewRequest("GET", "/items/secret?token=secret", nil)
	r.Header.Set("User-Agent", "curl/8.5.0")
	request := m.Request(r)
	request.Tier, request.User = "gold", "u"
	_ = m.Check(t.Context(), &request)
	require.NoError(t, log.Close(t.Context()))
	all := sink.records()
	require.Len(t, all, 4)
	require.Equal(t, all[0].Request, all[3].Request)
	require.NotZero(t, all[0].Request)
	for _, r := range all {
		require.Equal(t, []any{"GET /items/{id}", "192.0.2.0/24", "curl/8", "gold", 2, "take"}, []any{r.Route, r.Client, r.Agent, r.Tier, r.Asks, r.Operation})
		require.False(t, r.Refused)
	}
	require.Equal(t, []any{"a", int64(10), int64(9), "1m", int64(1), int64(1)}, []any{all[0].Limit, all[0].Rate, all[0].Capacity, all[0].Per, all[0].Keep, all[0].Used})
	require.Equal(t, []any{"b", int64(2), int64(6), "token_bucket"}, []any{all[2].Limit, all[2].Rate, all[2].Burst, all[2].Algorithm})
}
