// Package metrics is the table of all metrics: their names, labels and meanings, and how
// each is read from what a node and its rules count. The packages that export them, for
// Prometheus and for OpenTelemetry, so have the same ones.
//
// docs/metrics.md describes them.
package metrics

import (
	"time"

	"github.com/weir-go/weir"
)

// Kind is what a metric's values do.
type Kind uint8

const (
	Counter   Kind = iota // they rise, from zero at the node's start
	Gauge                 // they go up and down
	Histogram             // they are spread over weir.LatencyBounds
)

// Family is a metric with all its series, read from an S.
type Family[S any] struct {
	Name, Help string
	Kind       Kind
	Labels     []string
	Read       func(s *S, emit Emit)
	Spread     func(s *S, emit EmitSpread) // in the place of Read, of a Histogram
}

// Emit takes one series: its value, and those of the family's labels.
type Emit func(value float64, labels ...string)

// EmitSpread takes one series of a histogram.
type EmitSpread func(of weir.Latency, labels ...string)

func gauge[S any](name, help string, read func(s *S) float64) Family[S] {
	return single(name, help, Gauge, read)
}

func counter[S any](name, help string, read func(s *S) float64) Family[S] {
	return single(name, help, Counter, read)
}

func single[S any](name, help string, kind Kind, read func(s *S) float64) Family[S] {
	return Family[S]{Name: name, Help: help, Kind: kind, Read: func(s *S, emit Emit) { emit(read(s)) }}
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
