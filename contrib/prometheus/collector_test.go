package weirprom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/internal/metrics"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

func limiter(t testing.TB, node *weir.Node, name string, rate int64) *weir.Limiter {
	return testnode.Limiter(t, node, weir.Limit{Name: name, Algorithm: weir.FixedWindow, Rate: rate, Per: 24 * time.Hour})
}

func registry(t testing.TB, c prometheus.Collector) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(c))
	return r
}

// series returns the values that a registry gathers, by name and labels.
func series(t testing.TB, r prometheus.Gatherer) map[string]float64 {
	got, err := r.Gather()
	require.NoError(t, err)
	values := make(map[string]float64)
	for _, f := range got {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := f.GetName()
			if labels != nil {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			if h := m.GetHistogram(); h != nil {
				values[name+".count"], values[name+".sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
				for _, b := range h.Bucket {
					values[fmt.Sprint(name, ".", b.GetUpperBound())] = float64(b.GetCumulativeCount())
				}
				continue
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}

func TestMetricNamesPassPrometheusLint(t *testing.T) {
	var all collectors
	all = append(all, newFamilies(metrics.OfNode(), func() metrics.NodeStats {
		return metrics.NodeStats{Stats: weir.Stats{Regions: map[string]weir.RegionStats{"eu": {}}}}
	}))
	all = append(all, newFamilies(metrics.OfBook(), func() rules.BookStats { return rules.BookStats{} }))
	problems, err := testutil.GatherAndLint(registry(t, all))
	require.NoError(t, err)
	require.Empty(t, problems)
	n, err := testutil.GatherAndCount(registry(t, all))
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, len(metrics.OfNode())+len(metrics.OfBook()), "each family was linted")
}

func TestNilNodeOrBookHasNoMetrics(t *testing.T) {
	require.Zero(t, testutil.CollectAndCount(New(nil, nil)))

	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, "version: 3\nrules: [{name: a, key: ip, limit: {rate: 1, per: 1s}}]")
	for name := range series(t, registry(t, New(nil, book))) {
		require.True(t, strings.HasPrefix(name, "weir_rules"), name)
	}
	for name := range series(t, registry(t, New(node, nil))) {
		require.False(t, strings.HasPrefix(name, "weir_rules"), name)
	}
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(New(node, nil)))
	require.NoError(t, r.Register(New(nil, book)), "they are apart")
	require.EqualValues(t, 1, series(t, r)["weir_rules_info{hash="+book.Stats().Hash+",version=3}"])
}

func TestDenialsAreCountedByRuleAndMode(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, `{version: 1, rules: [
  {name: one, key: ip, limit: {rate: 1, per: 1h}},
  {name: two, key: user, limits: [{name: burst, rate: 2, per: 1h}, {name: daily, rate: 3, per: 24h}]},
  {name: trial, key: ip, shadow: true, limits: [{name: burst, rate: 2, per: 1h}, {name: daily, rate: 4, per: 24h}]},
  {name: idle, key: ip, limit: {rate: 1, per: 1h}}]}`)
	now := book.Current()
	for _, name := range []string{"one", "two/burst", "two/daily", "trial/burst", "trial/daily"} {
		l, rule, ok := now.Limit(name)
		require.True(t, ok)
		for range 5 {
			_, err := node.AllowAll(t.Context(), weir.Ask{Limiter: now.Limiter(l, "", "key"), Key: "key", Shadow: rule.Mode == rules.Shadow})
			require.NoError(t, err)
		}
	}
	got := series(t, registry(t, New(node, book)))
	for rule, want := range map[string][2]float64{"one": {4, 0}, "two": {3 + 2, 0}, "trial": {0, 3 + 1}, "idle": {0, 0}} {
		for i, mode := range []string{"enforce", "shadow"} {
			is, found := got["weir_rule_denials_total{mode="+mode+",rule="+rule+"}"]
			require.True(t, found, rule)
			require.Equal(t, want[i], is, "%s of %s", mode, rule)
		}
	}
	for series, want := range map[string]float64{
		"weir_limit_shadows_total{limit=trial/burst,outcome=allowed}": 2,
		"weir_limit_shadows_total{limit=trial/burst,outcome=denied}":  3,
		"weir_limit_shadows_total{limit=trial/daily,outcome=denied}":  1,
	} {
		require.Equal(t, want, got[series], series)
	}
	require.NotContains(t, got, "weir_limit_shadows_total{limit=one,outcome=denied}", "limits that were never a shadow have no series")
}

func TestDenialsAreCountedByTier(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	book := testnode.Book(t, node, `{tiers: {free: {}}, rules: [{name: one, key: ip, limit: {rate: 1, per: 1h}}]}`)
	now := book.Current()
	now.CountDenial(now.Rules()[0], "free", rules.Enforce)
	now.CountDenial(now.Rules()[0], "unknown", rules.Shadow)
	got := series(t, registry(t, New(node, book)))
	require.EqualValues(t, 1, got["weir_rule_tier_denials_total{mode=enforce,rule=one,tier=free}"])
	require.EqualValues(t, 1, got["weir_rule_tier_denials_total{mode=shadow,rule=one,tier=}"])
}

func TestLimitsBeyondBoundShareOneSeries(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	for i := range 4096 { // the maximum number of names with their own counters
		limiter(t, node, fmt.Sprint("limit ", i), 1)
	}
	book := testnode.Book(t, node, `{version: 1, rules: [{name: late, key: ip, limit: {rate: 1, per: 1h}}]}`)
	late, _, _ := book.Current().Limit("late")
	for _, l := range []*weir.Limiter{
		limiter(t, node, "limit 4095", 1),
		limiter(t, node, "one more", 1), limiter(t, node, "another", 1), book.Current().Limiter(late, "", "key"),
	} {
		for range 3 {
			_, err := l.Allow(t.Context(), "key")
			require.NoError(t, err)
		}
	}
	got := make(map[string]float64)
	for name, value := range series(t, registry(t, New(node, book))) {
		if strings.HasPrefix(name, "weir_limit_decisions_total") || strings.HasPrefix(name, "weir_rule_") {
			got[name] = value
		}
	}
	require.Equal(t, map[string]float64{
		"weir_limit_decisions_total{limit=limit 4095,outcome=allowed,source=owner}": 1,
		"weir_limit_decisions_total{limit=limit 4095,outcome=denied,source=owner}":  2,
		"weir_limit_decisions_total{limit=(other),outcome=allowed,source=owner}":    3,
		"weir_limit_decisions_total{limit=(other),outcome=denied,source=owner}":     6,
		"weir_rule_denials_total{mode=enforce,rule=late}":                           0,
		"weir_rule_denials_total{mode=enforce,rule=(other)}":                        6,
		"weir_rule_denials_total{mode=shadow,rule=late}":                            0,
		"weir_rule_denials_total{mode=shadow,rule=(other)}":                         0,
	}, got)
}

func TestScrapeAfterCloseReturnsLastNumbers(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	_, err := limiter(t, node, "limit", 3).Allow(t.Context(), "key")
	require.NoError(t, err)
	r := registry(t, New(node, nil))
	require.NoError(t, node.Close())
	got := series(t, r)
	require.EqualValues(t, 1, got["weir_decisions_total{outcome=allowed,source=owner}"])
	require.Zero(t, got["weir_ready"])
}
