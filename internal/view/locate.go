package view

import (
	"slices"
	"time"

	"github.com/weir-go/weir/cluster"
	countsync "github.com/weir-go/weir/sync"
)

// movingFor is the time for which a member still reports a range as its own after it has
// transferred the range. A round of requests takes less time, so at least one of the two members
// reports a range whose authority is in transit between them.
const movingFor = 3 * time.Second

// Location is the response of a member to a request to locate ranges.
type Location struct {
	Member  countsync.Member
	Has     countsync.Ranges
	Unclear bool // see View.IsUnclear
}

// RangesToLocate returns the ranges that this node owns and waits for, or claims.
func (v *View) RangesToLocate() countsync.Ranges {
	if v.Settled {
		return nil
	}
	return v.Ranges(awaitedOrVacant | Claimed).Intersect(v.Assigned)
}

// Givers returns the members from which this node awaits ranges that it owns, sorted.
func (v *View) Givers() (names []string) {
	for _, e := range v.entries {
		if e.State == Awaited && len(v.Assigned.Intersect(countsync.Ranges{e.Range})) > 0 {
			names = append(names, e.Member)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// AnswersLocate reports whether this node needs the answer of Members[i] about ranges. A joiner
// holds no ranges, and a member that is away cannot be asked.
func (v *View) AnswersLocate(i int) bool {
	return i != v.Self && v.Members[i].Announced != cluster.Joining && !v.Away[i]
}

// AssignsRanges reports whether the ring of this node assigns these ranges to a member, like the ring of
// that member.
func (v *View) AssignsRanges(member countsync.Member, ranges countsync.Ranges) bool {
	i, known := v.Named[member]
	return known && slices.Contains(v.Points, i) && len(ranges.Minus(v.ownedBy(i))) == 0
}

// LocalRanges returns the part of the ranges that this node holds or has transferred lately: within
// movingFor, or to a member that has not received the transfer yet. The function giving reports
// whether a transfer to a member is still under way. If this node Yields, the ranges that it holds
// are not included.
func (v *View) LocalRanges(ranges countsync.Ranges, now int64, giving func(to countsync.Member) bool) countsync.Ranges {
	var has []countsync.Range
	if !v.Yields() {
		has = slices.Clone(v.held)
	}
	for _, e := range v.entries {
		if e.State == Transferred && (now < e.Until-int64(Patience-movingFor) || giving(NameHash(e.Member))) {
			has = append(has, e.Range)
		}
	}
	return countsync.NewRanges(has...).Intersect(ranges)
}

// IsUnclear reports whether a range that this node does not have may be held by a member that this
// node does not reach, or did not reach until just now.
func (v *View) IsUnclear(now int64) bool { return v.isScattered(now) }

// ReleaseVacant returns the view in which the given ranges are not Vacant, so that this node does
// not take them, because another member owns them. If no part of the ranges is Vacant,
// ReleaseVacant returns v.
func (v *View) ReleaseVacant(ranges countsync.Ranges) *View {
	if len(v.Ranges(Vacant).Intersect(ranges)) == 0 {
		return v
	}
	return v.restateIn(ranges, func(dst, before []Entry) []Entry { return pick(dst, before, ^Vacant) })
}

// ApplyLocations returns the view after members have answered which of the ranges they have. It
// returns v if the answers change no entry. A range that a member has is Awaited from that member.
// If all members that can answer have answered, and no member has one of the given ranges, the range
// gets one of three states. The range is Abandoned if this node misses members, or did so until just
// now. Otherwise the range is Claimed if an answering member misses members, or did so until just now:
// then this node asks again. Otherwise the range is Vacant. An Abandoned or Claimed range becomes
// Vacant or stays as it is. The owner of an Abandoned or Claimed range stands in.
func (v *View) ApplyLocations(locations []*Location, ranges countsync.Ranges, now int64) *View {
	of := make(map[countsync.Member]*Location, len(locations))
	unclear, cuts := v.isScattered(now), append(cutsOf(ranges), cutsOf(v.Assigned)...)
	for _, l := range locations {
		of[l.Member] = l
		unclear = unclear || l.Unclear
		cuts = append(cuts, cutsOf(l.Has)...)
	}
	complete := true
	for i, m := range v.Hashes {
		complete = complete && (of[m] != nil || !v.AnswersLocate(i)) // a member that has not answered may have a range that no other member has
	}
	next, changed, recalls := *v, false, false
	next.authority = v.restate(cuts, v.Assigned, func(dst []Entry, hash uint64, before []Entry) []Entry {
		has := func(l *Location) bool { return l.Has.Contains(hash) }
		wait := find(before, awaitedOrVacant)
		giver := of[NameHash(wait.Member)]
		holder := slices.IndexFunc(locations, func(l *Location) bool { _, known := v.Named[l.Member]; return known && has(l) })
		switch {
		case find(before, awaitedOrVacant|Claimed).State == 0 || !v.Assigned.Contains(hash) || giver != nil && has(giver):
			return append(dst, before...)
		case holder >= 0:
			changed = true
			dst = append(dst, Entry{State: Awaited, Member: v.Members[v.Named[locations[holder].Member]].Name, Until: Forever})
			return pick(dst, before, Transferred)
		case !complete || !ranges.Contains(hash) || slices.ContainsFunc(locations, has) || wait.State == Vacant || unclear && find(before, abandonedOrClaimed).State != 0:
			return append(dst, before...)
		}
		changed, recalls = true, true
		switch {
		case !unclear:
			return pick(append(dst, Entry{State: Vacant, Until: now + int64(HoldDown)}), before, abandonedOrClaimed)
		case v.isScattered(now):
			return append(dst, Entry{State: Abandoned})
		}
		return append(dst, Entry{State: Claimed})
	})
	if !changed {
		return v
	}
	next.Recalls = recalls
	return &next
}
