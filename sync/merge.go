package countsync

import (
	"cmp"
	"slices"
)

// tally is what one origin has spent of an id, and what it has refunded: cumulative,
// and raised by the origin alone. Of two tallies of an origin, one has therefore all
// that the other has. An origin that has forgotten its tally goes on with a higher
// series, from zero.
type tally struct {
	origin          Member
	series          int64
	spent, refunded int64
	expired         int64 // of what was spent, at least so much counts no more; or never did, as the total began above zero
	changed         int64 // when it last grew, by this node's clock, or later
}

// later reports whether t has something that o, of the same origin, has not.
func (t *tally) later(o *tally) bool {
	return t.series > o.series || t.series == o.series && (t.spent > o.spent || t.refunded > o.refunded)
}

// vector attributes the units of a copy to their origins: tallies, ascending by origin, of which each
// stands there once. Vectors are a join-semilattice.
type vector []tally

func (v vector) find(origin Member) (at int, found bool) {
	return slices.BinarySearchFunc(v, origin, func(t tally, m Member) int { return cmp.Compare(t.origin, m) })
}

// of is an origin's tally, zero if none is known.
func (v vector) of(origin Member) tally {
	if i, ok := v.find(origin); ok {
		return v[i]
	}
	return tally{origin: origin}
}

// join makes t the later one of itself and another of the same origin and series, and
// reports whether that has more. When a tally grew is known from above: of two that say
// the same, the lesser time is nearer.
func (t *tally) join(o *tally) (grew bool) {
	switch {
	case o.later(t):
		t.spent, t.refunded, t.changed = o.spent, o.refunded, o.changed
		grew = true
	case !t.later(o):
		t.changed = min(t.changed, o.changed)
	}
	t.expired = max(t.expired, o.expired)
	return grew
}

// covers reports whether v has all that o has.
func (v vector) covers(o vector) bool {
	return !slices.ContainsFunc(o, func(t tally) bool {
		known := v.of(t.origin)
		return t.later(&known)
	})
}

// latest is the n tallies that grew last, v itself if it has no more.
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

// ages say what time has done to a tally since it grew.
type ages struct {
	now       int64
	late      int64 // older than this, a refund is late: some of its units have recovered already
	recovered int64 // this old, all that was spent has recovered
}

// beyond is the net of what v has and o has not. Tallies that have recovered by their
// age count nothing, and neither does a refund once it is late.
func (v vector) beyond(o vector, by ages) (units int64) {
	for i := range v {
		t, known := &v[i], o.of(v[i].origin)
		age := by.now - t.changed
		if !t.later(&known) || age >= by.recovered {
			continue
		}
		if t.series > known.series {
			known = tally{}
		}
		spent, refunded := max(0, t.spent-max(known.spent, t.expired)), max(0, t.refunded-known.refunded)
		if age > by.late {
			refunded = min(refunded, spent)
		}
		units += spent - refunded
	}
	return units
}

// onTop is the net of what v has and o has not, as a copy of o's units takes it on top:
// used is what is used of that copy, and there of v's.
//
// More may have been refunded at several places, of units that all of these knew, than
// there were: they were others', of which the rest has yet to come. So what is used of o's
// copy beyond the net of all that o knows could not be refunded there, and is taken off
// that rest. And what both know to be refunded beyond what was spent has made what is
// used of v's copy less: the net is never more than both together.
func (o vector) onTop(v vector, used, there int64, by ages) int64 {
	units := v.beyond(o, by)
	both := v.beyond(nil, by) - units
	if units > 0 {
		var refunded int64
		for i := range o {
			refunded += o[i].refunded
		}
		units -= min(units, refunded, max(0, used-o.beyond(nil, by)))
	}
	return min(units, there+max(0, -both))
}

// merge says how a copy becomes the merge of itself and another that arrives: whether
// that one takes its place, and which units are then spent on top of the one that stays,
// below zero refunded. The copy's vector becomes the join.
//
// Of two copies that each have what the other has not, either is a bound from above for
// both with the other's net excess on top: the lesser bound is taken. Where one covers the
// other, it is exact. Of two with the same units, which merges in other orders can have
// made differ, the lesser stays.
func merge(copied, other vector, used, otherUsed int64, by ages) (replaces bool, onTop int64) {
	covers, covered := copied.covers(other), other.covers(copied)
	switch {
	case covers && covered:
		if len(copied) == 0 { // nothing is known of either
			return otherUsed > used, 0
		}
		return otherUsed < used, 0
	case covers:
		return false, 0
	case covered:
		return true, 0
	}
	theirs := copied.onTop(other, used, otherUsed, by)
	ours := other.onTop(copied, otherUsed, used, by)
	if otherUsed+ours < used+theirs {
		return true, ours
	}
	return false, theirs
}
