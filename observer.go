package weir

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/wire"
)

// Observer sees every decision of this node's own checks, and every request that
// they send: tracing, audit, latency and top keys hang here. What this node
// decides or hands on for others is theirs. Its methods run on the check's own
// goroutine, concurrently; they must not block.
type Observer interface {
	Decided(ctx context.Context, e DecisionEvent)
	Hopped(ctx context.Context, e HopEvent)
}

// Observers returns an Observer that calls each of these in turn, in their order, so that
// an audit, metrics and one's own see the same. Those that are nil are left out; of none
// it is nil.
func Observers(each ...Observer) Observer {
	all := slices.DeleteFunc(slices.Clone(each), func(o Observer) bool { return o == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return observers(all)
}

type observers []Observer

func (all observers) Decided(ctx context.Context, e DecisionEvent) {
	for _, o := range all {
		o.Decided(ctx, e)
	}
}

func (all observers) Hopped(ctx context.Context, e HopEvent) {
	for _, o := range all {
		o.Hopped(ctx, e)
	}
}

// DecisionEvent is one decision of one limit. AllowAll makes one for each ask.
type DecisionEvent struct {
	Limiter  *Limiter
	Key      string // as the caller gave it
	Units    int64  // as the caller gave them, 1 for an Ask of zero
	Decision Decision
	Peek     bool          // nothing was asked for: it is Limiter.Peek's
	Err      error         // with an error the Decision is a denial
	Took     time.Duration // of the whole check
}

// HopEvent is one request to another member.
type HopEvent struct {
	To   string // the member's name
	Err  error  // nil if it answered; else one of package cluster's, or the context's
	Took time.Duration
}

// hopObserver adapts an Observer to package check.
type hopObserver struct{ o Observer }

func (o hopObserver) Hopped(ctx context.Context, h check.Hop) { o.o.Hopped(ctx, HopEvent(h)) }

// Tracer makes spans of the checks that a node sends to another member, on both. See
// Config.Tracer, and contrib/otel for a Tracer of OpenTelemetry. The goroutine of the check calls
// the methods, concurrently, and they must not block. A check that its node decides alone has no
// span.
type Tracer interface {
	// Outgoing returns the span of a check before its node sends it to another member, or nil
	// if ctx has no sampled trace. It is called for each such check, and should be cheap
	// without a sampled trace.
	Outgoing(ctx context.Context) Span
	// Incoming returns the span of a request that another member has sent within a trace, as
	// a child of parent, or nil. It is called only for sampled requests. The request was read
	// at read, which is zero if unknown.
	Incoming(parent TraceContext, read time.Time) Span
}

// Span describes the work of one node for one check. Its methods are called one after the other;
// nothing is called after End.
type Span interface {
	// Context returns the context that requests carry, so that the spans of other members are
	// children of this one. Requests carry none that is not Valid and Sampled.
	Context() TraceContext
	// Hopped is called after each request that was sent to another member for the check.
	Hopped(e HopEvent)
	// End is called once, when the check is decided, or answered on the node that was asked.
	End(e TraceEvent)
}

// TraceContext is a position in a trace, as in W3C Trace Context, without a tracestate. It has 25
// bytes on the wire. A check that is not sampled sends none.
type TraceContext struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte // the lowest bit says that the trace is sampled
}

// Valid reports whether c names a trace and a span: neither id is zero.
func (c TraceContext) Valid() bool { return c.TraceID != [16]byte{} && c.SpanID != [8]byte{} }

// Sampled reports whether the trace that c is of is sampled.
func (c TraceContext) Sampled() bool { return c.Flags&1 != 0 }

// TraceEvent is the end of a span. It reveals no key.
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
