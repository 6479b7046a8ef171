// Package kafkaaudit is a sink for package audit that writes to a topic of Kafka.
//
//	sink, err := kafkaaudit.New(kafkaaudit.Options{Brokers: []string{"kafka:9092"}, Topic: "weir.audit"})
//	...
//	defer sink.Close()
//	auditLog, err := audit.New(sink, audit.Options{})
//	...
//	defer auditLog.Close(ctx) // before the sink
//	node, err := weir.Start(ctx, weir.Config{Observer: auditLog})
//
// Records are keyed by the id of the limit's key, so that one partition has all that
// concerns it. The producer is idempotent: it writes none twice while it runs. Nothing
// waits for a broker that is away but the audit's own goroutine, for Options.Timeout of
// package audit at a time: what is not acknowledged by then counts as failed, what comes
// meanwhile is queued and dropped as package audit says, and when the broker is back it
// goes on.
package kafkaaudit
