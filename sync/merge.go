package countsync

import (
	"cmp"
	"slices"
)

// total is what one origin has spent of an id, and what it has given back: cumulative,
// and raised by the origin alone. Of two totals of an origin, one has therefore all
// that the other has. An origin that has forgotten its total goes on with a higher
// series, from zero.
type total struct {
	origin          Member
	series          int64
	spent, refunded int64
	changed         int64 // when it last grew, by this node's clock
}

func (t *total) net() int64 { return t.spent - t.refunded }

// later reports whether t has something that o, of the same origin, has not.
func (t *total) later(o *total) bool {
	return t.series > o.series || t.series == o.series && (t.spent > o.spent || t.refunded > o.refunded)
}

// vector is of whom the units of a copy are: totals, ascending by origin, of which each
// stands there once. Vectors are a join-semilattice.
type vector []total

func (v vector) find(origin Member) (at int, found bool) {
	return slices.BinarySearchFunc(v, origin, func(t total, m Member) int { return cmp.Compare(t.origin, m) })
}

// of is an origin's total, zero if none is known.
func (v vector) of(origin Member) total {
	if i, ok := v.find(origin); ok {
		return v[i]
	}
	return total{origin: origin}
}

// covers reports whether v has all that o has.
func (v vector) covers(o vector) bool {
	return !slices.ContainsFunc(o, func(t total) bool {
		known := v.of(t.origin)
		return t.later(&known)
	})
}

// join returns v with all that o has.
func (v vector) join(o vector) vector {
	for _, t := range o {
		i, ok := v.find(t.origin)
		switch {
		case !ok:
			v = slices.Insert(v, i, t)
		case t.series > v[i].series:
			v[i] = t
		case t.series == v[i].series:
			v[i].spent = max(v[i].spent, t.spent)
			v[i].refunded = max(v[i].refunded, t.refunded)
			v[i].changed = max(v[i].changed, t.changed)
		}
	}
	return v
}

// add returns v with units that origin has spent, or below zero given back.
func (v vector) add(origin Member, series, units, now int64) vector {
	i, ok := v.find(origin)
	if !ok {
		v = slices.Insert(v, i, total{origin: origin, series: series})
	}
	if units > 0 {
		v[i].spent += units
	} else {
		v[i].refunded -= units
	}
	v[i].changed = now
	return v
}

// beyond is the net of what v has and o has not. Totals that have recovered by their
// age count nothing, and what was given back counts nothing once it is late: time has
// given back some of it by then.
func (v vector) beyond(o vector, recovered, late func(changed int64) bool) (units int64) {
	for _, t := range v {
		known := o.of(t.origin)
		if !t.later(&known) || recovered(t.changed) {
			continue
		}
		if t.series > known.series {
			known = total{}
		}
		spent, refunded := max(0, t.spent-known.spent), max(0, t.refunded-known.refunded)
		if late(t.changed) {
			refunded = min(refunded, spent)
		}
		units += spent - refunded
	}
	return units
}

// merge says how a copy becomes the merge of itself and another that arrives: whether
// that one takes its place, and which units are then spent on top of the one that stays,
// below zero given back. The copy's vector becomes the join.
//
// Of two copies that each have what the other has not, either is a bound from above for
// both with the other's net excess on top, which is never more than the other has in
// use: the lesser bound is taken. Where one covers the other, it is exact. Of two with
// the same units, which merges in other orders can have made differ, the lesser stays.
func merge(copied, other vector, used, otherUsed int64, recovered, late func(changed int64) bool) (replaces bool, onTop int64) {
	covers, covered := copied.covers(other), other.covers(copied)
	switch {
	case covers && covered:
		return otherUsed < used, 0
	case covers:
		return false, 0
	case covered:
		return true, 0
	}
	theirs := min(other.beyond(copied, recovered, late), otherUsed)
	ours := min(copied.beyond(other, recovered, late), used)
	if otherUsed+ours < used+theirs {
		return true, ours
	}
	return false, theirs
}
