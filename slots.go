package weir

import (
	"context"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/view"
)

const (
	// maxApart bounds what a node does in the background for others at once. The rest of
	// maxBackground is for its own errands.
	maxApart = maxBackground * 7 / 8
	// maxApartOfOne is the part of one sender. It is a quarter of maxBackground, so that
	// a sender that waits for a member that never answers leaves the others most of it.
	maxApartOfOne = maxBackground / 4
)

// sender is the node that a batch of requests came from.
type sender struct{ region, name string }

// slots counts what this node does in the background for others. Each member of the
// roster has a part of it. So has each other region, and so have all senders together
// that are not in the roster, since a sender can choose the name that it gives.
type slots struct {
	mu  sync.Mutex
	of  map[sender]int
	all int
}

// acquire takes a slot. It reports false if the sender has its part, or all are taken.
func (s *slots) acquire(of sender) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxApart || s.of[of] >= maxApartOfOne {
		return false
	}
	if s.of == nil {
		s.of = make(map[sender]int)
	}
	s.of[of]++
	s.all++
	return true
}

func (s *slots) release(of sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[of]--; s.of[of] == 0 {
		delete(s.of, of)
	}
}

// serveApart runs f in a goroutine that Close ends, on behalf of a sender. It reports
// false if too much goes on for that one, or in all.
func (n *Node) serveApart(from sender, f func(context.Context)) bool {
	if _, known := n.view.Load().Named[view.NameHash(from.name)]; !known || from.region != n.cfg.Region {
		from.name = ""
	}
	if !n.apart.acquire(from) {
		return false
	}
	started := n.background(func(ctx context.Context) {
		defer n.apart.release(from)
		f(ctx)
	})
	if !started {
		n.apart.release(from)
	}
	return started
}

// longestWait bounds how long this node works on a request, whatever its sender says:
// as long as it would wait itself, for a check or for what members ask each other.
func (n *Node) longestWait() time.Duration { return max(n.cfg.Timeout, topWait, locateWait) }
