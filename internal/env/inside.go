package env

import (
	"context"

	"github.com/weir-go/weir/internal/view"
)

// Inside gives tests outside of package weir access to the part of a node's state that the API does not
// show.
type Inside struct {
	View      func() *view.View
	Monotonic func() int64            // monotonic time in nanoseconds, as in View
	Used      func(id [16]byte) int64 // used units of the count that this node has for a Limiter.ID, as the owner or as a replica
}

type insideKey struct{}

// WithInside returns a context for weir.Start, which fills in the Inside of the node that it
// starts.
func WithInside(ctx context.Context, in *Inside) context.Context {
	return context.WithValue(ctx, insideKey{}, in)
}

// FillInside sets the Inside that a context has, if it has one.
func FillInside(ctx context.Context, node Inside) {
	if in, ok := ctx.Value(insideKey{}).(*Inside); ok {
		*in = node
	}
}
