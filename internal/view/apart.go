package view

import (
	"cmp"
	"slices"

	"github.com/weir-go/weir/cluster"
)

// MeetsApart reports whether this node, or those that it is with, began apart from
// others whom it meets in the next view. They may have counts of what it took for
// its own. Of two that each are several, those began apart whose eldest is the later.
func (v *View) MeetsApart(next *View) bool {
	if v == nil || len(v.Points) == 0 || !v.Serves() || next.Self < 0 {
		return false
	}
	return v.beganAlone && v.hasApart(next) || slices.ContainsFunc(next.Points, func(i int) bool {
		m := &next.Members[i]
		return v.isApart(m) && !slices.ContainsFunc(v.Points, func(j int) bool { return !elder(m, &v.Members[j]) })
	})
}

// elder reports whether a member began a ring before another. A member that was taken off the roster has
// joined one since, and however long it has run, is younger than whom it joined.
func elder(m, o *cluster.Member) bool {
	return cmp.Or(cmp.Compare(m.Epoch, o.Epoch), m.Born.Compare(o.Born)) < 0
}

// hasApart reports whether members of the next view's ring have not joined this one.
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

// onlyJoinedBy reports whether all others are reached and about to have points. A joiner holds
// nothing, so that of what happened while others were missing, which are gone since, nobody
// knows more than this node.
func (v *View) onlyJoinedBy() bool {
	for i, m := range v.Members {
		if i != v.Self && (m.Announced != cluster.Joining || v.Next[i] < 0) {
			return false
		}
	}
	return true
}
