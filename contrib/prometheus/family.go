package weirprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir"
)

// family is a metric with all its series, read from an S.
type family[S any] struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	read       func(s *S, emit emit)
	spread     func(s *S, emit emitSpread) // in the place of read, of a histogram
}

// emitSpread takes one series of a histogram.
type emitSpread func(of weir.Latency, labels ...string)

// emit takes one series: its value, and those of the family's labels.
type emit func(value float64, labels ...string)

func gauge[S any](name, help string, read func(s *S) float64) family[S] {
	return single(name, help, prometheus.GaugeValue, read)
}

func counter[S any](name, help string, read func(s *S) float64) family[S] {
	return single(name, help, prometheus.CounterValue, read)
}

func single[S any](name, help string, kind prometheus.ValueType, read func(s *S) float64) family[S] {
	return family[S]{name: name, help: help, kind: kind, read: func(s *S, emit emit) { emit(read(s)) }}
}

// families collects what one reading of an S has.
type families[S any] struct {
	all   []family[S]
	descs []*prometheus.Desc
	stats func() S
}

func newFamilies[S any](all []family[S], stats func() S) *families[S] {
	c := &families[S]{all, make([]*prometheus.Desc, len(all)), stats}
	for i, f := range all {
		c.descs[i] = prometheus.NewDesc(f.name, f.help, f.labels, nil)
	}
	return c
}

func (c *families[S]) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		descs <- d
	}
}

func (c *families[S]) Collect(metrics chan<- prometheus.Metric) {
	s := c.stats()
	for i, f := range c.all {
		if f.spread != nil {
			f.spread(&s, func(of weir.Latency, labels ...string) { metrics <- spread(c.descs[i], of, labels) })
			continue
		}
		f.read(&s, func(value float64, labels ...string) {
			m, err := prometheus.NewConstMetric(c.descs[i], f.kind, value, labels...)
			if err != nil {
				m = prometheus.NewInvalidMetric(c.descs[i], err)
			}
			metrics <- m
		})
	}
}

// spread is a histogram in seconds.
func spread(desc *prometheus.Desc, of weir.Latency, labels []string) prometheus.Metric {
	buckets := make(map[float64]uint64)
	for i, bound := range weir.LatencyBounds() {
		if i < len(of.Buckets) {
			buckets[bound.Seconds()] = of.Buckets[i]
		}
	}
	m, err := prometheus.NewConstHistogram(desc, of.Count, of.Sum.Seconds(), buckets, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// timestamp is a moment in Unix time, 0 for the zero Time.
func timestamp(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixNano()) / float64(time.Second)
}
