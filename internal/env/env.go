package env

import (
	"context"

	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// Env is the state that all parts of a node share: the region of the node, its clocks, the lifetime of its
// goroutines, and its present view.
type Env struct {
	Region string
	Clock
	Life
	view.Current
}

// RunFor runs f in a goroutine on behalf of a sender. The context of f ends with the node. RunFor
// returns false, without a call of f, if too many goroutines run for this sender, for all senders
// together or for the node, or if the node is closed. In each region, all senders that are not in
// the roster count as a single sender: a sender can choose its name.
func (e *Env) RunFor(from Sender, f func(context.Context)) bool {
	if _, known := e.View().Named[view.NameHash(from.Name)]; !known || from.Region != e.Region {
		from.Name = ""
	}
	return e.TryFor(from, f)
}

// IsFenced reports whether this node may have been frozen, given the time that a check has read
// with Now (see view.Current.IsFenced).
func (e *Env) IsFenced(v *view.View, now int64) bool {
	return e.Current.IsFenced(v, e.MonotonicAt(now))
}

// Checks executes each operation at the member that answers for the count. The implementation is
// check.Checks.
type Checks interface {
	// Do waits for the result. A deadline or an outage is not an error.
	Do(ctx context.Context, op wire.Op, a *wire.Ask, r *wire.Result) error
	// DoInBackground does not wait for the result.
	DoInBackground(op wire.Op, a *wire.Ask)
	// Send sends a message that may be lost, and requests no response.
	Send(op wire.Op, a *wire.Ask)
}
