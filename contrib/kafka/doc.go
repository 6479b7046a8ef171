// Package kafkaaudit provides a sink for package audit that writes to a Kafka topic.
//
//	sink, err := kafkaaudit.New(kafkaaudit.Options{Brokers: []string{"kafka:9092"}, Topic: "weir.audit"})
//	...
//	defer sink.Close()
//	auditLog, err := audit.New(sink, audit.Options{})
//	...
//	defer auditLog.Close(ctx) // before the sink
//	node, err := weir.Start(ctx, weir.Config{Observer: auditLog})
//
// The key of a message is the ID in the record, so that all records with the same ID are
// in the same partition. The producer is idempotent: it does not write a record twice
// while it runs. Only the goroutine of the audit Log waits for an unavailable broker, at
// most audit.Options.Timeout for each batch. Records that are not acknowledged by then count
// as failed. Meanwhile, further records are queued, or dropped if the queue is full. When the
// broker is available again, writing continues.
package kafkaaudit
