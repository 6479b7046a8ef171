package check

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// Tracer creates the spans of checks that a node sends to other nodes. Its methods must not
// block.
type Tracer interface {
	// Outgoing returns the span of a check that is about to be sent to another member, or nil for no span.
	Outgoing(ctx context.Context) Span
	// Incoming returns the span of a sampled request from another member, or nil if there is no
	// span. The argument read is the time at which the request was read, or zero if that is not
	// known.
	Incoming(parent wire.Trace, read time.Time) Span
}

// Span describes the work of one node for a check. No method is called after End.
type Span interface {
	// Context returns the trace, which is sent to other members if it is sampled.
	Context() wire.Trace
	// Hopped is called after each request that this node sent to another member for the check.
	Hopped(h Hop)
	// End is called once, after the check was decided or answered.
	End(e TraceEvent)
}

// TraceEvent ends a span.
type TraceEvent struct {
	Operation string
	Outcome   string // one of the outcomes below
	Checks    []TracedCheck
	From      string // the member that sent the request; empty on the node that asks
	Err       error
}

// TracedCheck describes the check of one limit in a TraceEvent.
type TracedCheck struct {
	Limit   string // name of the limit; empty on a node that is asked, because names are not sent
	Units   int64
	Shadow  bool
	Allowed bool
	Source  wire.Source // zero without a decision
}

// The outcomes of a TraceEvent.
const (
	outcomeAllowed    = "allowed"
	outcomeDenied     = "denied"
	outcomeDone       = "done" // a refund was executed
	outcomeUnanswered = "unanswered"
)

// trip has the span of a check that leaves this node, or that has arrived. The methods of a nil trip do
// nothing.
type trip struct {
	span    Span
	context wire.Trace
	from    string // the member that has sent the request; empty if the check began on this node
}

// depart begins the trip of a check that leaves this node. If the check is not traced, it returns
// nil.
func (c *Checks) depart(ctx context.Context) *trip {
	if c.Tracer == nil {
		return nil
	}
	return newTrip(c.Tracer.Outgoing(ctx), "")
}

// arrive begins the trip of a request that was sent within a trace. It returns the request with the
// span of this node in place of the sender's span, for the members to which the request is passed
// on. A trace that is not valid or not sampled is ignored: no member sends such a trace.
func (c *Checks) arrive(b *cluster.Batch, request []byte) (*trip, []byte) {
	if c.Tracer == nil {
		return nil, request
	}
	parent := wire.TraceOf(request)
	if !parent.IsSampled() {
		return nil, request
	}
	t := newTrip(c.Tracer.Incoming(parent, b.Read), b.From)
	if t.travels() {
		asks := request[:len(request)-wire.TraceBytes]
		request = t.context.Append(slices.Clone(asks))
	}
	return t, request
}

func newTrip(s Span, from string) *trip {
	if s == nil {
		return nil
	}
	return &trip{span: s, context: s.Context(), from: from}
}

// travels reports whether requests to other members carry the trace.
func (t *trip) travels() bool { return t != nil && t.context.IsSampled() }

func (t *trip) hopped(h Hop) {
	if t != nil {
		t.span.Hopped(h)
	}
}

// decided ends the trip of a check that this node has sent to another member.
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
		e.Checks[i] = TracedCheck{Limit: a.Name, Units: a.Units, Shadow: a.Shadow, Allowed: r.Allowed, Source: r.Source}
	}
	t.span.End(e)
}

// answered ends the trip of a request that another member has sent to this node.
func (t *trip) answered(h wire.Header, request, answer []byte) {
	if t == nil {
		return
	}
	e := TraceEvent{Operation: h.Op.Traced(), Outcome: outcomeUnanswered, From: t.from}
	if len(answer) == 0 {
		e.Err = wire.ErrMalformed
	} else if s, err := wire.ParseResponse(answer, h.Op, int(h.Asks)); err != nil {
		e.Err = err
	} else if s == wire.Done {
		asks, results := make([]wire.Ask, h.Asks), make([]wire.Result, h.Asks)
		for i := range asks {
			asks[i], _ = wire.ParseAsk(request, i, new(bucket.Limit)) // the same ask was parsed before it was answered
			results[i] = wire.ParseResult(answer, h.Op, i)
			e.Checks = append(e.Checks, TracedCheck{Units: asks[i].Units, Shadow: asks[i].Shadow, Allowed: results[i].Allowed, Source: results[i].Source})
		}
		e.Outcome = outcomeOf(h.Op, asks, results)
	}
	t.span.End(e)
}

func outcomeOf(op wire.Op, asks []wire.Ask, results []wire.Result) string {
	switch {
	case op == wire.OpRefund && slices.ContainsFunc(results, func(r wire.Result) bool { return r.Source == 0 }):
		return outcomeUnanswered // the member may have executed the refund
	case op == wire.OpRefund:
		return outcomeDone
	case wire.Allowed(asks, results):
		return outcomeAllowed
	}
	return outcomeDenied
}
