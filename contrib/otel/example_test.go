package weirotel_test

import (
	"context"
	"fmt"
	"log"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weir-go/weir"
	weirotel "github.com/weir-go/weir/contrib/otel"
	"github.com/weir-go/weir/weirtest"
)

// Node "a" checks a key that a different node owns, and the trace shows the work of the
// owner. The cluster is in memory, for tests.
func ExampleNewTracer() {
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter() // a service would use an exporter to a collector
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))

	cluster, err := weirtest.NewCluster(ctx, weirtest.Options{Config: weir.Config{Tracer: weirotel.NewTracer(provider)}})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	logins, err := cluster.Node("a").Limiter(weir.Limit{Name: "logins", Rate: 5, Per: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	key := "user 1"
	for i := 2; logins.Owner(key).Self; i++ {
		key = fmt.Sprint("user ", i)
	}

	// Instrumentation of net/http or gRPC does this for each request:
	ctx, request := provider.Tracer("service").Start(ctx, "POST /login")
	if _, err := logins.Allow(ctx, key); err != nil {
		log.Fatal(err)
	}
	request.End()

	spans, names := exporter.GetSpans().Snapshots(), map[any]string{}
	for _, s := range spans {
		names[s.SpanContext().SpanID()] = s.Name()
	}
	for _, s := range spans {
		fmt.Printf("%s is part of %q\n", s.Name(), names[s.Parent().SpanID()])
	}
	// Output:
	// weir.serve is part of "weir.check"
	// weir.check is part of "POST /login"
	// POST /login is part of ""
}
