package admin

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnswerOfRulesShowsExceptions(t *testing.T) {
	a := startTestAPI(t, `
tiers: {paid: {}}
rules:
- {name: a, match: {not: [{path: [/healthz, /readyz]}, {method: OPTIONS, host: a, header: {X-A: [b]}, tier: paid, ip: 10.0.0.0/8, api_key: [k, l]}]}, key: ip, limit: {rate: 9, per: 1m, values: {10.0.0.0/8: {rate: 5}}}}
- {name: b, match: {not: {tier: paid}}, key: ip, limit: {rate: 9, per: 1m}}
`)
	var now rulesAnswer
	a.get("GET", "/v1/rules", "", 200, &now)
	require.Equal(t, []exceptionAnswer{
		{Paths: []string{"/healthz", "/readyz"}},
		{Methods: []string{"OPTIONS"}, Hosts: []string{"a"}, Headers: map[string][]string{"X-A": {"b"}}, Tiers: []string{"paid"},
			clientsAnswer: clientsAnswer{IPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, APIKeys: 2}},
	}, now.Rules[0].Match.Not)
	require.Equal(t, 1, now.Rules[0].Limits[0].Values)
	var status keyStatus
	a.get("GET", "/v1/status?key=k&tier=paid", "", 200, &status)
	require.Len(t, status.Limits, 1, "rule b is for no request of the tier")
	for body, want := range map[string]int{`{"path":"/healthz"}`: 1, `{"path":"/healthz/"}`: 2, `{"path":"/x"}`: 2} {
		var d requestAnswer
		a.get("POST", "/v1/request", body, 200, &d)
		require.Len(t, d.Limits, want, body)
	}
}
