package weir

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStrictest(t *testing.T) {
	for _, c := range []struct {
		name string
		ds   Decisions
		want string
	}{
		{"of none there is none", nil, ""},
		{"a denial before any admission", Decisions{{Name: "a", Allowed: true, Limit: 9}, {Name: "b", RetryAfter: 1}}, "b"},
		{"the longest denial", Decisions{{Name: "a", RetryAfter: 1}, {Name: "b", RetryAfter: 3}, {Name: "c", RetryAfter: 2}}, "b"},
		{"the least left", Decisions{{Name: "a", Allowed: true, Limit: 1000, Remaining: 90}, {Name: "b", Allowed: true, Limit: 10, Remaining: 5}, {Name: "c", Allowed: true, Limit: 100, Remaining: 8}}, "b"},
		{"of as many left, the longest", Decisions{{Name: "a", Allowed: true, ResetAfter: 1}, {Name: "b", Allowed: true, ResetAfter: 3}, {Name: "c", Allowed: true, ResetAfter: 2}}, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, c.ds.Strictest().Name)
		})
	}
}

func TestTheZeroDecisionIsADenial(t *testing.T) {
	require.False(t, Decision{}.Allowed)
	require.Equal(t, "none", Decision{}.Source.String())
}
