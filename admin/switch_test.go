package admin

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rules"
)

func TestSwitchIsSetListedAndDeleted(t *testing.T) {
	a := startTestAPI(t, `
rules:
- {name: api, key: user, limit: {rate: 1, per: 1h}}
- {name: login, match: {method: POST}, key: user, limit: {rate: 5, per: 1h}}
`)
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	var set switchAnswer
	a.get("PUT", "/v1/switches", `{"rule":"api","mode":"off","until":"`+until.Format(time.RFC3339)+`","by":"","reason":"an incident"}`, 200, &set)
	require.Equal(t, switchAnswer{"api", "off", controlAnswer{Until: &until, By: "token 1", Reason: "an incident", At: set.At}}, set)
	require.Contains(t, a.log.String(), `msg="an operator set a switch" rule=api mode=off until=`+until.Format(time.RFC3339)+` by="token 1" reason="an incident" client="token 1" `)
	a.get("PUT", "/v1/switches", `{"rule":"*","mode":"shadow","by":"jo"}`, 200, &set)

	var all switchesAnswer
	a.get("GET", "/v1/switches", "", 200, &all)
	require.Equal(t, []string{"*", "api"}, []string{all.Switches[0].Rule, all.Switches[1].Rule})
	var now rulesAnswer
	a.get("GET", "/v1/rules", "", 200, &now)
	require.Equal(t, []any{2, "off", "api", "shadow", "jo"}, []any{now.Switches, now.Rules[0].Mode, now.Rules[0].Switch.Rule, now.Rules[1].Mode, now.Rules[1].Switch.By})
	var d requestAnswer
	a.get("POST", "/v1/request", `{"method":"POST","path":"/","user":"u"}`, 200, &d)
	require.Equal(t, []string{"api"}, d.Off)
	require.Equal(t, []string{"login"}, []string{d.Limits[0].Name})
	require.True(t, d.Limits[0].Shadow)
	var took takeAllAnswer
	h := a.get("POST", "/v1/take_all", `{"takes":[{"limit":"api","key":"u","units":9},{"limit":"login","key":"u","units":1}]}`, 200, &took)
	require.True(t, took.Allowed)
	require.Equal(t, []bool{true, false, false, true}, []bool{took.Takes[0].Off, took.Takes[0].Shadow, took.Takes[1].Off, took.Takes[1].Shadow})
	require.Equal(t, "none", took.Takes[0].Source)
	require.Empty(t, h.Get("RateLimit-Policy"))
	status := a.statusOf("key", "u")
	require.Equal(t, []bool{true, true}, []bool{status.Limits[0].Off, status.Limits[1].Shadow})
	require.EqualValues(t, 1, status.Limits[0].Remaining, "nothing is spent")

	require.Equal(t, http.StatusNoContent, a.ask("DELETE", "/v1/switches?rule=api", "").Code)
	require.Contains(t, a.log.String(), `msg="an operator removed a switch" rule=api client="token 1" `)
	require.Equal(t, rules.Shadow, a.book.Current().Mode(a.book.Current().Rules()[0]), "the switch of all rules is left")
	require.Equal(t, http.StatusNoContent, a.ask("DELETE", "/v1/switches?rule=api", "").Code, "again")
}

func TestCheckAPICountsDenialsByTier(t *testing.T) {
	a := startTestAPI(t, `
tiers: {free: {}, paid: {multiply: 2}}
rules:
- {name: api, key: user, limit: {rate: 1, per: 1h}}
- {name: jobs, key: user, limit: {rate: 1, algorithm: in_flight}}
`)
	for _, path := range []string{"/v1/take", "/v1/reserve", "/v1/peek"} {
		for range 2 {
			a.ask("POST", path, `{"limit":"api","key":"u","tier":"free"}`)
		}
	}
	for range 3 {
		a.ask("POST", "/v1/hold", `{"limit":"jobs","key":"u","tier":"paid"}`)
	}
	require.Equal(t, []rules.TierDenials{{Rule: "api", Tier: "free", Enforced: 1 + 2}, {Rule: "jobs", Tier: "paid", Enforced: 1}}, a.book.Current().TierDenials())
}

func TestProxiesObeySwitches(t *testing.T) {
	for mode, want := range map[rules.Mode]bool{rules.Enforce: false, rules.Shadow: true, rules.Off: true} {
		a := startTestAPI(t, "rules: [{name: r, key: ip, limit: {rate: 1, per: 1h}}]")
		require.NoError(t, a.book.Switch(rules.AllRules, rules.Switch{Mode: mode}))
		for name, ask := range askers(a.api) {
			ask(forwardedAs{})
			require.Equal(t, want, ask(forwardedAs{}).Code == 200, "%s, %v", name, mode)
		}
	}
}

func TestInvalidSwitchIsRefused(t *testing.T) {
	a := newTestAPI(t)
	for body, want := range map[string]string{
		`{"rule":"api","mode":"on","until":"2001-01-01T00:00:00Z"}`: `mode is \"on\": use enforce, shadow, off, or a percentage of the keys, like 10%; until is 2001-01-01T00:00:00Z, which is past: use a later time`,
		`{"rule":"apy","mode":"off"}`:                               `there is no rule \"apy\": did you mean \"api\"?`,
		`{"rule":"api"}`:                                            `field \"mode\" is missing`,
	} {
		w := a.ask("PUT", "/v1/switches", body)
		require.Contains(t, w.Body.String(), want)
	}
	require.Empty(t, a.book.Switches())
}
