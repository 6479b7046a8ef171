package weir

import "math"

// Ring is the part of all keys that the ring gives to each member, by its name:
// above 0, with a sum of 1. Who owns nothing is left out: a member that joins, or
// leaves. It costs some 10 µs for each member.
func (n *Node) Ring() map[string]float64 {
	r := n.view.Load().ring
	parts := make(map[string]float64, len(r.Members()))
	r.Arcs(func(first, last uint64) {
		parts[r.Members()[r.Owner(last)]] += (float64(last-first) + 1) / math.Exp2(64)
	})
	return parts
}
