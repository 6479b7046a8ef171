package rules

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestOutcomesTellWhatAShadowWouldDenyFromDenials(t *testing.T) {
	t.Parallel()
	node, err := weir.Start(t.Context(), weir.Config{MaxKeys: 100})
	require.NoError(t, err)
	defer node.Close()
	const text = `{rules: [
  {name: login, key: ip, limits: [{name: burst, rate: 1, per: 1h}, {name: day, rate: 3, per: 24h}]},
  {name: trial, key: ip, shadow: true, limit: {rate: 2, per: 1h}}]}`
	set, err := Parse("rules.yaml", []byte(text))
	require.NoError(t, err)
	book, err := Static(node, set)
	require.NoError(t, err)
	defer book.Close()
	ask := func(name string, shadow bool) {
		l, _, ok := book.Current().Limit(name)
		require.True(t, ok)
		_, err := node.AllowAll(t.Context(), weir.Ask{Limiter: book.Current().Limiter(l, "", "k"), Key: "k", Shadow: shadow})
		require.NoError(t, err)
	}
	for range 3 {
		ask("login/burst", false)
		ask("trial", true)
	}
	ask("trial", false) // as after its rule was enforced, and before
	require.Equal(t, []LimitOutcomes{
		{Rule: "login", Limit: "login/burst", Enforced: weir.Outcomes{Allowed: 1, Denied: 2}},
		{Rule: "login", Limit: "login/day"},
		{Rule: "trial", Limit: "trial", Shadow: true, Enforced: weir.Outcomes{Denied: 1}, Shadowed: weir.Outcomes{Allowed: 2, Denied: 1}},
	}, set.Outcomes(node.Stats()))
}
