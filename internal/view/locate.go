package view

import (
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
	countsync "github.com/weir-go/weir/sync"
)

// movingFor is how long a member says of what it has given that it has it: longer
// than a round takes, so that authority on its way between two members is not
// missed at both.
const movingFor = 3 * time.Second

// Location is what one member has said.
type Location struct {
	Member  countsync.Member
	Has     countsync.Ranges
	Unclear bool // see View.Unclear
}

// Awaited returns the ranges that this node owns and waits for, or claims.
func (v *View) Awaited() (ranges countsync.Ranges) {
	if v.Settled {
		return nil
	}
	for _, w := range v.Waits {
		ranges = ranges.Union(w.Ranges.Intersect(v.Want))
	}
	return ranges.Union(v.Claims)
}

// Givers are the members that this node waits for, sorted.
func (v *View) Givers() (names []string) {
	for _, w := range v.Waits {
		if w.From != "" && len(w.Ranges.Intersect(v.Want)) > 0 {
			names = append(names, w.From)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// AnswersLocate reports whether one of Members has a say in who has what: a joiner has
// nothing, nor does a member that nobody has heard for a second. While one of these is
// missing from the ring, its absence makes all unclear.
func (v *View) AnswersLocate(i int) bool {
	return i != v.Self && v.Members[i].Announced != cluster.Joining && !v.Away[i]
}

// Grants reports whether the ring gives these ranges to a member, as that one's does.
func (v *View) Grants(member countsync.Member, ranges countsync.Ranges) bool {
	i, known := v.Named[member]
	return known && slices.Contains(v.Points, i) && len(ranges.Minus(v.owned(i))) == 0
}

// Has is what of these ranges this node holds, is giving away or gave just now. giving
// reports whether a member has yet to take what it was given.
func (v *View) Has(ranges countsync.Ranges, now int64, giving func(to countsync.Member) bool) countsync.Ranges {
	var has countsync.Ranges
	if !v.Yields() {
		has = v.Held
	}
	for _, w := range v.Gave {
		if now < w.Until-int64(Patience-movingFor) || giving(NameHash(w.From)) {
			has = has.Union(w.Ranges)
		}
	}
	return has.Intersect(ranges)
}

// Unclear reports whether a range that this node does not have may be held by a member that it does
// not hear, or did not hear until just now.
func (v *View) Unclear(now int64) bool { return v.scattered(now) }

// Unclaimed returns the view in which this node does not take ranges at the end of the HoldDown,
// because they belong to another member.
func (v *View) Unclaimed(ranges countsync.Ranges) *View {
	next, changed := *v, false
	next.Waits, next.Recalls = nil, false
	for _, w := range v.Waits {
		if w.From == "" && len(w.Ranges.Intersect(ranges)) > 0 {
			w.Ranges, changed = w.Ranges.Minus(ranges), true
		}
		if len(w.Ranges) > 0 {
			next.Waits = append(next.Waits, w)
		}
	}
	if !changed {
		return v
	}
	return &next
}

// Told is the view that follows from what members have said of ranges; v itself if
// nothing does.
func (v *View) Told(said []*Location, ranges countsync.Ranges, now int64) *View {
	of := make(map[countsync.Member]*Location, len(said))
	nowhere, unclear := ranges.Intersect(v.Awaited()), v.scattered(now)
	for _, l := range said {
		of[l.Member] = l
		nowhere = nowhere.Minus(l.Has)
		unclear = unclear || l.Unclear
	}
	for i, m := range v.Hashes {
		if v.AnswersLocate(i) && of[m] == nil {
			nowhere = nil // it may have what the others have not
		}
	}
	claimed := v.Claims
	for _, w := range v.Waits {
		if w.From == "" {
			nowhere, claimed = nowhere.Minus(w.Ranges), claimed.Minus(w.Ranges) // that is known
		}
	}
	if unclear { // the owner stands in, and asks again
		nowhere = nowhere.Minus(v.Abandoned)
	}
	next, changed := *v, len(nowhere) > 0
	next.Waits, next.Recalls = nil, len(nowhere) > 0
	for n, w := range append(slices.Clone(v.Waits), Wait{Ranges: claimed}) {
		w.Ranges = w.Ranges.Minus(nowhere)
		elsewhere := w.Ranges.Intersect(v.Want)
		if l := of[NameHash(w.From)]; l != nil {
			elsewhere = elsewhere.Minus(l.Has)
		}
		for _, l := range said {
			i, known := v.Named[l.Member]
			part := elsewhere.Intersect(l.Has)
			if !known || len(part) == 0 {
				continue
			}
			next.Waits = append(next.Waits, Wait{Ranges: part, From: v.Members[i].Name, Until: Forever})
			next.Abandoned, next.Claims = next.Abandoned.Minus(part), next.Claims.Minus(part)
			w.Ranges, elsewhere, changed = w.Ranges.Minus(part), elsewhere.Minus(part), true
		}
		if len(w.Ranges) > 0 && n < len(v.Waits) {
			next.Waits = append(next.Waits, w)
		}
	}
	switch {
	case !changed:
		return v
	case unclear:
		next.Abandoned = next.Abandoned.Union(nowhere)
		if !v.scattered(now) {
			next.Claims = next.Claims.Union(nowhere)
		}
	case len(nowhere) > 0:
		next.Waits = append(next.Waits, Wait{Ranges: nowhere, Until: now + int64(HoldDown)})
	}
	next.Gave = nil
	for _, w := range v.Gave {
		if w.Ranges = w.Ranges.Minus(nowhere); len(w.Ranges) > 0 {
			next.Gave = append(next.Gave, w)
		}
	}
	return &next
}
