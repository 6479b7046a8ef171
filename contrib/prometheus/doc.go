// Package weirprom exports the metrics of a node and of its rules to Prometheus.
//
//	prometheus.MustRegister(weirprom.New(node, book))
//	http.Handle("/metrics", promhttp.Handler())
//
// Each scrape reads weir.Node.Stats and rules.Book.Stats. Series of the whole node whose
// labels are known beforehand (sources, outcomes, reasons, states) exist from the first
// scrape with the value zero, so that the first event is visible as an increase. The series
// of a limit appear with its first decision: for each source with the first decision of that
// source, and for shadows with the first decision of a shadow. No metric contains a key or a
// client. The number of series does not depend on the roster, and the configuration (limits,
// rules, regions) bounds it.
//
// docs/metrics.md lists the metrics, and docs/runbook.md the alerts.
package weirprom
