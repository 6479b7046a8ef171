package view

import (
	"slices"

	"github.com/weir-go/weir/bucket"
	countsync "github.com/weir-go/weir/sync"
)

// Holds is part of countsync.Roles: this node has authority over id.
func (v *View) Holds(id bucket.ID) bool {
	if v.Settled {
		return v.Owner(id) == v.Self && v.Self >= 0
	}
	return v.held.Contains(id.Hi)
}

// Holder is part of countsync.Roles. It returns the member that has authority over id, reached or
// not.
func (v *View) Holder(id bucket.ID) countsync.Member {
	holder := v.Owner(id)
	switch {
	case v.Settled:
	case v.Self >= 0 && v.held.Contains(id.Hi):
		return v.Hashes[v.Self]
	case holder >= 0 && holder == v.Self:
		holder = v.holder(id)
	}
	if holder < 0 || v.isAbandoned(id) {
		return 0
	}
	return v.Hashes[holder]
}

// Answers is part of countsync.Roles. It returns the member that answers for id now. What comes to a
// node that has left, in a frame that was under way for long, is not for it to
// answer.
func (v *View) Answers(id bucket.ID) countsync.Member {
	if v.Self >= 0 && v.Holds(id) {
		return v.Hashes[v.Self]
	}
	to := v.Owner(id)
	if to >= 0 && to == v.Self {
		to = v.holder(id)
	}
	if !v.Reaches(to) || v.Stalls(to) {
		to = v.StandIn(id, to)
	}
	if to < 0 && v.nobodyServes() {
		to = v.Eldest()
	}
	if to < 0 {
		return 0
	}
	return v.Hashes[to]
}

// Targets is part of countsync.Roles. It appends the members that are to have the state of an id that this
// node holds, stands in for, or gives a copy of as it leaves. They are the successors (one more for each that
// is away, and is brought up to date when it comes back), the owner if that is
// another, and who is about to join and will be one of these.
func (v *View) Targets(dst []countsync.Member, id bucket.ID) []countsync.Member {
	for _, i := range v.audience(make([]int, 0, 8), id.Hi, v.Holds(id)) {
		dst = append(dst, v.Hashes[i])
	}
	if joiners := v.admitted(); len(joiners) > 0 && (v.Holds(id) || v.nobodyServes()) {
		for _, j := range joiners {
			if j.ranges.Contains(id.Hi) {
				dst = append(dst, v.Hashes[j.member])
			}
		}
	}
	return dst
}

// audience appends the members of the ring that are to have the state of an id
// with this hash from this node: the owner if it is another, and is reached or to
// be given what this node holds; the next copies in ring order that are not doubled,
// and those doubled that come before them. Where this node leaves and has given everything
// away it is none of these any more, and there is one beyond the owner.
func (v *View) audience(dst []int, hash uint64, holds bool) []int {
	var room [16]int
	all := v.copies
	if all > 0 && v.leaves() && len(v.held) == 0 {
		all++
	}
	for most := all + 2; ; most *= 2 {
		order := v.Ring.Order(room[:0], hash, most)
		members, copies := dst, all
		for k, at := range order {
			i := v.Points[at]
			if i == v.Self || k == 0 && !holds && !v.Reaches(i) || k > 0 && copies == 0 {
				continue
			}
			members = append(members, i)
			if !v.doubled[i] && copies > 0 {
				copies--
			}
		}
		if copies == 0 || len(order) < most {
			return members
		}
	}
}

// admitted is the joiners that are to have counts now. While ranges are abandoned that
// is nobody: a joiner knows of none, and would wait for the one that had them last.
func (v *View) admitted() []joiner {
	if v.HasAny(abandonedOrClaimed) && !v.nobodyServes() {
		return nil
	}
	return v.joiners
}

// Audiences is what each member is to have the states of: of all that this node
// holds or stands in for, as Targets says, and of the rest what that member stands
// in for. The member that answers for a lost owner need not have the latest copy: it may have
// been cut off from it, and this node not. So may an owner that was itself away.
func (v *View) Audiences() map[countsync.Member]countsync.Ranges {
	members := len(v.Hashes)
	held, firsts, seconds := make([][]countsync.Range, members), make([][]countsync.Range, members), make([][]countsync.Range, members)
	var room [16]int
	v.visitArcs(v.held, func(r countsync.Range, _ int) {
		for _, i := range v.audience(room[:0], r.Last, true) {
			held[i] = extend(held[i], r)
		}
	})
	v.visitArcs(v.stoodIn(), func(r countsync.Range, _ int) {
		s := v.successor(bucket.ID{Hi: r.Last})
		if s >= 0 && s != v.Self {
			firsts[s] = extend(firsts[s], r)
		}
		if s == v.Self {
			for _, i := range v.audience(room[:0], r.Last, false) {
				seconds[i] = extend(seconds[i], r)
			}
		}
	})
	audiences := make(map[countsync.Member]countsync.Ranges)
	for i, m := range v.Hashes {
		for _, rs := range [][]countsync.Range{held[i], firsts[i], seconds[i]} {
			if len(rs) > 0 {
				audiences[m] = audiences[m].Union(countsync.NewRanges(rs...))
			}
		}
	}
	left := v.held
	if v.nobodyServes() && (v.leaves() || v.Eldest() == v.Self) {
		left = countsync.All()
	}
	for _, j := range v.admitted() {
		audiences[v.Hashes[j.member]] = j.ranges.Intersect(left)
	}
	return audiences
}

// visitArcs calls visit with the part of each arc of the ring that is in ranges, and its owner.
func (v *View) visitArcs(ranges countsync.Ranges, visit func(r countsync.Range, owner int)) {
	for _, r := range ranges {
		v.Ring.ArcsIn(r.First, r.Last, func(first, last uint64, owner int) {
			visit(countsync.Range{First: first, Last: last}, v.Points[owner])
		})
	}
}

// stoodIn returns the ranges that this node does not hold and whose owner may lack counts that another
// member has: the owner is not reached or was not until just now, or a member may hold the range beyond a cut.
func (v *View) stoodIn() countsync.Ranges {
	var lost countsync.Ranges
	for _, i := range v.Points {
		if !v.Reaches(i) || v.missesSuccessors(i) {
			lost = append(lost, v.owned(i)...)
		}
	}
	return countsync.NewRanges(lost...).Union(v.Ranges(abandonedOrClaimed)).Minus(v.held)
}

// extend adds an arc to those before it. It joins arcs that touch: a ring has hundreds for
// each member, and most of them have the same audience as the next.
func extend(arcs []countsync.Range, arc countsync.Range) []countsync.Range {
	if last := len(arcs) - 1; last >= 0 && arcs[last].Last+1 == arc.First {
		arcs[last].Last = arc.Last
		return arcs
	}
	return append(arcs, arc)
}

// missesSuccessors reports whether a member was away until just now, or unknown, and somebody
// is missing or has gone who may have been given meanwhile what the ring gives to it.
func (v *View) missesSuccessors(member int) bool {
	return (v.Side < len(v.Points) || v.HasAny(abandonedOrClaimed)) &&
		slices.ContainsFunc(v.back, func(back uint64) bool { return back == 0 || back == v.Hashes[member] })
}

// Successions is what each member comes to have copies of as this node leaves: of every
// hash it is the last that is to have one.
func (v *View) Successions() map[countsync.Member]countsync.Ranges {
	arcs := make(map[int][]countsync.Range)
	var room [16]int
	v.visitArcs(countsync.All(), func(r countsync.Range, _ int) {
		if to := v.audience(room[:0], r.Last, true); len(to) > 1 { // the first is the owner
			i := to[len(to)-1]
			arcs[i] = extend(arcs[i], r)
		}
	})
	successions := make(map[countsync.Member]countsync.Ranges, len(arcs))
	for i, rs := range arcs {
		successions[v.Hashes[i]] = countsync.NewRanges(rs...)
	}
	return successions
}

// OwesAs reports whether audiences are the same in both views.
func (v *View) OwesAs(o *View) bool {
	return v.Ring == o.Ring && v.Self == o.Self && slices.Equal(v.Hashes, o.Hashes) &&
		slices.Equal(v.doubled, o.doubled) && slices.EqualFunc(v.Next, o.Next, func(a, b int) bool { return a < 0 == (b < 0) }) &&
		v.held.Equal(o.held) && v.Ranges(abandonedOrClaimed).Equal(o.Ranges(abandonedOrClaimed)) && slices.EqualFunc(v.joiners, o.joiners, func(a, b joiner) bool { return a.member == b.member && a.ranges.Equal(b.ranges) })
}

// OwedAnew is what each member is owed that it was not in the view before, and all of what
// this node waited for then and holds by now: it was another's to send, and a scan left it
// out. Members that are owed nothing yet, or again, are in it with none.
func (v *View) OwedAnew(owed map[countsync.Member]countsync.Ranges, before *View, had map[countsync.Member]countsync.Ranges) map[countsync.Member]countsync.Ranges {
	var awaited countsync.Ranges
	if before != nil {
		awaited = before.Ranges(awaitedOrVacant)
	}
	gained := v.held.Intersect(awaited)
	anew := make(map[countsync.Member]countsync.Ranges)
	for i, m := range v.Hashes {
		ranges, owes := owed[m]
		if !owes || i == v.Self {
			continue
		}
		has, met := had[m]
		if v.JoinsAgain(i, before) {
			has, met = nil, false
		}
		if more := ranges.Minus(has.Minus(gained)); len(more) > 0 || !met {
			anew[m] = more
		}
	}
	return anew
}

// Answerers returns which of these hashes each member answers for by the ring: what
// it owns, and what those own that are away and that it stands in for.
func (v *View) Answerers(hashes countsync.Ranges) map[int]countsync.Ranges {
	if len(hashes) == 0 {
		return nil
	}
	arcs := make(map[int][]countsync.Range)
	v.visitArcs(hashes, func(r countsync.Range, _ int) {
		i := v.firstReplica(r.Last)
		arcs[i] = extend(arcs[i], r)
	})
	answerers := make(map[int]countsync.Ranges, len(arcs))
	for i, rs := range arcs {
		answerers[i] = countsync.NewRanges(rs...)
	}
	return answerers
}

// firstReplica is the first member in ring order that is not away, -1 if there is none: the
// first that copies go to. The one after a member that is lost, and not away yet, need not
// have them all.
func (v *View) firstReplica(hash uint64) int {
	return v.findFirst(hash, func(i int) bool { return !v.Away[i] })
}
