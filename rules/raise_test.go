package rules

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestRaiseErrorsHavePlaceAndRemedy(t *testing.T) {
	for text, want := range map[string]string{
		"key: ip, raise: 5":                                   "raise is a number: use a map",
		"key: ip, raise: {denied: 0.5%}":                      "denied is 0.5%: use at least 1%",
		"key: ip, raise: {for: 1s}":                           "for is 1s: use 1m0s to 24h0m0s",
		"key: ip, raise: {most: 1}":                           "most is 1: use 1.1 to 100",
		"key: ip, raise: {mst: 3}":                            `unknown field "mst": did you mean "most"?`,
		"key: global, raise: {}":                              "raise in a rule with key global: remove raise, because one count of all requests has no hot key",
		"key: user, raise: {}":                                "raise in a rule with other numbers for tiers: set multiply: false or remove raise, because the tier of a hot key is not known",
		"key: user, multiply: false, shadow: true, raise: {}": "raise in a rule with shadow: remove raise or shadow, because a shadow denies nothing",
	} {
		_, err := Parse("rules.yaml", []byte("tiers: {free: {}, paid: {multiply: 10}}\nrules: [{name: r, limit: {rate: 1, per: 1s}, "+text+"}]"))
		require.ErrorContains(t, err, want, text)
	}
	set := mustParse(t, "rules: [{name: r, key: ip, limit: {rate: 1, per: 1s}, raise: {}}]")
	require.Equal(t, &Raise{0.1, 5 * time.Minute, 2}, set.Rules()[0].Raise)
}

func TestSuggestionCoversDemand(t *testing.T) {
	var shared sharedValues
	now := time.Now()
	b := newSharedBook(t, &shared, &now, `
deny: {user: mallory}
rules:
- {name: r, key: user, raise: {most: 3}, limit: {rate: 100, per: 1m, values: {vip: {rate: 400, per: 1m}}}}
- {name: bucket, key: user, raise: {}, adapt: {latency: 1s}, limit: {rate: 100, per: 1h, algorithm: token_bucket, burst: 10}}
- {name: held, key: user, raise: {}, limit: {algorithm: in_flight, rate: 10}}
- {name: fixed, key: user, limit: {rate: 100, per: 1m}}
`)
	suggested := func(limit, key string, asks, denials uint64) []int64 {
		s := b.Current()
		k := weir.TopKey{Limit: limit, Key: key, Known: key != "", Asks: asks, Denials: denials}
		if l, _, ok := s.Limit(limit); ok {
			k.ID = s.Limiter(l, "", key).ID(key)
		}
		if h := s.suggestionFor(&k, now); h != nil {
			return []int64{h.Rate, h.Burst}
		}
		return nil
	}
	require.Nil(t, suggested("r", "a", 1000, 99), "denied less than a tenth")
	require.Nil(t, suggested("r", "a", 99, 99), "few checks")
	require.Equal(t, []int64{134, 0}, suggested("r", "a", 1000, 100), "a tenth more, and headroom")
	require.Equal(t, []int64{240, 0}, suggested("r", "a", 1000, 500))
	require.Equal(t, []int64{300, 0}, suggested("r", "a", 1000, 999), "at most three times the file")
	require.Equal(t, []int64{1200, 0}, suggested("r", "vip", 1000, 900), "a value")
	require.Equal(t, []int64{160, 16}, suggested("bucket", "a", 1000, 250))
	require.Equal(t, []int64{20, 0}, suggested("held", "a", 1000, 900))
	require.Nil(t, suggested("fixed", "a", 1000, 900), "a rule without raise")
	require.Nil(t, suggested("other", "a", 1000, 900), "no limit")
	require.Nil(t, suggested("r", "", 1000, 900), "an unknown key may be a value")
	require.NotNil(t, suggested("held", "", 1000, 900))
	require.Nil(t, suggested("r", "mallory", 1000, 900), "a blocked client")

	require.NoError(t, b.Override("r", "a", Override{Rate: 240}))
	require.Equal(t, []int64{300, 0}, suggested("r", "a", 1000, 500), "an override")
	require.NoError(t, b.Override("r", "a", Override{Rate: 300}))
	require.Nil(t, suggested("r", "a", 1000, 500), "the most")
	require.NoError(t, b.Override("r", "a", Override{Rate: 0}))
	require.Nil(t, suggested("r", "a", 1000, 500), "a blocked key")
	require.NoError(t, shared.Publish("adapt/bucket", 0, []byte(`{"factor":0.5}`)))
	b.refresh()
	require.Nil(t, suggested("bucket", "a", 1000, 500), "lowered numbers")
	require.NoError(t, b.Switch("r", Switch{Mode: Shadow}))
	require.Nil(t, suggested("r", "b", 1000, 500), "a shadow")
}

func TestGarbageSuggestionsAreIgnored(t *testing.T) {
	var shared sharedValues
	now := time.Now()
	b := newSharedBook(t, &shared, &now, "rules: [{name: r, key: user, raise: {for: 1m}, limit: {rate: 100, per: 1m}}]")
	set := func(i int, value string) {
		require.NoError(t, shared.Publish(fmt.Sprintf("hot/r/%032x", i), 0, []byte(value)))
	}
	for i, bad := range []string{`{"rate":0}`, `{"rate":9000000000000}`, `{"rate":9,"burst":-1}`, `{"rate":9,"denied":1e300}`, `{"rate":9,"denied":-1}`, "{"} {
		set(i, bad)
	}
	b.refresh()
	require.Empty(t, b.Suggestions())
	for i := range 1000 {
		set(i, `{"rate":200,"denied":0.5,"since":"2026-11-30T08:00:00Z"}`)
	}
	b.refresh()
	require.Len(t, b.Suggestions(), topKeys)
	b.suggest(b.Current(), nil, nil)
	values, _ := shared.Published(hotPrefix)
	require.Empty(t, values, "the node that seeks hot keys has withdrawn them")
	b.refresh()
	require.Empty(t, b.Suggestions())

	l := &b.Current().Rules()[0].Limits[0]
	k := weir.TopKey{Limit: "r", ID: b.Current().Limiter(l, "", "k").ID("k"), Asks: 1000, Denials: 500}
	require.NoError(t, shared.Publish(fmt.Sprintf("hot/r/%x", k.ID), 0, []byte(`{"rate":200,"denied":0.5,"since":"9999-12-31T23:59:59Z"}`)))
	b.refresh()
	require.WithinDuration(t, now, b.Current().suggestionFor(&k, now).Since, time.Second, "a time in the future")
}

func TestOverrideEndsEarlierSuggestion(t *testing.T) {
	var shared sharedValues
	now := time.Now()
	b := newSharedBook(t, &shared, &now, "rules: [{name: r, key: user, raise: {for: 1m}, limit: {rate: 100, per: 1m}}]")
	s := b.Current()
	name := fmt.Sprintf("hot/r/%x", s.Limiter(&s.Rules()[0].Limits[0], "", "k").ID("k"))
	suggest := func() {
		require.NoError(t, shared.Publish(name, 0, fmt.Appendf(nil, `{"rate":200,"denied":0.5,"since":"2026-11-30T08:00:00Z","at":%q}`, now.UTC().Truncate(time.Second).Format(time.RFC3339))))
		b.refresh()
	}
	suggest()
	require.Len(t, b.Suggestions(), 1)
	now = now.Add(2 * time.Second)
	require.NoError(t, b.Override("r", "k", Override{Rate: 0}))
	require.Empty(t, b.Suggestions(), "an operator has blocked the key since")
	now = now.Add(2 * time.Second)
	suggest()
	require.Len(t, b.Suggestions(), 1)
}

func TestSuggestionIsNeverBelowPresentNumber(t *testing.T) {
	require.EqualValues(t, 50, raisedTo(50, 10, 1.2, 2), "an override above the most")
}

func TestNodesSuggestHotKeyUntilAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, books := startBooks(t, `
rules:
- {name: r, key: user, raise: {for: 3m}, limit: {rate: 60, per: 1m, algorithm: token_bucket, burst: 2}}
- {name: banning, key: user, raise: {}, ban: {denials: 10, within: 1m, for: 1h}, limit: {rate: 60, per: 1m}}
`)
		load := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				for i, name := range c.Names()[:2] {
					s := books[name].Current()
					_, err := s.Limiter(&s.Rules()[0].Limits[0], "", "hot").Allow(t.Context(), "hot")
					require.NoError(t, err)
					_, err = s.Limiter(&s.Rules()[1].Limits[0], "", "banned").Allow(t.Context(), "banned")
					require.NoError(t, err)
					if i == 0 && time.Now().UnixNano()/1e9%2 == 0 {
						_, err = s.Limiter(&s.Rules()[0].Limits[0], "", "cold").Allow(t.Context(), "cold")
						require.NoError(t, err)
					}
				}
			}
		}
		load(3*time.Minute + 30*time.Second)
		require.Empty(t, books["a"].Suggestions(), "hot for less than three minutes")
		load(2 * time.Minute)
		s := books["c"].Current()
		id := s.Limiter(&s.Rules()[0].Limits[0], "", "hot").ID("hot")
		for name, b := range books {
			require.Len(t, b.Suggestions(), 1, name)
			suggested := b.Suggestions()[0]
			require.Equal(t, []any{"r", id, int64(120), int64(4)}, []any{suggested.Limit, suggested.ID, suggested.Rate, suggested.Burst})
			require.InDelta(t, 0.75, suggested.Denied, 0.15)
			require.Equal(t, 1, b.Stats().Suggestions)
		}
		require.ErrorIs(t, books["c"].OverrideID("x", id, Override{Rate: 1}), weir.ErrInvalid)
		suggested := books["c"].Suggestions()[0]
		require.NoError(t, books["c"].OverrideID("r", id, Override{Rate: suggested.Rate, Burst: suggested.Burst, Control: Control{Reason: "a launch"}}))
		load(2 * time.Minute)
		for name, b := range books {
			require.Len(t, b.Overrides(), 1, name)
			require.Equal(t, "a launch", b.Overrides()[0].Reason)
			require.Empty(t, b.Suggestions(), "it has the most")
		}
	})
}
