// Package weirotel provides traces and metrics of Weir for OpenTelemetry.
//
//	node, err := weir.Start(ctx, weir.Config{Tracer: weirotel.NewTracer(otel.GetTracerProvider())})
//	...
//	registration, err := weirotel.Register(otel.Meter("my/service"), node, book)
//	...
//	defer registration.Unregister()
//
// A check that leaves its node has a span on that node, "weir.check". Each asked member
// has a child span, "weir.serve", because the trace travels with the check. A span is
// created only if the context of the check belongs to a sampled trace. A check that its
// node decides alone has no span. Spans contain no keys and no data that reveals a key.
//
// The metrics have the names of contrib/prometheus, and docs/metrics.md lists the
// metrics.
package weirotel
