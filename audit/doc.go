// Package audit records which keys were denied. A [Log] is a [weir.Observer] that passes the
// denials of the checks of this node to a [Sink]. With Options.Sample it also passes the
// admissions of a sample of the keys.
//
//	auditLog, err := audit.New(audit.JSONLines(os.Stdout), audit.Options{})
//	...
//	node, err := weir.Start(ctx, weir.Config{Observer: auditLog})
//	...
//	node.Close()
//	auditLog.Close(ctx) // writes the queued records
//
// No check waits for the Log. The record of a check is copied into a queue of fixed size,
// from which a goroutine writes batches. If the queue is full, the record is dropped and
// counted in Stats. A record has the ID of the key (weir.Limiter.ID), and with
// Options.Keys the text of the key. Package replay decides recorded requests again, by other
// rules.
//
// JSONLines writes to any io.Writer. Package kafkaaudit, in contrib/kafka, has a Sink that
// writes to Kafka.
package audit
