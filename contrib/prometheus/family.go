package weirprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/internal/metrics"
)

// families is a collector of the metrics that are read from an S.
type families[S any] struct {
	all   []metrics.Family[S]
	descs []*prometheus.Desc
	stats func() S
}

func newFamilies[S any](all []metrics.Family[S], stats func() S) *families[S] {
	c := &families[S]{all, make([]*prometheus.Desc, len(all)), stats}
	for i, f := range all {
		c.descs[i] = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	}
	return c
}

func (c *families[S]) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		descs <- d
	}
}

func (c *families[S]) Collect(into chan<- prometheus.Metric) {
	s := c.stats()
	for i, f := range c.all {
		if f.Kind == metrics.Histogram {
			f.Spread(&s, func(of weir.Latency, labels ...string) { into <- histogramOf(c.descs[i], of, labels) })
			continue
		}
		f.Read(&s, func(value float64, labels ...string) {
			m, err := prometheus.NewConstMetric(c.descs[i], kindOf(f.Kind), value, labels...)
			if err != nil {
				m = prometheus.NewInvalidMetric(c.descs[i], err)
			}
			into <- m
		})
	}
}

func kindOf(k metrics.Kind) prometheus.ValueType {
	if k == metrics.Gauge {
		return prometheus.GaugeValue
	}
	return prometheus.CounterValue
}

// histogramOf returns a histogram in seconds.
func histogramOf(desc *prometheus.Desc, latency weir.Latency, labels []string) prometheus.Metric {
	buckets := make(map[float64]uint64)
	for i, bound := range weir.LatencyBounds() {
		if i < len(latency.Buckets) {
			buckets[bound.Seconds()] = latency.Buckets[i]
		}
	}
	m, err := prometheus.NewConstHistogram(desc, latency.Count, latency.Sum.Seconds(), buckets, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}
