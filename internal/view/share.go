package view

import (
	"math/bits"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
	"github.com/weir-go/weir/ring"
)

// OutageRetry is the time until a client should ask again during an outage, and the RetryAfter of a
// FailClosed denial. When a lost member comes back, this node connects to it within about this time.
const OutageRetry = time.Second

// Share is the part of a whole limit that some members of a roster have. If All is set, the share is
// the whole.
type Share struct {
	All     bool
	members int // number of members that have the share
	total   int // number of members that divide the whole: all with points, or those on this side (see View.vacated), or Expect if that is more
	// places contains the places of the members in ring order from the id, with the owner at place
	// 0. A member has a unit of the remainder, whole mod total, if the place of the member is below
	// the remainder. If places is nil, the share is rounded down.
	places []int
	// unknown is the number of members of Expect that this node does not know. The first units of the
	// remainder are theirs.
	unknown int
}

// unitsOf returns the units of the share, if the whole limit has as many units as the argument whole.
func (s Share) unitsOf(whole int64) int64 {
	switch {
	case s.All:
		return whole
	case s.members == 0: // the roster may be empty
		return 0
	}
	if s.places == nil {
		return scaled(whole, s.members, s.total)
	}
	each, left := whole/int64(s.total), whole%int64(s.total)-int64(s.unknown)
	units := each * int64(s.members)
	for _, place := range s.places {
		if int64(place) < left {
			units++
		}
	}
	return units
}

func scaled(whole int64, n, total int) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(n))
	q, _ := bits.Div64(hi, lo, uint64(total))
	return int64(q)
}

// Limit returns the share of a limit: of its Rate, and of the Burst of a bucket. The Keep of the share
// is chosen so that the usable units of the share are the share of the usable units of the limit. So
// all bounds apply to the usable units as to a limit of their own.
func (s Share) Limit(whole *bucket.Limit) bucket.Limit {
	l := *whole
	l.Whole = whole.Capacity()
	if whole.Keep > 0 {
		l.Keep = s.unitsOf(whole.Capacity()) - s.unitsOf(whole.Usable())
	}
	if whole.IsBucket() {
		l.Burst = s.unitsOf(whole.Capacity())
		if l.Burst == 0 || s.unitsOf(l.Rate) == 0 {
			// A Burst of -1 is a capacity of zero units; a Burst of 0 would stand for Rate. The
			// share is also empty if it has no part of the Rate, because units spent from it would
			// never recover. Units that are already in use recover at the whole Rate.
			l.Burst = -1
			return l
		}
	}
	l.Rate = s.unitsOf(l.Rate)
	return l
}

// Standing is the capacity in which a node decides.
type Standing uint8

const (
	AsOwner   Standing = iota // the node has authority
	AsStandIn                 // the node decides for its side: the member with authority cannot be reached, or has not answered
	AsSelf                    // the node decides for itself: no stand-in has answered either
)

// Standing returns the capacity in which this node answers a request for an id.
func (v *View) Standing(id bucket.ID) Standing {
	if v.Holds(id) {
		return AsOwner
	}
	return AsStandIn
}

// Share returns the share that this node may spend of the limit of an id, and the source of the
// decision.
func (v *View) Share(as Standing, id bucket.ID, partition wire.Policy) (Share, wire.Source) {
	if as == AsSelf {
		return v.ownShare(id, partition)
	}
	s, source := v.sideShare(id, partition)
	if source == wire.Owner && as == AsStandIn {
		source = wire.StandIn
	}
	return s, source
}

// sideShare returns the share that this node may spend for its side. The share is the whole limit
// if the view is complete, with FailOpen, and with MajorityShare and FailClosed if the side has a
// majority. Otherwise FailClosed has no share. The other policies have the part of the members of
// the side, and more if all missing members have ended (see vacated).
func (v *View) sideShare(id bucket.ID, partition wire.Policy) (Share, wire.Source) {
	majority := v.HasMajority()
	switch {
	case v.Complete:
		return Share{All: true}, wire.Owner
	case partition == wire.FailOpen:
		return Share{All: true}, wire.FailedOpen
	case majority && partition != wire.FairShare:
		return Share{All: true}, wire.Owner
	case partition == wire.FailClosed:
		return Share{total: 1}, wire.FailedClosed
	case v.vacated && (v.Side >= v.Expect || 2*v.Side > v.Expect && partition != wire.FairShare):
		return Share{All: true}, wire.Owner
	}
	n := len(v.Points)
	if v.vacated {
		n = v.Side
	}
	return v.partOf(id, partition, n, v.Reaches), wire.Budget
}

// haveMissingEnded reports whether members are missing and the processes of all of them have ended.
// A missing member whose host does not answer may be alive, and may be connected to other members.
func (v *View) haveMissingEnded() bool {
	missing := false
	for j := range v.Members {
		if v.Next[j] >= 0 {
			continue
		}
		missing = true
		if v.Ended == nil || !v.Ended[j] {
			return false
		}
	}
	return missing
}

// ownShare returns the share of an id that this node may spend for itself. With FailOpen, the share is
// the whole limit. With FailClosed, it is empty. Otherwise it is the part of one member. If the
// node is a side of its own, the share is that of the side. A node without points has an empty share.
// With FairShare, the share is also empty until all members on this side know the missing members:
// until then the stand-in of an owner beyond a cut has the whole limit, and all sides together already
// have twice the limit.
func (v *View) ownShare(id bucket.ID, partition wire.Policy) (Share, wire.Source) {
	switch {
	case partition == wire.FailOpen:
		return Share{All: true}, wire.FailedOpen
	case partition == wire.FailClosed:
		return Share{total: 1}, wire.FailedClosed
	}
	lone := v.Side == 1 && v.Serves()
	if lone && v.vacated {
		s, source := v.sideShare(id, partition)
		if source == wire.Owner {
			source = wire.StandIn // the authority of this node is fenced while it is connected to no member
		}
		return s, source
	}
	if partition == wire.FairShare && !lone && !v.missingAreAway() {
		return Share{total: 1}, wire.Budget
	}
	return v.partOf(id, partition, len(v.Points), func(i int) bool { return i == v.Self }), wire.Budget
}

// missingAreAway reports whether the view is not complete, and each missing member has been missing
// for so long that all members on this side know it.
func (v *View) missingAreAway() bool {
	return !v.Complete && !slices.ContainsFunc(v.Points, func(i int) bool { return v.Next[i] < 0 && !v.Away[i] })
}

// RetryAfter returns the time until the caller should ask again. The argument after is the time that
// the count has returned. Until the missing members are known, the share of this node alone may be
// empty. Another member may answer long before a share of this node would have room.
func (v *View) RetryAfter(as Standing, source wire.Source, after time.Duration) time.Duration {
	if as == AsSelf && source == wire.Budget && !v.missingAreAway() {
		return min(after, OutageRetry)
	}
	return after
}

// HasMajority reports whether more than half of the members with points, and of Expect, are on this
// side.
func (v *View) HasMajority() bool { return 2*v.Side > max(len(v.Points), v.Expect) }

// partOf returns the share of the members for which the function member returns true. The whole is
// divided by n, or by Expect if n is less.
//
// A part of k of n members is ⌊whole·k/n⌋, whether the members spend it together or alone. Beside a
// majority, which has the whole limit, fewer than half of the members are left, so that all members
// together stay below 1.5 times the limit. The part of a member must not depend on the id: by ring
// order, the owner would get the rounding remainders of the other parts, and of a limit of one unit
// that is the whole limit.
//
// With FairShare a majority has only its part. So each member has ⌊whole/n⌋, and each of the first
// members in ring order has a unit of the remainder. The parts sum to the limit.
//
// If a member leaves while other members are missing, only some members know of this. Members that
// do not know still divide by n, on whichever side they are later. The ring order of the remaining
// members does not change, so the part of each of them for n members is at most its part for n−1
// members. All parts for n−1 members sum to the limit, so all parts together are at most the limit.
//
// Below Expect, the members that are not known yet are assumed to have the first places. If at most
// Expect members exist, the assumed place of a member is never before its place among all members. So
// sides that have not met stay within the limit. If n does not count members that have ended, these
// members keep their places.
func (v *View) partOf(id bucket.ID, partition wire.Policy, n int, member func(i int) bool) Share {
	s := Share{total: max(n, v.Expect)}
	for _, i := range v.Points {
		if member(i) {
			s.members++
		}
	}
	if partition == wire.FairShare {
		s.places, s.unknown = findPlaces(v.Ring, v.Points, id, member), max(0, v.Expect-len(v.Points))
	}
	return s
}

// findPlaces returns the places of some members of a ring in ring order from the id. The function member
// is called with the elements of points, and reports whether the place is returned.
func findPlaces(r *ring.Ring, points []int, id bucket.ID, member func(i int) bool) (places []int) {
	for place, i := range r.Order(make([]int, 0, len(points)), id.Hi, len(points)) {
		if member(points[i]) {
			places = append(places, place)
		}
	}
	return places
}
