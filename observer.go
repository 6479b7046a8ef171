package weir

import (
	"context"
	"time"
)

// Observer sees every decision and every hop: tracing, audit, latency and top
// keys hang here. Its methods run on the check's own goroutine, concurrently;
// they must not block.
type Observer interface {
	Decided(ctx context.Context, e DecisionEvent)
	Hopped(ctx context.Context, e HopEvent)
}

// DecisionEvent is one decision of one limit. AllowAll makes one for each ask.
type DecisionEvent struct {
	Limiter  *Limiter
	Key      string
	Units    int64
	Decision Decision
	Err      error         // with an error the Decision is a denial
	Took     time.Duration // of the whole check
}

// HopEvent is one request to another member.
type HopEvent struct {
	To   string // the member's name
	Err  error  // nil if it answered
	Took time.Duration
}
