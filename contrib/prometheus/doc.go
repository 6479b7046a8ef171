// Package weirprom exports the metrics of a node and of its rules to Prometheus.
//
//	prometheus.MustRegister(weirprom.New(node, book))
//	http.Handle("/metrics", promhttp.Handler())
//
// Each scrape reads weir.Node.Stats and rules.Book.Stats. Series whose labels are known
// beforehand (sources, outcomes, reasons, states) exist from the first scrape with the
// value zero, so that the first event is visible as an increase. No metric contains a key
// or a client. The number of series depends only on the configuration (limits, rules,
// regions), not on the traffic or on the roster.
//
// docs/metrics.md lists the metrics, and docs/runbook.md the alerts.
package weirprom
