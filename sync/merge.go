package countsync

import (
	"cmp"
	"slices"
)

// tally has the cumulative numbers of units of an id that an origin has spent and refunded. Only
// the origin raises them. If an origin has two tallies, the later tally therefore includes
// everything that the earlier tally has. An origin that has forgotten its tally continues with
// higher numbers than the forgotten ones, in the same series or in a higher series.
type tally struct {
	origin          Member
	series          int64
	spent, refunded int64
	expired         int64 // lower bound of the spent units that no longer count, or never did because the total began above zero
	changed         int64 // upper bound of the time at which the tally last grew, by the clock of this node
}

// isLater reports whether t has units that o, a tally of the same origin, lacks.
func (t *tally) isLater(o *tally) bool {
	return t.series > o.series || t.series == o.series && (t.spent > o.spent || t.refunded > o.refunded)
}

// vector attributes the units of a copy to their origins. It has a tally for each origin, in
// ascending order of the origins. Vectors are a join-semilattice.
type vector []tally

func (v vector) find(origin Member) (at int, found bool) {
	return slices.BinarySearchFunc(v, origin, func(t tally, m Member) int { return cmp.Compare(t.origin, m) })
}

// tallyOf returns the tally of an origin, or a zero tally if v has none.
func (v vector) tallyOf(origin Member) tally {
	if i, ok := v.find(origin); ok {
		return v[i]
	}
	return tally{origin: origin}
}

// join replaces t with the later of t and o, which have the same origin and series, and reports
// whether t grew. The time at which a tally grew is only known as an upper bound. If the tallies
// are equal, join therefore keeps the earlier time.
func (t *tally) join(o *tally) (grew bool) {
	switch {
	case o.isLater(t):
		t.spent, t.refunded, t.changed = o.spent, o.refunded, o.changed
		grew = true
	case !t.isLater(o):
		t.changed = min(t.changed, o.changed)
	}
	t.expired = max(t.expired, o.expired)
	return grew
}

// covers reports whether no tally in o is later than the tally of the same origin in v.
func (v vector) covers(o vector) bool {
	return !slices.ContainsFunc(o, func(t tally) bool {
		known := v.tallyOf(t.origin)
		return t.isLater(&known)
	})
}

// latest returns the n tallies that grew last, or v itself if v has at most n tallies.
func (v vector) latest(n int) vector {
	if len(v) <= n {
		return v
	}
	v = slices.Clone(v)
	slices.SortFunc(v, func(a, b tally) int { return cmp.Compare(b.changed, a.changed) })
	v = v[:n]
	slices.SortFunc(v, func(a, b tally) int { return cmp.Compare(a.origin, b.origin) })
	return v
}

// ages has the ages at which the units and refunds of a tally have recovered.
type ages struct {
	now         int64
	maxOfCopies bool  // bucket.Limit.MaxOfCopies
	late        int64 // age above which a refund is late: some of its units have already recovered
	recovered   int64 // age at which all spent units have recovered
}

// unitsBeyond returns the number of units in v that are not in o, less refunds. unitsBeyond
// ignores tallies that have recovered by their age. A late refund only offsets units of the same
// tally that are not in o.
func (v vector) unitsBeyond(o vector, times ages) (units int64) {
	for i := range v {
		t, known := &v[i], o.tallyOf(v[i].origin)
		age := times.now - t.changed
		if !t.isLater(&known) || age >= times.recovered {
			continue
		}
		if t.series > known.series {
			known = tally{}
		}
		spent, refunded := max(0, t.spent-max(known.spent, t.expired)), max(0, t.refunded-known.refunded)
		if age > times.late {
			refunded = min(refunded, spent)
		}
		units += spent - refunded
	}
	return units
}

// unitsOnTop returns the number of units in v that are not in o, less refunds, as they are spent on
// top of the copy with the vector o. The argument used is the number of used units of that copy, and the
// argument otherUsed is the number of used units of the copy with v.
//
// Several nodes may refund units of the same origins, so o may have more refunds than spent units.
// The surplus refunds belong to units that have not arrived in o's copy yet, and could not reduce
// that copy below zero. So o's copy has more used units than the net units of o. unitsOnTop subtracts
// the difference, up to the refunds in o, from the arriving units. The result is at most the used units of v's copy, plus the
// number of units by which the refunds that both vectors have exceed the spent units that both
// vectors have: these refunds have reduced the used units of v's copy.
//
// With MaxOfCopies, the result is at most the number of units by which v's copy has more used units.
func (o vector) unitsOnTop(v vector, used, otherUsed int64, times ages) int64 {
	units := v.unitsBeyond(o, times)
	if times.maxOfCopies {
		return min(units, max(0, otherUsed-used))
	}
	both := v.unitsBeyond(nil, times) - units
	if units > 0 {
		var refunded int64
		for i := range o {
			refunded += o[i].refunded
		}
		units -= min(units, refunded, max(0, used-o.unitsBeyond(nil, times)))
	}
	return min(units, otherUsed+max(0, -both))
}

// merge decides how to merge this node's own copy of a count with a copy that has arrived. The
// arguments copied and used are the vector and the used units of the own copy, and the arguments other and
// otherUsed are those of the arrived copy. The argument earlier reports whether the last unit of the arrived
// copy recovers before that of the own copy. If replaces is true, the arrived copy replaces the own copy.
// Otherwise the own copy stays. The caller then spends onTop units on top of the resulting copy, and joins the
// two vectors. A negative onTop is a refund.
//
// If each copy has units that are missing in the other copy, there are two upper bounds of the units
// of both: each copy, plus the net units that only the other copy has. merge chooses the lesser bound.
// If one vector covers the other vector, the result is the copy with the covering vector, and is
// exact. Two copies with equal vectors may still differ, if they were merged in different orders:
// merge chooses the copy with fewer used units. If the used units are equal, merge chooses the copy that
// recovers earlier: units that were spent on top are dated when they arrived, which can be long after
// they were spent. If both vectors are empty, merge chooses the copy with more used units.
func merge(copied, other vector, used, otherUsed int64, earlier bool, times ages) (replaces bool, onTop int64) {
	covers, covered := copied.covers(other), other.covers(copied)
	switch {
	case covers && covered:
		if len(copied) == 0 { // both vectors are empty
			return otherUsed > used, 0
		}
		return otherUsed < used || otherUsed == used && earlier, 0
	case covers:
		return false, 0
	case covered:
		return true, 0
	}
	theirs := copied.unitsOnTop(other, used, otherUsed, times)
	ours := other.unitsOnTop(copied, otherUsed, used, times)
	if otherUsed+ours < used+theirs {
		return true, ours
	}
	return false, theirs
}
