package weir

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
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

const (
	outcomeAllowed    = "allowed"
	outcomeDenied     = "denied"
	outcomeDone       = "done"
	outcomeUnanswered = "unanswered"
)

// trip is the way of a check that has left this node, and of one that has come to it,
// for its span. It is nil for what nobody traces, and so are all its methods' effects.
type trip struct {
	span    Span
	context TraceContext
	from    string // the member that asks; empty where this node does
}

// depart begins the trip of a check that leaves this node, nil if nobody traces it.
func (n *Node) depart(ctx context.Context) *trip {
	if n.cfg.Tracer == nil {
		return nil
	}
	return newTrip(n.cfg.Tracer.Outgoing(ctx), "")
}

// arrive begins the trip of a request that has come within a trace, and returns it as it
// is to be handed on: within the span of this node. A context that is not valid, or says
// that nothing is sampled, is ignored; no member sends one.
func (n *Node) arrive(b *cluster.Batch, h wire.Header, request []byte) (*trip, []byte) {
	if n.cfg.Tracer == nil {
		return nil, request
	}
	parent := TraceContext(wire.TraceOf(request))
	if !parent.Valid() || !parent.Sampled() {
		return nil, request
	}
	t := newTrip(n.cfg.Tracer.Incoming(parent, b.Read), b.From)
	if t.travels() {
		asks := request[:len(request)-wire.TraceBytes]
		request = wire.Trace(t.context).Append(slices.Clone(asks))
	}
	return t, request
}

func newTrip(s Span, from string) *trip {
	if s == nil {
		return nil
	}
	return &trip{span: s, context: s.Context(), from: from}
}

// travels reports whether members that are asked are to know of the trace.
func (t *trip) travels() bool { return t != nil && t.context.Valid() && t.context.Sampled() }

func (t *trip) hopped(e HopEvent) {
	if t != nil {
		t.span.Hopped(e)
	}
}

// decided ends the trip of a check that left this node, with what it came to.
func (t *trip) decided(op wire.Op, asks []wire.Ask, results []wire.Result, err error) {
	if t == nil {
		return
	}
	e := TraceEvent{Operation: op.Traced(), Outcome: outcomeOf(op, asks, results), Checks: make([]TracedCheck, len(asks)), Err: err}
	if err != nil {
		e.Outcome = outcomeUnanswered
	}
	for i := range asks {
		a, r := &asks[i], &results[i]
		e.Checks[i] = TracedCheck{Limit: a.Name, Units: a.Units, Shadow: a.Shadow, Allowed: r.Allowed, Source: Source(r.Source)}
	}
	t.span.End(e)
}

// answered ends the trip of a request that came to this node, with its answer.
func (t *trip) answered(h wire.Header, request, answer []byte) {
	if t == nil {
		return
	}
	e := TraceEvent{Operation: h.Op.Traced(), Outcome: outcomeUnanswered, From: t.from}
	if len(answer) == 0 {
		e.Err = wire.ErrMalformed
	} else if s, err := wire.ParseAnswer(answer, h.Op, int(h.Asks)); err != nil {
		e.Err = err
	} else if s == wire.Done {
		asks, results := make([]wire.Ask, h.Asks), make([]wire.Result, h.Asks)
		for i := range asks {
			asks[i], _ = wire.ParseAsk(request, i, new(bucket.Limit)) // it was parsed to be answered
			r := wire.ParseResult(answer, h.Op, i)
			results[i] = r
			e.Checks = append(e.Checks, TracedCheck{Units: asks[i].Units, Shadow: asks[i].Shadow, Allowed: r.Allowed, Source: Source(r.Source)})
		}
		e.Outcome = outcomeOf(h.Op, asks, results)
	}
	t.span.End(e)
}

// later has what answers a request end its trip as well.
func (t *trip) later(h wire.Header, request []byte, answer cluster.Later) cluster.Later {
	if t == nil {
		return answer
	}
	request = slices.Clone(request)
	return func(body []byte) {
		t.answered(h, request, body)
		answer(body)
	}
}

func outcomeOf(op wire.Op, asks []wire.Ask, results []wire.Result) string {
	switch {
	case op == wire.OpRefund && slices.ContainsFunc(results, func(r wire.Result) bool { return r.Source == 0 }):
		return outcomeUnanswered // it may have been carried out
	case op == wire.OpRefund:
		return outcomeDone
	case wire.Allowed(asks, results):
		return outcomeAllowed
	}
	return outcomeDenied
}
