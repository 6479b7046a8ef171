// Package audit keeps a record of who was denied what: a [Log] is a [weir.Observer]
// that hands the denials of this node's own checks to a [Sink], and the admissions of a
// sample of the keys if asked to.
//
//	auditLog, err := audit.New(audit.JSONLines(os.Stdout), audit.Options{})
//	...
//	node, err := weir.Start(ctx, weir.Config{Observer: auditLog})
//	...
//	node.Close()
//	auditLog.Close(ctx) // writes what is queued
//
// No check waits for it. A check that is recorded is copied into a queue of fixed size,
// from which one goroutine writes batches; where the queue is full the record is dropped,
// and Stats counts it. A record has the id of the key (weir.Limiter.ID), and not its
// text, unless Options.Keys asks for that.
//
// JSONLines writes to any io.Writer. Package kafkaaudit, in contrib/kafka, is a Sink that
// writes to Kafka. audit/README.md describes the fields.
package audit
