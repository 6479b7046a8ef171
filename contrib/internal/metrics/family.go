// Package metrics contains the table of all metrics: their names, labels and meanings,
// and how each is read from the statistics of a node and its rules. The exporters for
// Prometheus and for OpenTelemetry share this table.
//
// docs/metrics.md describes them.
package metrics

import (
	"time"

	"github.com/weir-go/weir"
)

// Kind is the type of a metric.
type Kind uint8

const (
	Counter   Kind = iota // rises, from zero at the start of the node
	Gauge                 // rises and falls
	Histogram             // has a bucket for each of weir.LatencyBounds
)

// Family is a metric with all its series, whose values are read from an S.
type Family[S any] struct {
	Name, Help string
	Kind       Kind
	Labels     []string
	Read       func(s *S, emit Emit)
	Spread     func(s *S, emit EmitSpread) // replaces Read if Kind is Histogram
}

// Emit is called for each series, with its value and the values of its labels.
type Emit func(value float64, labels ...string)

// EmitSpread is called for each series of a histogram, with the values of its labels.
type EmitSpread func(of weir.Latency, labels ...string)

func gauge[S any, N number](name, help string, read func(s *S) N) Family[S] {
	return single(name, help, Gauge, read)
}

func counter[S any, N number](name, help string, read func(s *S) N) Family[S] {
	return single(name, help, Counter, read)
}

func single[S any, N number](name, help string, kind Kind, read func(s *S) N) Family[S] {
	return Family[S]{Name: name, Help: help, Kind: kind, Read: func(s *S, emit Emit) { emit(valueOf(read(s))) }}
}

// split returns a family with a series for each value of a label.
func split[S any, N number](name, help string, kind Kind, label string, read func(s *S) map[string]N) Family[S] {
	return Family[S]{Name: name, Help: help, Kind: kind, Labels: []string{label}, Read: func(s *S, emit Emit) {
		for value, n := range read(s) {
			emit(valueOf(n), quoteInvalid(value))
		}
	}}
}

// number is the type of the value of a metric. Durations are exported in seconds.
type number interface {
	int | int64 | uint64 | float64 | bool | time.Duration | time.Time
}

func valueOf[N number](n N) float64 {
	switch n := any(n).(type) {
	case int:
		return float64(n)
	case int64:
		return float64(n)
	case uint64:
		return float64(n)
	case float64:
		return n
	case time.Duration:
		return n.Seconds()
	case time.Time: // in Unix time, 0 for the zero Time
		if !n.IsZero() {
			return float64(n.UnixNano()) / float64(time.Second)
		}
	case bool:
		if n {
			return 1
		}
	}
	return 0
}
