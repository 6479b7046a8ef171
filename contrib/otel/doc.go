// Package weirotel provides traces and metrics of Weir for OpenTelemetry.
//
//	node, err := weir.Start(ctx, weir.Config{Tracer: weirotel.NewTracer(otel.GetTracerProvider())})
//	...
//	registration, err := weirotel.Register(otel.Meter("my/service"), node, book)
//	...
//	defer registration.Unregister()
//
// A check that leaves its node has a span there, "weir.check". Each member that is asked
// for it has a child span, "weir.serve", because the trace travels with the check. A span
// is created only if the context of the check belongs to a sampled trace. A check that
// its node decides alone has no span. Spans contain neither keys nor data from which a
// key could be recognised.
//
// The metrics and their names are those of contrib/prometheus; docs/metrics.md lists
// them.
package weirotel
