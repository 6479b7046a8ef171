package weir

import (
	"context"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// serveApart runs f in a goroutine that Close ends, on behalf of a sender. It reports
// false if too much goes on for that one, or in all.
func (n *Node) serveApart(from env.Sender, f func(context.Context)) bool {
	if _, known := n.handover.View().Named[view.NameHash(from.Name)]; !known || from.Region != n.cfg.Region {
		from.Name = ""
	}
	return n.env.TryFor(from, f)
}

// answerApart answers a sender by what f appends to the header of an answer, apart from
// checks.
func (n *Node) answerApart(from env.Sender, answer cluster.Later, f func(b []byte) []byte) {
	started := n.serveApart(from, func(context.Context) { answer(f(wire.AppendAnswer(nil, wire.Done, 0))) })
	if !started {
		answer(wire.AppendAnswer(nil, wire.Unreached, 0))
	}
}

// longestWait bounds how long this node works on a request, whatever its sender says:
// as long as it would wait itself, for a check or for what members ask each other.
func (n *Node) longestWait() time.Duration { return max(n.cfg.Timeout, topWait, handover.LocateWait) }
