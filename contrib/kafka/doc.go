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
// while it runs. Only the goroutine of the audit Log waits for an unavailable broker, for
// Options.Timeout of package audit at a time. Records that are not acknowledged by then
// count as failed. Later records are queued and dropped as package audit describes. When
// the broker is available again, writing continues.
package kafkaaudit
