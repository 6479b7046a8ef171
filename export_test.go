package weir

import (
	"context"

	"github.com/weir-go/weir/internal/wire"
)

// ForgetPushback has this node ask for the key at its owner again, as it would if no
// denial were remembered.
func (l *Limiter) ForgetPushback(key string) {
	l.node.asker.End(l.id(key))
}

// Placed returns the units of the waiters of a key on this node that have a place, 0 while
// one of them has none.
func (l *Limiter) Placed(key string) int64 {
	var a wire.Ask
	_ = l.ask(context.Background(), key, 1, &a)
	return l.node.clients.lines.Placed(&a)
}
