package weir

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/wire"
)

// Observer receives every decision about a check of this node, and every request to another member
// for whose response a check, a refund, a Reset or the like of this node waits. Package audit has an
// Observer. An Observer does not receive checks that this node decides or forwards for other nodes,
// which have their own Observers. The methods are called concurrently, on the goroutines of checks,
// and must not block.
type Observer interface {
	Decided(ctx context.Context, e DecisionEvent)
	Hopped(ctx context.Context, e HopEvent)
}

// Observers returns an Observer that calls each of the given Observers in order, such as an audit
// and metrics. Nil Observers are ignored. If there is no other Observer, the result is nil.
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

func (all observers) UsesCallers() bool { return slices.ContainsFunc(all, usesCallers) }

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

// callerObserver is an Observer that may use CallerOf.
type callerObserver interface{ UsesCallers() bool }

func usesCallers(o Observer) bool {
	c, ok := o.(callerObserver)
	return ok && c.UsesCallers()
}

// DecisionEvent is a decision about a limit. AllowAll makes a DecisionEvent for each ask, in order.
type DecisionEvent struct {
	Limiter  *Limiter
	Key      string // key of the caller
	Units    int64  // units of the caller; 1 for an Ask with 0 units
	Decision Decision
	Peek     bool // the call was Limiter.Peek or PeekN, which spends nothing
	// Operation is "take", "at_most" for AllowAtMost, "reserve", "debit", "wait", "hold" or "peek".
	Operation string
	Critical  bool // the check may spend the kept units (Limit.Keep)
	// Request is the number of an AllowAll with several asks, counted on this node from 1. It is 0 for other
	// checks. Asks is the number of asks of an AllowAll. Refused is set if an AllowAll with several asks spent
	// no units, because of a denial or an error.
	Request uint64
	Asks    int
	Refused bool
	// At is the time of the decision by the clock of the deciding node, which orders the decisions about a
	// key. For a Leased decision, At is the time of the loan, and for a Pushback the present time by the clock
	// of the owner. At is zero if the time is unknown.
	At   time.Time
	Err  error         // error of the call, with which the Decision is a denial; or nil
	Took time.Duration // duration of the whole check
}

// HopEvent is a request to a member.
type HopEvent struct {
	To   string // name of the member to which the request was sent, which may be a relay
	Err  error  // nil if the member answered; else an error of package cluster, or of the context
	Took time.Duration
}

// Caller describes the request of a client for which checks are made. Only Observers use it.
type Caller struct {
	Route     string     // method and pattern of the route, like "GET /items/{id}". A path would reveal the values that a client has sent
	Client    netip.Addr // zero if it is unknown
	UserAgent string     // as the client sent it
	Tier      string     // tier in rules
}

type callerKey struct{}

// WithCaller returns a context for the checks of a request. The Caller and its texts must not change before
// the checks return.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the Caller of a check for an Observer, or nil. The Observer must not retain the Caller
// or its texts.
func CallerOf(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// Tracer creates spans of checks that nodes send to each other, on both nodes. See Config.Tracer,
// and contrib/otel for a Tracer of OpenTelemetry. The methods are called concurrently, on the
// goroutines of checks, and must not block. A check that its node decides alone has no span.
type Tracer interface {
	// Outgoing returns the span of a check before its node sends the check to a member, or nil if
	// ctx has no sampled trace. Outgoing is called for each such check, so it should return nil
	// quickly.
	Outgoing(ctx context.Context) Span
	// Incoming returns the span of a request that a member has sent within a trace, as a child of
	// parent, or nil. Incoming is called only for sampled requests. The argument read is the time
	// at which the request was read, or zero if that is unknown.
	Incoming(parent TraceContext, read time.Time) Span
}

// Span describes the work of a node for a check. Its methods are called sequentially, and no
// method is called after End.
type Span interface {
	// Context returns the context that requests carry, so that the spans of other members are
	// children of this span. Requests carry the context only if it is Valid and Sampled.
	Context() TraceContext
	// Hopped is called after each request that was sent to a member for the check.
	Hopped(e HopEvent)
	// End is called once: on the node that asks, when the check is decided; on the node that was
	// asked, when that node has answered.
	End(e TraceEvent)
}

// TraceContext is a position in a trace, as in W3C Trace Context, without a tracestate. It takes
// 25 bytes in a request. A check that is not sampled sends no TraceContext.
type TraceContext struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte // the lowest bit is set if the trace is sampled
}

// Valid reports whether neither the trace ID nor the span ID is zero.
func (c TraceContext) Valid() bool { return c.TraceID != [16]byte{} && c.SpanID != [8]byte{} }

// Sampled reports whether the trace is sampled.
func (c TraceContext) Sampled() bool { return c.Flags&1 != 0 }

// TraceEvent is the end of a span, without a key.
type TraceEvent struct {
	Operation string        // "take", "peek", "debit", "refund", "wait", "hold", "renew", "release" or "pause"
	Outcome   string        // "allowed"; "denied"; "done" for a refund; or "unanswered", after an Err, for a refund without an answer, or if the node that was asked returns the check undecided
	Checks    []TracedCheck // one check, or all checks of an AllowAll that were sent to the same member
	From      string        // on the node that was asked, the member that sent the request; empty on the node that asks
	Err       error         // the caller's context was cancelled, or the request was malformed
}

// TracedCheck describes one check in a TraceEvent.
type TracedCheck struct {
	Limit   string // name of the limit; empty on the node that was asked, because requests do not contain names
	Units   int64
	Shadow  bool   // see Ask
	Allowed bool   // false for a refund
	Source  Source // zero if there is no decision
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
