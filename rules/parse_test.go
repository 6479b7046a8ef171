package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/strictyaml"
	"github.com/weir-go/weir/internal/testenv"
)

func mustParse(t testing.TB, text string) *Set {
	t.Helper()
	s, err := Parse("rules.yaml", []byte(text))
	require.NoError(t, err)
	return s
}

func TestTextWithManyErrorsIsRefusedQuickly(t *testing.T) {
	testenv.SkipOneGoroutine(t)
	const rule = "rules:\n- name: a\n  key: ip\n  limit: {rate: 1, per: 1s}\n"
	for _, c := range []struct{ begin, part, end string }{
		{"rules: [", "1,", "]"},
		{"rules: [", "{nme: a},", "]"},
		{"rules:\n- name: a\n  key: [", "a,", "]"},
		{"rules:\n- name: a\n  key: ip\n  limits: [", "{},", "]"},
		{rule + "  match: {method: [", "a,", "]}"},
		{rule + "  count: {status: [", "1,", "]}"},
		{rule + "deny: {user: [", "1,", "]}"},
	} {
		text := c.begin + strings.Repeat(c.part, (strictyaml.MaxBytes-len(c.begin)-len(c.end))/len(c.part)) + c.end
		before := lab.CPU()
		_, err := Parse("rules.yaml", []byte(text))
		require.Less(t, lab.CPU()-before, 3*time.Second, c) // it takes 0.4 s
		require.ErrorContains(t, err, "rules.yaml: there are at least 980 more errors", c)
	}
	_, err := Parse("rules.yaml", []byte(strings.Repeat("a: 1\n", strictyaml.MaxBytes/5)))
	require.ErrorContains(t, err, "209715 of the fields are unknown")
}
