package countsync

import (
	"flag"
	"fmt"
)

var traces = flag.Bool("messages", false, "have a world that fails say what every node had and said")

// trace logs the count of each node (with ! if the node holds it), its vector, and its items that
// are queued (>) or in flight (>>).
func (w *world) trace(format string, args ...any) {
	if !*traces {
		return
	}
	s := fmt.Sprintf(format, args...)
	for _, n := range w.nodes {
		for _, id := range w.ids {
			s += fmt.Sprintf(" | %d:%d", n.name, w.used(n, id))
			if n.holds[id] {
				s += "!"
			}
			for _, t := range n.stream.vector(nil, id, w.now) {
				s += fmt.Sprintf(" [%d +%d-%d]", t.origin, t.spent, t.refunded)
			}
			for _, o := range n.stream.outbounds {
				for it := range o.queue.waitingItems() {
					if it.id == id {
						s += fmt.Sprintf(" >%d:k%d", o.to, it.kind)
					}
				}
				for _, it := range o.flight.items {
					if it.id == id {
						s += fmt.Sprintf(" >>%d:k%d", o.to, it.kind)
					}
				}
			}
		}
	}
	w.logf("%s", s)
}
