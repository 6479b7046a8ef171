package weir

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/wire"
)

// Tracer makes spans of the checks that leave their node, on the node that asks and on
// those that are asked: see Config.Tracer, and contrib/otel for one that goes by
// OpenTelemetry. Its methods are called on the check's own way, concurrently; they must
// not block. A check that its node decides by itself is none of its business.
type Tracer interface {
	// Outgoing returns the span of a check that is about to be sent to another member, nil
	// if ctx is not of a trace that is sampled. It is called for each such check: it should
	// look at ctx, and do no more for one that is not sampled.
	Outgoing(ctx context.Context) Span
	// Incoming returns the span of a request that another member has sent within a trace,
	// as a child of parent, nil for none. It is called for sampled requests alone; read is
	// when the request was read, zero if that is not known.
	Incoming(parent TraceContext, read time.Time) Span
}

// Span is one node's part in one check. Its methods are called one after the other;
// nothing is called after End.
type Span interface {
	// Context is what travels to the members that are asked, so that their spans are
	// children of this one. If it is not Valid, or not Sampled, nothing travels.
	Context() TraceContext
	// Hopped is called after each request that was sent to another member for the check.
	Hopped(e HopEvent)
	// End is called once, when the check is decided, or answered on the node that was asked.
	End(e TraceEvent)
}

// TraceContext is where in which trace a check is, as in W3C Trace Context, without a
// tracestate. It is 25 bytes on the wire; a check that is not sampled sends none.
type TraceContext struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte // the lowest bit says that the trace is sampled
}

// Valid reports whether c names a trace and a span: neither id is zero.
func (c TraceContext) Valid() bool { return c.TraceID != [16]byte{} && c.SpanID != [8]byte{} }

// Sampled reports whether the trace that c is of is sampled.
func (c TraceContext) Sampled() bool { return c.Flags&1 != 0 }

// TraceEvent is what a span ends with. It has no key, and nothing that a key could be
// told by.
type TraceEvent struct {
	Operation string        // "take", "peek", "debit", "refund", "wait", "hold", "renew" or "release"
	Outcome   string        // "allowed", "denied", "done" for a refund, or "unanswered": by an Err, or by a node that hands the check back
	Checks    []TracedCheck // of AllowAll those that went the same way
	From      string        // on a node that is asked, the member that sent the request; empty on the one that asks
	Err       error         // the caller's context was cancelled, or the request was malformed
}

// TracedCheck is one limit's part in a TraceEvent.
type TracedCheck struct {
	Limit   string // its name; empty on a node that is asked, as names do not travel
	Units   int64
	Shadow  bool   // see Ask
	Allowed bool   // of a take, peek or debit
	Source  Source // zero if nothing was decided
}

// tracer adapts a Tracer to package check.
type tracer struct{ t Tracer }

func (t tracer) Outgoing(ctx context.Context) check.Span { return spanOf(t.t.Outgoing(ctx)) }

func (t tracer) Incoming(parent wire.Trace, read time.Time) check.Span {
	return spanOf(t.t.Incoming(TraceContext(parent), read))
}

// span adapts a Span to package check.
type span struct{ Span }

func spanOf(s Span) check.Span {
	if s == nil {
		return nil
	}
	return span{s}
}

func (s span) Context() wire.Trace { return wire.Trace(s.Span.Context()) }

func (s span) Hopped(h check.Hop) { s.Span.Hopped(HopEvent(h)) }

func (s span) End(e check.TraceEvent) {
	checks := make([]TracedCheck, len(e.Checks))
	for i, c := range e.Checks {
		checks[i] = TracedCheck{c.Limit, c.Units, c.Shadow, c.Allowed, Source(c.Source)}
	}
	s.Span.End(TraceEvent{e.Operation, e.Outcome, checks, e.From, e.Err})
}
