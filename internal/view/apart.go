package view

import (
	"cmp"
	"slices"

	"github.com/weir-go/weir/cluster"
)

// MeetsApart reports whether the next view has members of another ring, and the ring of this node
// gives way to that ring. Comments call this "began apart". The rings began without each other, so
// both may have counts of the same ranges, and the members of a ring that gives way give up their
// ranges (abandonRange). A ring gives way if only one node has ever had points in it, or if a member
// of the other ring is elder than each of its members.
func (v *View) MeetsApart(next *View) bool {
	if v == nil || len(v.Points) == 0 || !v.Serves() || next.Self < 0 {
		return false
	}
	return v.beganAlone && v.hasApart(next) || slices.ContainsFunc(next.Points, func(i int) bool {
		m := &next.Members[i]
		return v.isApart(m) && !slices.ContainsFunc(v.Points, func(j int) bool { return !elder(m, &v.Members[j]) })
	})
}

// elder reports whether m began a ring before o did. A member that was removed from the roster has
// joined a ring since then. Such a member is younger than the members of that ring, however long
// the member has run.
func elder(m, o *cluster.Member) bool {
	return cmp.Or(cmp.Compare(m.Epoch, o.Epoch), m.Born.Compare(o.Born)) < 0
}

// hasApart reports whether some members of the ring of the next view have not joined the ring of this
// view.
func (v *View) hasApart(next *View) bool {
	return slices.ContainsFunc(next.Points, func(i int) bool { return v.isApart(&next.Members[i]) })
}

func (v *View) isApart(m *cluster.Member) bool {
	i, known := v.Named[NameHash(m.Name)]
	if !known {
		return true
	}
	_, hasPoints := slices.BinarySearch(v.Points, i)
	return !hasPoints && v.Members[i].Announced == cluster.Serving
}

// onlyJoinedBy reports whether all other members are reached and about to have points. A joiner
// has no authority: if it holds ranges, because it was removed from the roster while alive, other
// members have authority over them. So if members were missing before and are gone now, this node
// knows as much as any other member about the events meanwhile.
func (v *View) onlyJoinedBy() bool {
	for i, m := range v.Members {
		if i != v.Self && (m.Announced != cluster.Joining || v.Next[i] < 0) {
			return false
		}
	}
	return true
}
