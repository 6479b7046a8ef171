package weirprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/contrib/internal/metrics"
	"github.com/weir-go/weir/rules"
)

// New returns a collector for the metrics of a node and of a Book. A nil node or book has
// no metrics. The collector is safe for concurrent use, and reports the last numbers
// after node and book are closed.
//
// The metrics of two nodes in a process cannot be distinguished: register each node with
// prometheus.WrapRegistererWith and another value of a label.
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
		c = append(c, newFamilies(metrics.OfRules(), func() metrics.RuleDenials { return metrics.ReadDenials(node, book) }))
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
