package weirprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/internal/metrics"
	"github.com/weir-go/weir/rules"
)

// New has the metrics of a node, and of a Book. What is nil has none. It is safe
// for concurrent use, has nothing to close, and goes on with the last numbers
// after node and book are closed.
//
// The metrics of two nodes in one process differ in nothing: register each by
// prometheus.WrapRegistererWith, with a label that tells them apart.
func New(node *weir.Node, book *rules.Book) prometheus.Collector {
	var c collectors
	if node != nil {
		c = append(c, newFamilies(metrics.OfNode(), func() metrics.NodeStats {
			return metrics.ReadNode(node)
		}))
	}
	if book != nil {
		c = append(c, newFamilies(metrics.OfBook(), book.Stats))
	}
	if node != nil && book != nil {
		c = append(c, newFamilies(metrics.OfRules(), func() map[string]metrics.Denials { return metrics.DenialsByRule(node, book) }))
	}
	return c
}

type collectors []prometheus.Collector

func (c collectors) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range c {
		one.Describe(descs)
	}
}

func (c collectors) Collect(into chan<- prometheus.Metric) {
	for _, one := range c {
		one.Collect(into)
	}
}
