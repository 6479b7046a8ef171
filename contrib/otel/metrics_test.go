package weirotel

import (
	"fmt"
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
)

// collect returns the value of each series of the reader, with its name and attributes as the key.
func collect(t testing.TB, reader *sdkmetric.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	series := make(map[string]float64)
	for _, scoped := range all.ScopeMetrics {
		for _, m := range scoped.Metrics {
			require.NotEmpty(t, m.Description)
			var values []metricdata.DataPoint[float64]
			switch data := m.Data.(type) {
			case metricdata.Sum[float64]:
				require.True(t, data.IsMonotonic, m.Name)
				values = data.DataPoints
			case metricdata.Gauge[float64]:
				values = data.DataPoints
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
			for _, p := range values {
				series[seriesName(m.Name, p.Attributes)] = p.Value
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
	book := testnode.Book(t, node, "rules: [{name: logins, key: ip, limit: {rate: 2, per: 1h}}]")
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
	require.EqualValues(t, 3, got["weir_decisions_total{outcome=allowed,source=owner}"])
	want := addSeries(make(map[string]float64), metrics.OfNode(), metrics.ReadNode(node))
	want = addSeries(want, metrics.OfBook(), book.Stats())
	want = addSeries(want, metrics.OfRules(), metrics.ReadDenials(node, book))
	for _, series := range []map[string]float64{want, got} {
		delete(series, "weir_cluster_scheduling_delay_seconds") // differs between two readings
	}
	require.Equal(t, want, got)

	require.NoError(t, registration.Unregister())
	for name := range collect(t, reader) {
		require.True(t, strings.HasPrefix(name, "weir_check_seconds"), name)
	}
}

func TestNilNodeOrBookHasNoMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	registration, err := Register(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"), nil, nil)
	require.NoError(t, err)
	require.Empty(t, collect(t, reader))
	require.NoError(t, registration.Unregister())
}
