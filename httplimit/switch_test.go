package httplimit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

// A shadow denies, delays and marks no request, whatever its rule has in the file.
func TestSwitchedRuleDeniesAndDelaysNothing(t *testing.T) {
	for rule, statuses := range map[string]map[rules.Mode][3]int{
		"limit: {rate: 1, per: 1h}":                                               {rules.Enforce: {200, 429, 429}, rules.Shadow: {200, 200, 200}, rules.Off: {200, 200, 200}},
		"limit: {rate: 1, per: 1h}, enabled: false":                               {rules.Enforce: {200, 429, 429}, rules.Shadow: {200, 200, 200}, rules.Off: {200, 200, 200}},
		"limit: {rate: 2, per: 1h}, soft: {over: 50%, for: 1h}, cost: 2":          {rules.Enforce: {200, 429, 429}, rules.Shadow: {200, 200, 200}, rules.Off: {200, 200, 200}},
		"limit: {rate: 1, per: 1h, algorithm: leaky_bucket}, queue: 1m":           {rules.Enforce: {200, 429, 429}, rules.Shadow: {200, 200, 200}, rules.Off: {200, 200, 200}},
		"limit: {rate: 1, per: 40s, algorithm: leaky_bucket}, queue: 1m":          {rules.Shadow: {200, 200, 200}},
		"limit: {rate: 1, per: 1h}, shadow: true, count: {status: 200}":           {rules.Enforce: {200, 429, 429}, rules.Shadow: {200, 200, 200}},
		"limit: {rate: 1, algorithm: in_flight}, queue: 1s, cost: 1":              {rules.Enforce: {200, 200, 200}, rules.Shadow: {200, 200, 200}},
		"limit: {rate: 1, per: 1h}, enforce: 0.0001%, refund_on: {status: 500}":   {rules.Enforce: {200, 429, 429}, rules.EnforcePart(1e-6): {200, 200, 200}},
		"limits: [{rate: 9, per: 1m}, {rate: 1, per: 1h}], shadow: true, cost: 1": {rules.Enforce: {200, 429, 429}, rules.Off: {200, 200, 200}},
	} {
		for mode, want := range statuses {
			m := newLimiter(t, "rules:\n- {name: r, key: ip, "+rule+"}\n", Options{}, weir.Config{})
			require.NoError(t, m.book.Switch("r", rules.Switch{Mode: mode}))
			begun := time.Now()
			for i, status := range want {
				w := answer(m.Handler(hello), get("/", "192.0.2.1"))
				require.Equal(t, status, w.Code, "%s, %v, request %d", rule, mode, i)
				if mode != rules.Enforce {
					require.Empty(t, w.Header().Get("RateLimit")+w.Header().Get("RateLimit-Policy")+w.Header().Get(softField), rule)
				}
			}
			require.Less(t, time.Since(begun), 30*time.Second, "%s, %v: no request waits for its turn", rule, mode)
			shadowed := m.node.Stats().Shadows
			require.Equal(t, mode != rules.Enforce && mode != rules.Off, shadowed != weir.Outcomes{}, "%s, %v", rule, mode)
		}
	}
}

func TestRuleIsEnforcedForPartOfKeys(t *testing.T) {
	m := newLimiter(t, "rules:\n- {name: r, key: user, enforce: 30%, limits: [{rate: 1, per: 1h}, {name: day, rate: 9, per: 24h}]}\n", byUser, weir.Config{})
	s := m.book.Current()
	denied := 0
	for i := range 300 {
		user := fmt.Sprint("user-", i)
		answer(m.Handler(hello), get("/", "192.0.2.1", "X-User", user))
		code := answer(m.Handler(hello), get("/", "192.0.2.1", "X-User", user)).Code
		require.Equal(t, s.ModeFor(s.Rules()[0], user) == rules.Enforce, code == 429, user)
		if code == 429 {
			denied++
		}
	}
	outcomes := s.Outcomes(m.node.Stats())
	require.EqualValues(t, denied, outcomes[0].Enforced.Denied)
	require.EqualValues(t, 300-denied, outcomes[0].Shadowed.Denied)
}

func TestDenialsAreCountedByRuleAndTier(t *testing.T) {
	const file = `
tiers: {free: {}, paid: {multiply: 2}}
default_tier: free
rules:
- {name: hard, match: {path: /hard}, key: user, limit: {rate: 1, per: 1h}}
- {name: trial, key: user, shadow: true, limit: {rate: 1, per: 1h}}
`
	o := byUser
	o.Tier = HeaderValue("X-Tier")
	m := newLimiter(t, file, o, weir.Config{})
	send := func(path string) {
		for _, tier := range []string{"free", "paid", "unknown"} {
			for range 3 {
				answer(m.Handler(hello), get(path, "192.0.2.1", "X-User", tier, "X-Tier", tier))
			}
		}
	}
	send("/hard")
	want := []rules.TierDenials{
		{Rule: "hard", Tier: "free", Enforced: 4}, {Rule: "hard", Tier: "paid", Enforced: 1},
		{Rule: "trial", Tier: "free", Shadowed: 4}, {Rule: "trial", Tier: "paid", Shadowed: 1},
	}
	require.Equal(t, want, m.book.Current().TierDenials())
	send("/")
	want[2].Shadowed, want[3].Shadowed = 4+6, 1+3
	require.Equal(t, want, m.book.Current().TierDenials())
	require.NoError(t, m.book.Switch("trial", rules.Switch{Mode: rules.Enforce}))
	send("/")
	want[2].Enforced, want[3].Enforced = 6, 3
	require.Equal(t, want, m.book.Current().TierDenials(), "the counters stay")
}
