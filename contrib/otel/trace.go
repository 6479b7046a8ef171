package weirotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir"
)

// scope is the instrumentation scope of spans and metrics.
const scope = "github.com/weir-go/weir/contrib/otel"

// The names of spans, events and attributes; see README.md.
const (
	checkSpan = "weir.check"
	serveSpan = "weir.serve"
	hopEvent  = "weir.hop"

	operationKey = attribute.Key("weir.operation")
	outcomeKey   = attribute.Key("weir.outcome")
	limitKey     = attribute.Key("weir.limit")
	limitsKey    = attribute.Key("weir.limits")
	deniedByKey  = attribute.Key("weir.denied_by")
	sourceKey    = attribute.Key("weir.source")
	unitsKey     = attribute.Key("weir.units")
	memberKey    = attribute.Key("weir.member")
	hopsKey      = attribute.Key("weir.hops")
	tookKey      = attribute.Key("weir.took_seconds")
	errorKey     = attribute.Key("error.message")
)

// NewTracer returns a Config.Tracer that creates spans with a provider. A check has a
// span only if the context of the check contains a sampled span and the sampler of the
// provider agrees. The Tracer is safe for concurrent use, and several nodes may share it.
func NewTracer(provider trace.TracerProvider) weir.Tracer {
	return tracer{provider.Tracer(scope)}
}

type tracer struct{ trace.Tracer }

func (t tracer) Outgoing(ctx context.Context) weir.Span {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return nil
	}
	_, s := t.Start(ctx, checkSpan, trace.WithSpanKind(trace.SpanKindClient))
	return newSpan(s)
}

func (t tracer) Incoming(parent weir.TraceContext, read time.Time) weir.Span {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: parent.TraceID, SpanID: parent.SpanID, TraceFlags: trace.TraceFlags(parent.Flags), Remote: true,
	}))
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	if !read.IsZero() {
		options = append(options, trace.WithTimestamp(read))
	}
	_, s := t.Start(ctx, serveSpan, options...)
	return newSpan(s)
}

// span is a span of this package.
type span struct {
	trace.Span
	hops int
	to   string // the name of the last asked member
}

// newSpan returns nil if the sampler of the provider has not sampled s.
func newSpan(s trace.Span) weir.Span {
	if !s.SpanContext().IsSampled() {
		s.End()
		return nil
	}
	return &span{Span: s}
}

func (s *span) Context() weir.TraceContext {
	c := s.SpanContext()
	return weir.TraceContext{TraceID: c.TraceID(), SpanID: c.SpanID(), Flags: byte(c.TraceFlags())}
}

func (s *span) Hopped(e weir.HopEvent) {
	s.hops++
	s.to = e.To
	attributes := []attribute.KeyValue{memberKey.String(e.To), tookKey.Float64(e.Took.Seconds())}
	if e.Err != nil {
		attributes = append(attributes, errorKey.String(e.Err.Error()))
	}
	s.AddEvent(hopEvent, trace.WithAttributes(attributes...))
}

func (s *span) End(e weir.TraceEvent) {
	member := s.to
	if e.From != "" {
		member = e.From
	}
	s.SetAttributes(operationKey.String(e.Operation), outcomeKey.String(e.Outcome), memberKey.String(member), hopsKey.Int(s.hops))
	s.SetAttributes(checkAttributes(e.Checks)...)
	if e.Err != nil {
		s.SetStatus(codes.Error, e.Err.Error())
	}
	s.Span.End()
}

// checkAttributes returns the attributes of the checks and of the deciding check. That is the
// first denied check that is not a shadow, or the first check if there is no such denial.
func checkAttributes(checks []weir.TracedCheck) (attributes []attribute.KeyValue) {
	if len(checks) == 0 {
		return nil
	}
	var (
		names, deniedBy []string
		units           int64
		deciding        = checks[0]
	)
	for _, c := range checks {
		units += c.Units
		if c.Limit == "" {
			continue
		}
		names = append(names, c.Limit)
	}
	for _, c := range checks {
		if c.Allowed || c.Shadow {
			continue
		}
		if len(deniedBy) == 0 {
			deciding = c
		}
		deniedBy = append(deniedBy, c.Limit)
	}
	attributes = append(attributes, unitsKey.Int64(units), sourceKey.String(deciding.Source.String()))
	switch {
	case len(names) == 1:
		attributes = append(attributes, limitKey.String(names[0]))
	case len(names) > 1:
		attributes = append(attributes, limitsKey.StringSlice(names))
		if len(deniedBy) > 0 {
			attributes = append(attributes, deniedByKey.StringSlice(deniedBy))
		}
	}
	return attributes
}
