// Package weirotel has traces and metrics of Weir for OpenTelemetry.
//
//	node, err := weir.Start(ctx, weir.Config{Tracer: weirotel.NewTracer(otel.GetTracerProvider())})
//	...
//	registration, err := weirotel.Register(otel.Meter("my/service"), node, book)
//	...
//	defer registration.Unregister()
//
// A check that leaves its node has a span there, "weir.check", and one on each member
// that is asked for it, "weir.serve", which is its child: the trace travels with the
// check. There is a span only within a trace that is sampled, as the context given to
// the check says; a check that its node decides by itself has none. No span has a key in
// it, nor what a key could be told by.
//
// The metrics are those of contrib/prometheus, by the same names; docs/metrics.md lists
// them.
package weirotel
