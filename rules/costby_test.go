package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCostDependsOnMethodAndPath(t *testing.T) {
	rule := mustParse(t, oneRule(`cost: {by: [{method: [POST, GET], path: /v1/free, units: 0}, {path: [/v1/export, '/v1/reports/{id}'], units: 20}, {method: POST, units: 5}], from: header:X-Units, default: 2}
key: ip
limit: {rate: 9, per: 1s}`)).Rules()[0]
	require.Equal(t, "0 for POST or GET or /v1/free, 20 for /v1/export or /v1/reports/{id}, 5 for POST, or header:X-Units, or 2", rule.Cost)
	for _, c := range []struct {
		method, path string
		want         int64
	}{
		{"GET", "/v1/items", 2},
		{"PUT", "/v1/free", 2},
		{"HEAD", "/v1/free", 0},
		{"POST", "/v1/free", 0},
		{"POST", "/v1/items", 5},
		{"POST", "/v1/export", 20},
		{"GET", "/v1/export/", 2},
		{"GET", "/v1/reports/7", 20},
		{"GET", "/v1/report%73/a%2Fb", 20},
		{"GET", "/v1/x/../export", 20},
		{"GET", "/v1/export;x=1", 20},
		{"DELETE", "/v1/items;x=1", 20},
		{"POST", "/v1//free", 20},
	} {
		r := Request{Method: c.method, Path: c.path}
		require.Equal(t, c.want, rule.Units(&r), "%s %s", c.method, c.path)
	}
	r := request("X-Units", "7", "")
	r.Path = "/"
	require.EqualValues(t, 7, rule.Units(&r))
	r = Request{Method: "POST", Path: "/v1/reports/7"}
	require.Zero(t, testing.AllocsPerRun(100, func() { rule.Units(&r) }))
	fold := mustParse(t, "ignore_case: true\n"+oneRule("cost: {by: {path: /v1/Export, units: 20}}\nkey: ip\nlimit: {rate: 99, per: 1s}")).Rules()[0]
	require.EqualValues(t, 20, fold.Units(&Request{Path: "/V1/eXport"}))
}

// If a rule with a pattern would match a path, the path costs the units of this pattern, in
// each spelling.
func TestNoSpellingOfPathIsCheaper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern, path := drawPattern(t), drawPath(t)
		const limit = "key: ip\nlimit: {rate: 9, per: 1s}"
		costs, err := Parse("rules.yaml", []byte(oneRule("cost: {by: {path: '"+pattern+"', units: 7}}\n"+limit)))
		require.NoError(t, err)
		alone, err := Parse("rules.yaml", []byte(oneRule("match: {path: '"+pattern+"'}\n"+limit)))
		require.NoError(t, err)
		r := Request{Path: path}
		if len(alone.Match(&r, nil)) > 0 {
			require.EqualValues(t, 7, costs.Rules()[0].Units(&r), path)
		}
	})
}
