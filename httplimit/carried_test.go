package httplimit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

func TestCheckForWithoutTTLIsCheck(t *testing.T) {
	m := newLimiter(t, `
rules:
- {name: streams, match: {path: /streams/}, key: user, limit: {algorithm: in_flight, rate: 1}}
- {name: tokens, match: {path: /tokens}, key: user, count: {status: [5xx]}, limit: {algorithm: fixed_window, rate: 10, per: 1h}}
`, Options{}, weir.Config{})
	o, holds, _ := m.CheckFor(t.Context(), &rules.Request{Path: "/streams/1", User: "u"}, 0)
	var noEnd *ErrNoEnd
	require.ErrorAs(t, o.Err, &noEnd)
	require.ErrorIs(t, o.Err, weir.ErrInvalid)
	require.Equal(t, "streams", noEnd.Limit)
	require.Empty(t, holds)
	o, _, reservations := m.CheckFor(t.Context(), &rules.Request{Path: "/tokens", User: "u"}, 0)
	require.Zero(t, o.Status)
	require.Empty(t, reservations)
	require.EqualValues(t, 9, remaining(t, m, "tokens", "u"), "the unit stays spent")
}
