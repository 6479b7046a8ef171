package weirotel

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/internal/metrics"
	"github.com/weir-go/weir/internal/testnode"
	"github.com/weir-go/weir/rules"
)

// collect returns all series that a reader collects, by name and attributes.
func collect(t testing.TB, reader *sdkmetric.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	series := make(map[string]float64)
	for _, scoped := range all.ScopeMetrics {
		for _, m := range scoped.Metrics {
			require.NotEmpty(t, m.Description)
			switch data := m.Data.(type) {
			case metricdata.Sum[float64]:
				require.True(t, data.IsMonotonic, m.Name)
				for _, p := range data.DataPoints {
					series[seriesName(m.Name, p.Attributes)] = p.Value
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					series[seriesName(m.Name, p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				require.Equal(t, metricdata.CumulativeTemporality, data.Temporality)
				for _, p := range data.DataPoints {
					name := seriesName(m.Name, p.Attributes)
					series[name+".count"], series[name+".sum"] = float64(p.Count), p.Sum
					require.Len(t, p.BucketCounts, len(p.Bounds)+1)
					upTo := uint64(0)
					for i, n := range p.BucketCounts {
						upTo += n
						if i < len(p.Bounds) {
							series[fmt.Sprint(name, ".", p.Bounds[i])] = float64(upTo)
						}
					}
					require.Equal(t, p.Count, upTo, "each check is in one bucket")
				}
			default:
				t.Fatalf("%s is a %T", m.Name, m.Data)
			}
		}
	}
	return series
}

func seriesName(name string, set attribute.Set) string {
	if set.Len() == 0 {
		return name
	}
	var labels []string
	for _, a := range set.ToSlice() {
		labels = append(labels, string(a.Key)+"="+a.Value.AsString())
	}
	return name + "{" + strings.Join(labels, ",") + "}"
}

// addSeries adds the series of the metrics table.
func addSeries[S any](series map[string]float64, all []metrics.Family[S], s S) map[string]float64 {
	for _, f := range all {
		name := func(values []string) string { return seriesName(f.Name, attributes(f.Labels, values)) }
		if f.Kind == metrics.Histogram {
			f.Spread(&s, func(of weir.Latency, labels ...string) {
				series[name(labels)+".count"], series[name(labels)+".sum"] = float64(of.Count), of.Sum.Seconds()
				for i, bound := range weir.LatencyBounds() {
					n := 0.0
					if i < len(of.Buckets) {
						n = float64(of.Buckets[i])
					}
					series[fmt.Sprint(name(labels), ".", bound.Seconds())] = n
				}
			})
			continue
		}
		f.Read(&s, func(value float64, labels ...string) { series[name(labels)] = value })
	}
	return series
}

func TestNodeAndRulesAreObservedUntilUnregistered(t *testing.T) {
	node := testnode.Start(t, weir.Config{})
	path := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(path, []byte("rules:\n- {name: logins, key: ip, limit: {rate: 2, per: 1h}}\n"), 0o600))
	book, err := rules.Open(t.Context(), node, path, rules.BookOptions{})
	require.NoError(t, err)
	defer book.Close()
	limit := testnode.Limiter(t, node, weir.Limit{Name: "exports", Rate: 3, Per: time.Hour})
	for range 5 {
		_, err := limit.Allow(t.Context(), "key")
		require.NoError(t, err)
	}

	reader := sdkmetric.NewManualReader(sdkmetric.WithProducer(Histograms(node)))
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	registration, err := Register(meter, node, book)
	require.NoError(t, err)
	got := collect(t, reader)
	for name, want := range map[string]float64{
		"weir_decisions_total{outcome=allowed,source=owner}":                    3,
		"weir_decisions_total{outcome=denied,source=owner}":                     2,
		"weir_decisions_total{outcome=denied,source=budget}":                    0,
		"weir_limit_decisions_total{limit=exports,outcome=denied,source=owner}": 2,
		"weir_check_seconds{source=owner}.count":                                5,
		"weir_keys":                                                             1,
		"weir_keys_max":                                                         5_000_000,
		"weir_ready":                                                            1,
		"weir_rules_in_force":                                                   1,
		"weir_rule_denials_total{mode=enforce,rule=logins}":                     0,
		"weir_rule_denials_total{mode=shadow,rule=logins}":                      0,
		"weir_cluster_members{state=serving}":                                   1,
		"weir_ring_share_ratio":                                                 1,
	} {
		value, is := got[name]
		require.True(t, is, name)
		require.Equal(t, want, value, name)
	}
	names := func(all map[string]float64) (names []string) {
		for name := range all {
			names = append(names, name)
		}
		sort.Strings(names)
		return names
	}
	want := addSeries(make(map[string]float64), metrics.OfNode(), metrics.ReadNode(node))
	want = addSeries(want, metrics.OfBook(), book.Stats())
	want = addSeries(want, metrics.OfRules(), metrics.DenialsByRule(node, book))
	require.Equal(t, names(want), names(got))
	for name, value := range want {
		if strings.HasPrefix(name, "weir_check_seconds") {
			require.Equal(t, value, got[name], name)
		}
	}

	require.NoError(t, registration.Unregister())
	for name := range collect(t, reader) {
		require.True(t, strings.HasPrefix(name, "weir_check_seconds"), name)
	}
}

func TestNilHasNoMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	registration, err := Register(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"), nil, nil)
	require.NoError(t, err)
	require.Empty(t, collect(t, reader))
	require.NoError(t, registration.Unregister())
}
