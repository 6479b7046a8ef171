package weir

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
)

// serveApart runs f in a goroutine that Close ends, on behalf of a sender. It reports
// false if too much goes on for that one, or in all.
func (n *Node) serveApart(from env.Sender, f func(context.Context)) bool {
	if _, known := n.view.Load().Named[view.NameHash(from.Name)]; !known || from.Region != n.cfg.Region {
		from.Name = ""
	}
	return n.life.TryFor(from, f)
}

// longestWait bounds how long this node works on a request, whatever its sender says:
// as long as it would wait itself, for a check or for what members ask each other.
func (n *Node) longestWait() time.Duration { return max(n.cfg.Timeout, topWait, locateWait) }
