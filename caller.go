package weir

import (
	"context"
	"net/netip"
)

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
