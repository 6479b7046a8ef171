package weirotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/internal/metrics"
	"github.com/weir-go/weir/rules"
)

// Register registers a callback with a meter. At each collection, the callback observes
// the statistics of a node and a Book. A nil node or book has no metrics.
// Registration.Unregister removes the callback. After node and book are closed, the
// callback reports the last numbers. The error is the error of the meter.
//
// All instruments are asynchronous counters and gauges. No attribute contains a key or a
// client, and the configuration bounds the number of series. The series of a limit appear
// with its first decision: for each source with the first decision of that source, and for
// shadows with the first decision of a shadow. Histograms exports the duration of checks,
// because no asynchronous instrument is a histogram.
//
// The metrics of two nodes in a process cannot be distinguished: use a separate meter for
// each node, with metric.WithInstrumentationAttributes.
func Register(meter metric.Meter, node *weir.Node, book *rules.Book) (metric.Registration, error) {
	r := registering{meter: meter}
	if node != nil {
		observe(&r, metrics.OfNode(), func() metrics.NodeStats { return metrics.ReadNode(node) })
	}
	if book != nil {
		observe(&r, metrics.OfBook(), book.Stats)
	}
	if node != nil && book != nil {
		observe(&r, metrics.OfRules(), func() metrics.RuleDenials { return metrics.ReadDenials(node, book) })
	}
	if r.err != nil {
		return nil, r.err
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, read := range r.reads {
			read(o)
		}
		return nil
	}, r.instruments...)
}

// registering is the state of a call of Register.
type registering struct {
	meter       metric.Meter
	instruments []metric.Observable
	reads       []func(o metric.Observer)
	err         error // the first error
}

// observe creates the instruments of metrics that are read from an S, and adds the function that
// reads them.
func observe[S any](r *registering, all []metrics.Family[S], stats func() S) {
	instruments := make([]metric.Float64Observable, len(all))
	for i, f := range all {
		if f.Kind == metrics.Histogram || r.err != nil {
			continue
		}
		if instruments[i], r.err = instrument(r.meter, f.Kind, f.Name, f.Help); r.err == nil {
			r.instruments = append(r.instruments, instruments[i])
		}
	}
	r.reads = append(r.reads, func(o metric.Observer) {
		s := stats()
		for i, f := range all {
			if instruments[i] == nil {
				continue
			}
			f.Read(&s, func(value float64, labels ...string) {
				o.ObserveFloat64(instruments[i], value, metric.WithAttributeSet(attributes(f.Labels, labels)))
			})
		}
	})
}

// instrument returns an instrument without a unit. The unit is part of the name, and
// exporters that append units would repeat the unit.
func instrument(meter metric.Meter, kind metrics.Kind, name, help string) (metric.Float64Observable, error) {
	if kind == metrics.Gauge {
		return meter.Float64ObservableGauge(name, metric.WithDescription(help))
	}
	return meter.Float64ObservableCounter(name, metric.WithDescription(help))
}

func attributes(names, values []string) attribute.Set {
	pairs := make([]attribute.KeyValue, len(names))
	for i := range names {
		pairs[i] = attribute.String(names[i], values[i])
	}
	return attribute.NewSet(pairs...)
}

// Histograms returns a producer for the duration of the checks of a node,
// weir_check_seconds. Pass the producer to a reader of the SDK:
// sdkmetric.NewPeriodicReader(exporter,
// sdkmetric.WithProducer(weirotel.Histograms(node))). The histograms are cumulative,
// regardless of the temporality that the exporter prefers. The producer is safe for
// concurrent use.
func Histograms(node *weir.Node) sdkmetric.Producer {
	return producer{func() metrics.NodeStats { return metrics.NodeStats{Stats: node.Stats()} }, time.Now()}
}

type producer struct {
	stats func() metrics.NodeStats
	begun time.Time
}

func (p producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	s, now := p.stats(), time.Now()
	scoped := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: scope}}
	for _, f := range metrics.OfNode() {
		if f.Kind != metrics.Histogram {
			continue
		}
		h := metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality}
		f.Spread(&s, func(of weir.Latency, labels ...string) {
			h.DataPoints = append(h.DataPoints, p.point(of, attributes(f.Labels, labels), now))
		})
		scoped.Metrics = append(scoped.Metrics, metricdata.Metrics{Name: f.Name, Description: f.Help, Unit: "s", Data: h})
	}
	return []metricdata.ScopeMetrics{scoped}, nil
}

// point returns the data point of a histogram. A bucket of Weir counts all values up to its
// bound, and a bucket of OpenTelemetry only the values between two bounds.
func (p producer) point(latency weir.Latency, set attribute.Set, now time.Time) metricdata.HistogramDataPoint[float64] {
	h := metricdata.HistogramDataPoint[float64]{Attributes: set, StartTime: p.begun, Time: now, Count: latency.Count, Sum: latency.Sum.Seconds()}
	below := uint64(0)
	for i, bound := range weir.LatencyBounds() {
		upTo := below
		if i < len(latency.Buckets) {
			upTo = latency.Buckets[i]
		}
		h.Bounds = append(h.Bounds, bound.Seconds())
		h.BucketCounts = append(h.BucketCounts, upTo-below)
		below = upTo
	}
	h.BucketCounts = append(h.BucketCounts, latency.Count-below)
	return h
}
