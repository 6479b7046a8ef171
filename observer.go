package weir

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/check"
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
