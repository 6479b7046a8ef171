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

// Holder is part of countsync.Roles. The result is the member that has authority over id, even if
// that member is not reached, and 0 if no member is known to have authority.
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

// Answers is part of countsync.Roles. The result is the member that answers for id at present, or 0
// if there is none. Once this node has left, the result is never this node. Answers may still be
// called then, because a delayed frame may arrive.
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
	if to < 0 && v.noMemberServes() {
		to = v.Eldest()
	}
	if to < 0 {
		return 0
	}
	return v.Hashes[to]
}

// Targets is part of countsync.Roles. It appends the members to which this node sends the state
// of an id: the successors, the owner if another member is the owner, and joiners that will be
// owner or successor. This node holds the id, stands in for its owner, or leaves and sends its
// replica a last time. If a successor is doubled (see doubleAfter), one more member is a target.
// The doubled successor remains a target, and receives the missing changes later.
func (v *View) Targets(dst []countsync.Member, id bucket.ID) []countsync.Member {
	for _, i := range v.audience(make([]int, 0, 8), id.Hi, v.Holds(id)) {
		dst = append(dst, v.Hashes[i])
	}
	if joiners := v.admittedJoiners(); len(joiners) > 0 && (v.Holds(id) || v.noMemberServes()) {
		for _, j := range joiners {
			if j.ranges.Contains(id.Hi) {
				dst = append(dst, v.Hashes[j.member])
			}
		}
	}
	return dst
}

// audience appends the members of the ring that receive the state of an id with this hash from this
// node. The argument holds states whether this node has authority over the id. The first member is
// the owner, if the owner is another member that is reached, or that will receive the ranges of
// this node. The next members in ring order follow, until the number of members, with the owner, is
// the number of copies. Doubled members are appended as well, but do not count towards this number.
// If this node leaves and has given all ranges away, it is no longer a replica, so one more member
// is appended.
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

// admittedJoiners returns the joiners that receive counts now. There are none while ranges are abandoned,
// unless no member serves: a joiner does not know of abandoned ranges, and would wait for the last holder.
func (v *View) admittedJoiners() []joiner {
	if v.HasAny(abandonedOrClaimed) && !v.noMemberServes() {
		return nil
	}
	return v.joiners
}

// Audiences returns, for each member, the ranges whose counts the member receives: a part of the
// ranges that this node holds or stands in for, as in Targets, and all other ranges that the member
// stands in for. The member that answers for a lost owner may not have the latest copy: it may have
// been disconnected from the owner while this node was not. The same is true of an owner that was
// away.
func (v *View) Audiences() map[countsync.Member]countsync.Ranges {
	members := len(v.Hashes)
	held, firsts, seconds := make([][]countsync.Range, members), make([][]countsync.Range, members), make([][]countsync.Range, members)
	var room [16]int
	v.visitArcs(v.held, func(r countsync.Range, _ int) {
		for _, i := range v.audience(room[:0], r.Last, true) {
			held[i] = extend(held[i], r)
		}
	})
	v.visitArcs(v.stoodInRanges(), func(r countsync.Range, _ int) {
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
	if v.noMemberServes() && (v.leaves() || v.Eldest() == v.Self) {
		left = countsync.All()
	}
	for _, j := range v.admittedJoiners() {
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

// stoodInRanges returns the ranges that this node does not hold and whose owner may lack counts that
// another member has: the owner is not reached or was not until just now, or a member beyond a cut
// may hold the range.
func (v *View) stoodInRanges() countsync.Ranges {
	var lost countsync.Ranges
	for _, i := range v.Points {
		if !v.Reaches(i) || v.missesSuccessors(i) {
			lost = append(lost, v.ownedBy(i)...)
		}
	}
	return countsync.NewRanges(lost...).Union(v.Ranges(abandonedOrClaimed)).Minus(v.held)
}

// extend appends an arc, or joins it to the last arc if they touch. A ring has hundreds of arcs for
// each member. In a small cluster, many of them have the same audience as the next arc.
func extend(arcs []countsync.Range, arc countsync.Range) []countsync.Range {
	if last := len(arcs) - 1; last >= 0 && arcs[last].Last+1 == arc.First {
		arcs[last].Last = arc.Last
		return arcs
	}
	return append(arcs, arc)
}

// missesSuccessors reports whether the given member was away or unknown until just now, and
// another member, which is missing or gone, may meanwhile have received ranges that the ring
// assigns to the given member.
func (v *View) missesSuccessors(member int) bool {
	return (v.Side < len(v.Points) || v.HasAny(abandonedOrClaimed)) &&
		slices.ContainsFunc(v.back, func(back uint64) bool { return back == 0 || back == v.Hashes[member] })
}

// Successions returns the ranges of which each member becomes a replica when this node leaves. The
// new replica of a hash is the last member of its audience. If this node is not a replica of a
// hash, that member already is a replica.
func (v *View) Successions() map[countsync.Member]countsync.Ranges {
	arcs := make(map[int][]countsync.Range)
	var room [16]int
	v.visitArcs(countsync.All(), func(r countsync.Range, _ int) {
		if to := v.audience(room[:0], r.Last, true); len(to) > 1 { // to[0] is the owner
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

// OwesAs reports true only if Audiences returns the same result for v and o.
func (v *View) OwesAs(o *View) bool {
	return v.Ring == o.Ring && v.Self == o.Self && v.leaves() == o.leaves() && slices.Equal(v.Hashes, o.Hashes) &&
		slices.Equal(v.doubled, o.doubled) && slices.Equal(v.back, o.back) && slices.EqualFunc(v.Next, o.Next, func(a, b int) bool { return a < 0 == (b < 0) }) &&
		v.held.Equal(o.held) && v.Ranges(abandonedOrClaimed).Equal(o.Ranges(abandonedOrClaimed)) && slices.EqualFunc(v.joiners, o.joiners, func(a, b joiner) bool { return a.member == b.member && a.ranges.Equal(b.ranges) })
}

// OwedAnew returns, for each member of the map owed, the owed ranges that the map had does not
// contain: had contains the ranges that were owed in the previous view. The result also includes
// ranges that this node awaited then and holds now: another member was to send them, so a scan left
// them out. A member that is not in had, or that joins again, has an entry even if no ranges are
// new.
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

// Answerers returns the hashes of the given ranges that each member answers for by the ring: the
// ranges that the member owns, and the ranges of away members that the member stands in for.
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

// firstReplica returns the first member in ring order that is not away, -1 if there is none. This
// member is the first to receive copies. The next member after a lost member may not have all
// copies while the lost member is not away yet.
func (v *View) firstReplica(hash uint64) int {
	return v.findFirst(hash, func(i int) bool { return !v.Away[i] })
}
