package weir

import "math"

// Ring is the part of all keys that the ring gives to each member, by its name:
// above 0, with a sum of 1. A node that owns nothing is left out: a member that joins, or
// leaves. It costs some 10 µs for each member.
func (n *Node) Ring() map[string]float64 {
	r := n.handover.View().Ring
	type part struct{ hashes, arcs uint64 } // hashes without the last of each arc: all of them would not fit
	parts := make([]part, len(r.Members()))
	r.Arcs(func(first, last uint64) {
		p := &parts[r.Owner(last)]
		p.hashes += last - first
		p.arcs++
	})
	shares := make(map[string]float64, len(parts))
	for i, p := range parts {
		shares[r.Members()[i]] = (float64(p.hashes) + float64(p.arcs)) / math.Exp2(64)
	}
	return shares
}
