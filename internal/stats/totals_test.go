package stats

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
)

func countDecisions(m *Limits, name string, times int, r wire.Result, shadow bool) {
	for i := range times {
		m.CountersOf(name).CountDecision(bucket.ID{Hi: uint64(i)}, &r, shadow)
	}
}

func TestTotalsListLimitsByDenials(t *testing.T) {
	var m Limits
	countDecisions(&m, "quiet", 3, wire.Result{Result: bucket.Result{Allowed: true}, Source: wire.Owner}, false)
	countDecisions(&m, "strict", 2, wire.Result{Source: wire.Budget}, false)
	countDecisions(&m, "planned", 5, wire.Result{Source: wire.Owner}, true)
	m.CountersOf("unused")
	got := m.Totals()
	require.Equal(t, []LimitTotals{
		{"planned", Outcomes{}, Outcomes{Denied: 5}}, {"strict", Outcomes{Denied: 2}, Outcomes{}}, {"quiet", Outcomes{Allowed: 3}, Outcomes{}},
	}, got.Limits)
	require.Equal(t, Outcomes{Allowed: 3}, got.Sources[wire.Owner])
	require.Equal(t, Outcomes{Denied: 2}, got.Sources[wire.Budget])
}

func TestTotalsAreBoundedOnTheWire(t *testing.T) {
	var m Limits
	for i := range MaxTotals + 10 {
		countDecisions(&m, fmt.Sprint(i, strings.Repeat("n", wire.MaxNameBytes-4)), 1+i, wire.Result{}, false)
	}
	want := m.Totals()
	require.Len(t, want.Limits, MaxTotals)
	require.EqualValues(t, MaxTotals+10, want.Limits[0].Enforced.Denied, "the limits with the most denials are listed")
	b := want.Append(nil)
	require.Less(t, len(b), 48<<10)
	got, err := ParseTotals(b)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestTotalsOfLaterReleaseAreParsed(t *testing.T) {
	b := []byte{byte(wire.Sources) + 1}
	for range wire.Sources + 1 {
		b = append(b, 1, 2)
	}
	got, err := ParseTotals(append(b, 0, 9, 9, 9))
	require.NoError(t, err)
	require.Equal(t, Outcomes{1, 2}, got.Sources[wire.Sources-1])
}

// An answer of a member can be added up and encoded again, or is an error.
func FuzzTotals(f *testing.F) {
	f.Add((&Totals{Limits: []LimitTotals{{"limit", Outcomes{1, 2}, Outcomes{3, 4}}}}).Append(nil))
	f.Add([]byte{0, 0})
	f.Add([]byte{1, 1})
	f.Add([]byte{0, 200, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := ParseTotals(body)
		if err != nil {
			require.Zero(t, got)
			return
		}
		require.LessOrEqual(t, len(got.Limits), MaxTotals)
		again, err := ParseTotals(got.Append(nil))
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}
