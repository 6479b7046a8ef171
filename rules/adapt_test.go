package rules

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestAdaptErrorsHavePlaceAndRemedy(t *testing.T) {
	const rule = "rules:\n- name: r\n  key: ip\n  limit: {rate: 10, per: 1s}\n  adapt: "
	for adapt, want := range map[string]string{
		"{}":                                "rules.yaml:5:10: latency is missing",
		"5":                                 "rules.yaml:5:10: adapt is a number: use a map",
		"{latency: 0.1ms}":                  "rules.yaml:5:20: latency is 0.1ms: use 1ms to 5m0s",
		"{latency: 6m}":                     "rules.yaml:5:20: latency is 6m: use 1ms to 5m0s",
		"{latency: 1s, slow: 0%}":           "rules.yaml:5:30: slow is 0%: use at least 0.1%",
		"{latency: 1s, slow: 0}":            "rules.yaml:5:30: slow is 0: use a percentage, like 0%",
		"{latency: 1s, errors: 0.01%}":      "rules.yaml:5:32: errors is 0.01%: use at least 0.1%",
		"{latency: 1s, errors: 5}":          "rules.yaml:5:32: errors is 5: use a percentage, like 5%",
		"{latency: 1s, min: 0.5%}":          "rules.yaml:5:29: min is 0.5%: use at least 1%",
		"{latency: 1s, max: 200%}":          "rules.yaml:5:29: max is 200%: use 0% to 100%",
		"{latency: 1s, min: 50%, max: 50%}": "rules.yaml:5:10: min is 50% and max is 50%: use a min below max",
		"{latency: 1s, mx: 50%}":            `rules.yaml:5:24: unknown field "mx": did you mean "max"?`,
		"{latency: 1s}\n  ban: {denials: 5, within: 1m, for: 1h}":                              "rules.yaml:5:10: adapt in a rule with ban: remove adapt or ban, because a slow server would get its clients banned",
		"{latency: 1s}\n  scope: global":                                                       "rules.yaml:5:10: adapt in a rule with scope: global: put adapt and the global limit into two rules, because each region has its own factor, and the regions would share different numbers",
		"{latency: 1s}\n  limit: {rate: 10, calendar: day}":                                    "rules.yaml:5:10: adapt in a rule with a calendar limit: put adapt and the calendar limit into two rules, because a quota does not follow the load of a server",
		"{latency: 1s}\n  limit: {rate: 10, per: 1h}":                                          "rules.yaml:5:10: adapt in a rule with a limit per 1h: use a window of at most 1m or a bucket, because a longer window follows the load too late",
		"{latency: 1s}\n  limit: {rate: 10, per: 1s, values: {192.0.2.1: {rate: 5, per: 2m}}}": "rules.yaml:5:10: adapt in a rule with a limit per 2m: use a window of at most 1m or a bucket, because a longer window follows the load too late",
	} {
		text := rule + adapt
		if strings.Contains(adapt, "\n  limit") {
			text = strings.Replace(text, "\n  limit: {rate: 10, per: 1s}", "", 1)
			want = strings.Replace(want, ":5:", ":4:", 1)
		}
		_, err := Parse("rules.yaml", []byte(text))
		require.ErrorContains(t, err, want, adapt)
	}
}

func TestAdaptHasDefaults(t *testing.T) {
	set := mustParse(t, "rules:\n- {name: r, key: global, limit: {rate: 36000, per: 1h, algorithm: token_bucket, burst: 10}, adapt: {latency: 200ms}, shadow: true}")
	require.Equal(t, &Adapt{200 * time.Millisecond, 0.05, 0.05, 0.2, 1}, set.Rules()[0].Adapt)
	require.Equal(t, "20% to 100%: at most 5% slower than 200ms, and 5% failed", set.Rules()[0].Adapt.String())
}

// adaptive has two rules with adapt, one with a rate and one in flight, and a rule without adapt.
const adaptive = `
version: %d
tiers: {free: {}, paid: {multiply: 10}}
times: [{name: peak, from: "09:00", to: "18:00"}]
rules:
- name: r
  key: user
  adapt: {latency: 200ms, min: 10%%, max: 90%%}
  soft: {over: 50%%, for: 1m}
  limit: {rate: 100, per: 1m, keep: 20, tiers: {free: {rate: 29, per: 1m}}, times: {peak: {multiply: 2}}, values: {vip: {rate: 500, per: 1m}}}
- {name: held, key: user, adapt: {latency: 200ms}, limit: {algorithm: in_flight, rate: 3}}
- {name: fixed, key: user, limit: {rate: 100, per: 1m}}
`

func TestFactorMultipliesNumbersOfRule(t *testing.T) {
	var shared sharedValues
	now := timeAt(t, "2026-11-30T08:00:00Z")
	b := newSharedBook(t, &shared, &now, fmt.Sprintf(adaptive, 1))
	rates := func() string {
		s := b.Current()
		var all []string
		for _, c := range []struct{ limit, tier, key string }{{"r", "", "k"}, {"r", "free", "k"}, {"r", "paid", "k"}, {"r", "", "vip"}, {"held", "", "k"}, {"fixed", "", "k"}} {
			l, _, _ := s.Limit(c.limit)
			count := s.Count(l, c.tier, c.key)
			numbers := count.Limiter.Limit()
			if count.Soft != nil {
				require.EqualValues(t, max(1, numbers.Rate/2), count.Soft.Limit().Rate)
			}
			require.Contains(t, count.Policy, fmt.Sprint("q=", numbers.Rate-numbers.Keep))
			all = append(all, fmt.Sprint(numbers.Rate, "-", numbers.Keep))
		}
		return strings.Join(all, " ")
	}
	set := func(rule, value string) {
		require.NoError(t, shared.Publish(adaptPrefix+rule, 0, []byte(value)))
		b.refresh()
	}
	require.Equal(t, "90-18 26-18 900-18 450-18 3-0 100-0", rates(), "the maximum at first")
	before := b.Current()
	set("r", `{"factor":0.5,"reason":"slow","at":"2025-11-30T08:00:00Z"}`)
	set("held", `{"factor":0.2}`)
	require.Equal(t, "50-10 14-10 500-10 250-10 1-0 100-0", rates())
	a, ok := b.Current().Adaptation(b.Current().Rules()[0])
	require.True(t, ok)
	require.Equal(t, Adaptation{"r", 0.5, "slow", time.UnixMilli(1764489600000).UTC()}, a)
	require.Len(t, b.Current().Adaptations(), 2)
	require.Equal(t, map[string]float64{"r": 0.5, "held": 0.2}, b.Stats().Factors)
	require.Equal(t, map[string]uint64{"slow": 1, "errors": 0, "queue": 0, "recovered": 0, "other": 0}, b.Stats().FactorChanges["r"])
	require.Equal(t, a, b.FactorChanges()[1], "newest first")
	_, ok = b.Current().Adaptation(b.Current().Rules()[2])
	require.False(t, ok)
	l, _, _ := before.Limit("r")
	require.EqualValues(t, 90, before.Limiter(l, "", "k").Limit().Rate, "a Snapshot never changes")

	now = timeAt(t, "2026-11-30T09:00:00Z")
	b.refresh()
	require.Equal(t, "100-10 29-10 1000-10 250-10 1-0 100-0", rates(), "a time window opens")
	counts := b.Current().counts
	set("r", `{"factor":0.5021,"reason":"slow"}`)
	require.Same(t, counts[0], b.Current().counts[0], "less than a step")
	set("r", `{"factor":0.01}`)
	require.Equal(t, "20-2 5-2 200-2 50-2 1-0 100-0", rates(), "below the minimum")
	require.EqualValues(t, 5, b.Current().InForce(l).ForTier("free").Rate)
	require.NoError(t, b.Override("r", "k", Override{Rate: 33}))
	require.Equal(t, "33-20 33-20 33-20 50-2 1-0 100-0", rates(), "an override takes precedence")
	require.NoError(t, b.Restore("r", "k"))

	require.NoError(t, b.enforce(mustParse(t, strings.Replace(fmt.Sprintf(adaptive, 2), "min: 10%", "min: 50%", 1))))
	require.Equal(t, "100-10 29-10 1000-10 250-10 1-0 100-0", rates(), "another minimum")
	for _, bad := range []string{`{"factor":0}`, `{"factor":1.01}`, `{"factor":"a"}`} {
		set("r", bad)
		require.Equal(t, "180-18 52-18 1800-18 450-18 1-0 100-0", rates(), "a value that cannot be read")
	}
	require.NoError(t, b.enforce(mustParse(t, ratedFile(3, 8))))
	require.EqualValues(t, 8, rateOf(b), "a file without adapt")
	require.Empty(t, b.Current().Adaptations())
}

func TestUnknownReasonsAreCountedTogether(t *testing.T) {
	var shared sharedValues
	now := time.Now()
	b := newSharedBook(t, &shared, &now, fmt.Sprintf(adaptive, 1))
	for i := range 100 {
		require.NoError(t, shared.Publish("adapt/r", 0, fmt.Appendf(nil, `{"factor":0.%d,"reason":"%d"}`, 50+i%2, i)))
		b.refresh()
	}
	require.Equal(t, map[string]uint64{"slow": 0, "errors": 0, "queue": 0, "recovered": 0, "other": 100}, b.Stats().FactorChanges["r"])
	require.Equal(t, "other", b.FactorChanges()[0].Reason)
}

func TestReducedLimitGrantsCostlyRequest(t *testing.T) {
	var shared sharedValues
	now := time.Now()
	b := newSharedBook(t, &shared, &now, "rules: [{name: r, key: user, limit: {rate: 100, per: 1s, keep: 10}, adapt: {latency: 1s}}]")
	count := func() *Count { return b.Current().Count(&b.Current().Rules()[0].Limits[0], "", "k") }
	require.EqualValues(t, 1000, count().Afford(1000, count().Limiter))
	require.NoError(t, shared.Publish("adapt/r", 0, []byte(`{"factor":0.5}`)))
	b.refresh()
	require.EqualValues(t, 7, count().Afford(7, count().Limiter))
	require.EqualValues(t, 45, count().Afford(90, count().Limiter))
	require.EqualValues(t, 50, count().Afford(90, count().Limiter.Critical()))
	require.EqualValues(t, 91, count().Afford(91, count().Limiter), "never granted")
}

func TestFactorChangeKeepsCounts(t *testing.T) {
	for _, limit := range []string{
		"algorithm: sliding_window, per: 1m", "algorithm: sliding_log, per: 1m", "algorithm: fixed_window, per: 1m",
		"algorithm: token_bucket, per: 1000h, burst: 100", "algorithm: leaky_bucket, per: 1000h, burst: 100",
	} {
		synctest.Test(t, func(t *testing.T) {
			c, books := startBooks(t, fmt.Sprintf("rules: [{name: r, key: user, limit: {rate: 100, %s}, adapt: {latency: 1s}}]", limit))
			time.Sleep(2*time.Minute - time.Duration(time.Now().UnixNano())%time.Minute)
			take := func(name string, units int64) weir.Decision {
				s := books[name].Current()
				d, err := s.Limiter(&s.Rules()[0].Limits[0], "", "k").AllowN(t.Context(), "k", units)
				require.NoError(t, err)
				return d
			}
			require.True(t, take("a", 60).Allowed)
			require.NoError(t, c.Node("b").Publish("adapt/r", 0, []byte(`{"factor":0.5}`)))
			time.Sleep(time.Second)
			for _, name := range c.Names() {
				d := take(name, 1)
				require.False(t, d.Allowed, "%s: %s has used 60 of 50", limit, name)
				require.EqualValues(t, 50, d.Limit, limit)
			}
			require.NoError(t, c.Node("c").Publish("adapt/r", 0, []byte(`{"factor":1}`)))
			time.Sleep(time.Second)
			for i, name := range c.Names() {
				d := take(name, 10)
				require.True(t, d.Allowed, "%s: %s has used %d of 100", limit, name, 60+10*i)
				require.InDelta(t, 30-10*i, d.Remaining, 1, limit)
			}
		})
	}
}

func TestMeterContinuesInNextVersion(t *testing.T) {
	var shared sharedValues
	now := time.Now()
	b := newSharedBook(t, &shared, &now, fmt.Sprintf(adaptive, 1))
	require.True(t, b.Current().Measures())
	require.Nil(t, b.Current().Meter(b.Current().Rules()[2]))
	b.Current().CountDenial(b.Current().Rules()[0], "", Enforce)
	b.Current().CountDenial(b.Current().Rules()[2], "", Enforce)
	require.NoError(t, b.enforce(mustParse(t, fmt.Sprintf(adaptive, 2))))
	require.EqualValues(t, 1, b.Current().Meter(b.Current().Rules()[0]).TakeSample(now).Denied)

	require.NoError(t, b.enforce(mustParse(t, ratedFile(3, 8))))
	require.False(t, b.Current().Measures())
	require.False(t, (*Snapshot)(nil).Measures())
	b.Current().CountDenial(b.Current().Rules()[0], "", Enforce)
}

// BenchmarkFactors changes the factors of all of 1,000 rules, and of one of them.
func BenchmarkFactors(b *testing.B) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "- {name: r%d, match: {path: /%d}, key: user, limit: {rate: 1000, per: 1s}, adapt: {latency: 1s}}\n", i, i)
	}
	for _, changed := range []int{1, 1000} {
		b.Run(fmt.Sprint(changed), func(b *testing.B) {
			var shared sharedValues
			now := time.Now()
			book := newSharedBook(b, &shared, &now, text.String())
			for i := range 1000 {
				require.NoError(b, shared.Publish(fmt.Sprint("adapt/r", i), 0, []byte(`{"factor":0.5}`)))
			}
			for n := range b.N {
				for i := range changed {
					require.NoError(b, shared.Publish(fmt.Sprint("adapt/r", i), 0, fmt.Appendf(nil, `{"factor":0.%d}`, 30+n%50)))
				}
				book.refresh()
			}
		})
	}
}

func TestFactorChangeIsCheapWithManyValues(t *testing.T) {
	allocations := func(values int) float64 {
		var text strings.Builder
		text.WriteString("rules:\n- name: r\n  key: user\n  adapt: {latency: 1s}\n  limit:\n    rate: 10\n    per: 1s\n    values:\n")
		for i := range values {
			fmt.Fprintf(&text, "      u%d: {rate: %d}\n", i, 100+i)
		}
		var shared sharedValues
		now := time.Now()
		b := newSharedBook(t, &shared, &now, text.String())
		n := 0
		count := testing.AllocsPerRun(20, func() {
			n++
			require.NoError(t, shared.Publish("adapt/r", 0, fmt.Appendf(nil, `{"factor":0.%d}`, 30+n%50)))
			b.refresh()
		})
		s := b.Current()
		l := &s.Rules()[0].Limits[0]
		last := fmt.Sprint("u", values-1)
		require.EqualValues(t, (99+values)*(30+n%50)/100, s.Limiter(l, "", last).Limit().Rate)
		require.Same(t, s.Count(l, "", last), s.Count(l, "", last))
		require.Zero(t, testing.AllocsPerRun(100, func() { s.Count(l, "", last) }))
		return count
	}
	require.Less(t, allocations(10_000), allocations(10)+10)
}
