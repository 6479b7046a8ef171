package ring

import (
	"maps"
	"math"
	"slices"
)

// Arcs calls visit for each arc between two points. An arc contains the hashes from first to last,
// inclusive. Order returns the same members for all of these hashes, and the argument owner is the index
// of the first member. The arcs cover all hashes, in ascending order. If the ring has no members, visit is
// not called.
func (r *Ring) Arcs(visit func(first, last uint64, owner int)) { r.ArcsIn(0, math.MaxUint64, visit) }

// ArcsIn is like Arcs, but covers only the hashes from first to last.
func (r *Ring) ArcsIn(first, last uint64, visit func(first, last uint64, owner int)) {
	if len(r.pages) == 0 {
		return
	}
	begin := first
	for at := r.search(first); ; at = r.nextPosition(at) {
		p := r.point(at)
		if first > begin && p.hash == first-1 {
			continue // the points after the first with the same hash own no hashes
		}
		if p.hash < first || p.hash >= last { // the arc of the first point begins after the last point
			visit(first, last, int(r.index[p.slot]))
			return
		}
		visit(first, p.hash, int(r.index[p.slot]))
		first = p.hash + 1
	}
}

// ArcsOf calls visit for each arc of a member of the ring, in any order.
func (r *Ring) ArcsOf(member string, visit func(first, last uint64)) {
	if _, known := slices.BinarySearch(r.members, member); !known {
		return
	}
	for _, hash := range pointsOf(member) {
		at := r.search(hash)
		if p := r.point(at); r.nameOf(p) == member {
			visitAfter(r.point(r.previousPosition(at)).hash, hash, visit)
		}
	}
}

// ArcsWith calls visit for the hashes of which a new member would be the owner or a
// successor: after the member has joined, Order returns the member among the first n. The
// arcs may overlap, and come in any order. The member must not be in the ring.
func (r *Ring) ArcsWith(member string, n int, visit func(first, last uint64)) {
	if len(r.members) < n {
		visit(0, math.MaxUint64)
		return
	}
	if n <= 0 {
		return
	}
	var before []int32
	for _, hash := range pointsOf(member) {
		page := int(hash >> r.shift)
		at := position{page, r.place(r.pages[page].points, hash, member)}
		for before = before[:0]; len(before) < n; {
			at = r.previousPosition(at)
			if slot := r.point(at).slot; !slices.Contains(before, slot) {
				before = append(before, slot)
			}
		}
		visitAfter(r.point(at).hash, hash, visit)
	}
}

// visitAfter calls visit with the hashes after point, up to and including last. It calls visit twice if
// this range wraps around at the greatest hash, and does not call visit if point equals last.
func visitAfter(point, last uint64, visit func(first, last uint64)) {
	switch {
	case point < last:
		visit(point+1, last)
	case point > last:
		if point < math.MaxUint64 {
			visit(point+1, math.MaxUint64)
		}
		visit(0, last)
	}
}

// Parts returns the part of all hashes that each member owns, by name. Each part is above 0, and the sum
// is 1. The first call takes about 10 µs per member, and later calls return copies of its result.
func (r *Ring) Parts() map[string]float64 {
	r.once.Do(func() { r.parts = r.computeParts() })
	return maps.Clone(r.parts)
}

func (r *Ring) computeParts() map[string]float64 {
	type part struct{ hashes, arcs uint64 } // hashes does not count the last hash of each arc, because 2^64 would not fit
	owned := make([]part, len(r.members))
	r.Arcs(func(first, last uint64, owner int) {
		p := &owned[owner]
		p.hashes += last - first
		p.arcs++
	})
	parts := make(map[string]float64, len(owned))
	for i, p := range owned {
		parts[r.members[i]] = (float64(p.hashes) + float64(p.arcs)) / math.Exp2(64)
	}
	return parts
}
