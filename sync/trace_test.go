package countsync

import (
	"flag"
	"fmt"
)

var traces = flag.Bool("messages", false, "have a world that fails say what every node had and said")

// trace says what every node has: its count (! if it holds it), its tallies, and
// what it has queued (>) and in flight (>>).
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
			for i := n.stream.ledger.of(id); i != none; i = n.stream.ledger.at(i).next {
				t := *n.stream.ledger.at(i)
				s += fmt.Sprintf(" [%d +%d-%d u%d]", t.origin, t.spent, t.refunded, t.unrecovered)
			}
			for _, o := range n.stream.outbounds {
				for it := range o.queue.all() {
					if it.id == id {
						s += fmt.Sprintf(" >%d:k%d,%d", o.to, it.kind, min(it.units, 999))
					}
				}
				for _, it := range o.flight.items {
					if it.id == id {
						s += fmt.Sprintf(" >>%d:k%d,%d", o.to, it.kind, min(it.units, 999))
					}
				}
				for _, it := range o.flight.riders {
					if it.item.id == id {
						s += fmt.Sprintf(" >>>%d:k%d,%d", o.to, it.item.kind, min(it.item.units, 999))
					}
				}
			}
		}
	}
	w.logf("%s", s)
}
