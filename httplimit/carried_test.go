package httplimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rules"
)

const carriedRules = `
rules:
- {name: streams, match: {path: /streams/}, key: user, limit: {algorithm: in_flight, rate: 1}}
- {name: tokens, match: {path: /tokens}, key: user, count: {status: [5xx]}, limit: {algorithm: fixed_window, rate: 10, per: 1h}}
- {name: denied, match: {path: /streams/denied}, key: user, limit: {algorithm: fixed_window, rate: 1, per: 1h}}
`

// requestTo returns a request of the user u.
func requestTo(path string) *rules.Request {
	return &rules.Request{Method: "GET", Path: path, User: "u"}
}

func TestCheckForReturnsTextsOfAdmittedRequest(t *testing.T) {
	m := newLimiter(t, carriedRules, Options{}, weir.Config{})
	limiter := func(name string) *weir.Limiter {
		s := m.book.Current()
		l, _, ok := s.Limit(name)
		require.True(t, ok)
		return s.Limiter(l, "", "u")
	}
	o, holds, reservations := m.CheckFor(t.Context(), requestTo("/streams/1"), time.Minute)
	require.Zero(t, o.Status)
	require.Empty(t, reservations)
	require.Len(t, holds, 1)
	require.Equal(t, []string{"streams", "u"}, []string{holds[0].Limit, holds[0].Key})
	require.NoError(t, limiter("streams").RenewHold(t.Context(), "u", holds[0].Text, time.Minute))
	o, none, _ := m.CheckFor(t.Context(), requestTo("/streams/1"), time.Minute)
	require.Equal(t, 429, o.Status)
	require.Empty(t, none)
	require.NoError(t, limiter("streams").ReleaseHold(t.Context(), "u", holds[0].Text))
	require.EqualValues(t, 1, remaining(t, m, "streams", "u"))

	o, holds, reservations = m.CheckFor(t.Context(), requestTo("/tokens"), time.Minute)
	require.Zero(t, o.Status)
	require.Empty(t, holds)
	require.Len(t, reservations, 1)
	require.EqualValues(t, 9, remaining(t, m, "tokens", "u"))
	r, err := limiter("tokens").OpenReservation("u", reservations[0].Text)
	require.NoError(t, err)
	require.NoError(t, r.Settle(t.Context(), 0))
	require.EqualValues(t, 10, remaining(t, m, "tokens", "u"))
}

func TestCheckForHoldsNothingAfterDenial(t *testing.T) {
	m := newLimiter(t, carriedRules, Options{}, weir.Config{})
	for _, status := range []int{0, 429, 429} {
		o, holds, _ := m.CheckFor(t.Context(), requestTo("/streams/denied"), time.Minute)
		require.Equal(t, status, o.Status)
		if status == 0 {
			require.Len(t, holds, 1)
			require.NoError(t, o.Verdicts[0].Limiter.ReleaseHold(t.Context(), "u", holds[0].Text))
			continue
		}
		require.Empty(t, holds)
		require.EqualValues(t, 1, remaining(t, m, "streams", "u"))
	}
}

func TestCheckForWithoutTTLIsCheck(t *testing.T) {
	m := newLimiter(t, carriedRules, Options{}, weir.Config{})
	o, holds, _ := m.CheckFor(t.Context(), requestTo("/streams/1"), 0)
	var noEnd *ErrNoEnd
	require.ErrorAs(t, o.Err, &noEnd)
	require.ErrorIs(t, o.Err, weir.ErrInvalid)
	require.Equal(t, "streams", noEnd.Limit)
	require.Empty(t, holds)
	o, _, reservations := m.CheckFor(t.Context(), requestTo("/tokens"), 0)
	require.Zero(t, o.Status)
	require.Empty(t, reservations, "the unit stays spent")
}

func TestJudgeDecidesLikeCheck(t *testing.T) {
	m := newLimiter(t, `
rules:
- {name: hard, match: {path: /hard}, key: user, limit: {algorithm: fixed_window, rate: 1, per: 1h}}
- {name: soft, match: {path: /soft}, key: user, limit: {algorithm: fixed_window, rate: 2, per: 1h}, soft: {over: 50%, for: 1h}}
- {name: trial, match: {path: /trial}, key: user, limit: {algorithm: fixed_window, rate: 1, per: 1h}, shadow: true}
- {name: streams, match: {path: /streams}, key: user, limit: {algorithm: in_flight, rate: 1}}
`, Options{}, weir.Config{})
	s := m.book.Current()
	verdict := func(name string) Verdict {
		l, rule, ok := s.Limit(name)
		require.True(t, ok)
		count := s.Count(l, "", "u")
		return Verdict{Rule: rule, Limiter: count.Limiter, Key: "u", Units: 1, Overrun: count.Soft}
	}
	for _, c := range []struct {
		about  string
		names  []string
		status int
		soft   bool
	}{
		{"all have room", []string{"hard", "soft", "trial"}, 0, false},
		{"one denies, and the others spend nothing", []string{"hard", "soft", "trial"}, 429, false},
		{"the others have room", []string{"soft", "trial"}, 0, false},
		{"an overrun admits", []string{"soft", "trial"}, 0, true},
		{"an overrun is spent", []string{"soft", "trial"}, 429, false},
		{"a shadow denies nothing", []string{"trial"}, 0, false},
	} {
		o := Outcome{Snapshot: s}
		for _, name := range c.names {
			o.Verdicts = append(o.Verdicts, verdict(name))
		}
		m.Judge(t.Context(), &o)
		require.NoError(t, o.Err, c.about)
		require.Equal(t, c.status, o.Status, c.about)
		require.Equal(t, c.soft, o.Soft(), c.about)
	}
	o := Outcome{Snapshot: s, Verdicts: []Verdict{verdict("streams")}}
	m.Judge(t.Context(), &o)
	require.ErrorAs(t, o.Err, new(*ErrNoEnd))
}
