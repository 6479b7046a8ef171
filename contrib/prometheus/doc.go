// Package weirprom has the metrics of a node and of its rules for Prometheus.
//
//	prometheus.MustRegister(weirprom.New(node, book))
//	http.Handle("/metrics", promhttp.Handler())
//
// Each scrape reads weir.Node.Stats and rules.Book.Stats. What can be listed
// beforehand (sources, outcomes, reasons, states) is there from the first scrape
// on, as zero, so that the first event is seen as a rise. No metric has a key or
// a client in it: how many series there are depends on what is configured (limits,
// rules, regions) and on the roster, whatever the traffic.
//
// docs/metrics.md lists the metrics, and says which are worth an alarm.
package weirprom
