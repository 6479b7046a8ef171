package weir

import (
	"encoding"
	"testing"

	"github.com/stretchr/testify/require"
)

// enumeration is the pointer type of constants that files name.
type enumeration[T any] interface {
	*T
	encoding.TextUnmarshaler
}

// requireNames requires that the values from zero on have these names, in all methods that write
// or read them, and that later values have no name.
func requireNames[T interface {
	~uint8
	encoding.TextMarshaler
	String() string
}, P enumeration[T]](t *testing.T, names ...string) {
	for i, name := range names {
		require.Equal(t, name, T(i).String())
		text, err := T(i).MarshalText()
		require.NoError(t, err)
		require.Equal(t, name, string(text))
		var value T
		require.NoError(t, P(&value).UnmarshalText(text))
		require.Equal(t, T(i), value)
	}
	past := T(len(names))
	_, err := past.MarshalText()
	require.Error(t, err)
	require.NotContains(t, names, past.String())
	require.Error(t, P(&past).UnmarshalText([]byte(past.String())))
	require.Equal(t, T(len(names)), past, "an unknown name does not change the value")
}

func TestConstantsAreReadByWrittenNames(t *testing.T) {
	requireNames[Algorithm](t, "sliding_window", "sliding_log", "fixed_window", "token_bucket", "leaky_bucket", "in_flight")
	requireNames[Scope](t, "regional", "global")
	requireNames[PartitionPolicy](t, "majority_share", "fair_share", "fail_open", "fail_closed")
	requireNames[Calendar](t, "none", "day", "week", "month")
}

func TestMisspelledNameIsRefusedWithSuggestion(t *testing.T) {
	for _, c := range []struct {
		into encoding.TextUnmarshaler
		text string
		want string
	}{
		{new(Algorithm), "sliding-window", `unknown algorithm "sliding-window": did you mean "sliding_window"?`},
		{new(Algorithm), "TokenBucket", `unknown algorithm "TokenBucket": did you mean "token_bucket"?`},
		{new(Algorithm), "FIXED_WINDOW", `unknown algorithm "FIXED_WINDOW": did you mean "fixed_window"?`},
		{new(Algorithm), "", `unknown algorithm "": known are sliding_window, sliding_log, fixed_window, token_bucket, leaky_bucket, in_flight`},
		{new(PartitionPolicy), "fail-open", `unknown partition policy "fail-open": did you mean "fail_open"?`},
		{new(PartitionPolicy), "MajorityShare", `unknown partition policy "MajorityShare": did you mean "majority_share"?`},
		{new(Scope), "Global", `unknown scope "Global": did you mean "global"?`},
		{new(Calendar), "Month", `unknown calendar "Month": did you mean "month"?`},
	} {
		require.EqualError(t, c.into.UnmarshalText([]byte(c.text)), c.want)
	}
}

func TestStrictestIsLongestDenialOrLeastRemaining(t *testing.T) {
	for _, c := range []struct {
		name string
		ds   Decisions
		want string
	}{
		{"no decisions", nil, ""},
		{"a denial before any admission", Decisions{{Name: "a", Allowed: true, Limit: 9}, {Name: "b", RetryAfter: 1}}, "b"},
		{"the longest denial", Decisions{{Name: "a", RetryAfter: 1}, {Name: "b", RetryAfter: 3}, {Name: "c", RetryAfter: 2}}, "b"},
		{"the least left", Decisions{{Name: "a", Allowed: true, Limit: 1000, Remaining: 90}, {Name: "b", Allowed: true, Limit: 10, Remaining: 5}, {Name: "c", Allowed: true, Limit: 100, Remaining: 8}}, "b"},
		{"the latest reset of equal rests", Decisions{{Name: "a", Allowed: true, ResetAfter: 1}, {Name: "b", Allowed: true, ResetAfter: 3}, {Name: "c", Allowed: true, ResetAfter: 2}}, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, c.ds.Strictest().Name)
		})
	}
}

func TestZeroDecisionIsDenial(t *testing.T) {
	require.False(t, Decision{}.Allowed)
	require.Equal(t, "none", Decision{}.Source.String())
}
