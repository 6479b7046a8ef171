package kafkaaudit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/audit"
	kafkaaudit "github.com/weir-go/weir/contrib/kafka"
)

// The third check is denied, and its record is in Kafka once the Log is closed.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	kafka, err := kfake.NewCluster(kfake.SeedTopics(3, "weir.audit"))
	if err != nil {
		log.Fatal(err)
	}
	defer kafka.Close()

	sink, err := kafkaaudit.New(kafkaaudit.Options{Brokers: kafka.ListenAddrs(), Topic: "weir.audit"})
	if err != nil {
		log.Fatal(err)
	}
	auditLog, err := audit.New(sink, audit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	node, err := weir.Start(ctx, weir.Config{Observer: auditLog})
	if err != nil {
		log.Fatal(err)
	}
	exports, err := node.Limiter(weir.Limit{Name: "exports", Algorithm: weir.FixedWindow, Rate: 2, Per: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if _, err := exports.Allow(ctx, "user 4711"); err != nil {
			log.Fatal(err)
		}
	}

	// The order matters: no further checks, all records written, connections closed.
	_ = node.Close()
	if err := auditLog.Close(ctx); err != nil {
		log.Fatal(err)
	}
	sink.Close()
	fmt.Printf("%+v\n", auditLog.Stats())
	// Output: {Queued:0 Written:1 Dropped:0 Failed:0}
}
