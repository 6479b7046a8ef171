package view

import (
	"math/bits"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
	"github.com/weir-go/weir/ring"
)

// OutageRetry is the time until a client should ask again during an outage. This node is connected
// again to a member that has come back within about this time. It is the RetryAfter of a FailClosed
// denial.
const OutageRetry = time.Second

// Share is a part of a whole limit. For each rank in ranks, it has the units above rank·whole/of
// and up to (rank+1)·whole/of. The shares of the ranks 0 to of-1 sum to the whole exactly. If All
// is set, the share is the whole.
type Share struct {
	All   bool
	ranks []int // contains no rank twice
	of    int
	most  *Share // an upper bound of the share, or nil
}

// unitsOf returns the sum of ⌊whole·(rank+1)/of⌋ − ⌊whole·rank/of⌋ over the ranks.
func (s Share) unitsOf(whole int64) int64 {
	if s.All {
		return whole
	}
	if s.most != nil {
		least := s
		least.most = nil
		return min(least.unitsOf(whole), s.most.unitsOf(whole))
	}
	var sum int64
	for _, rank := range s.ranks {
		sum += scaled(whole, rank+1, s.of) - scaled(whole, rank, s.of)
	}
	return sum
}

func scaled(whole int64, n, of int) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(n))
	q, _ := bits.Div64(hi, lo, uint64(of))
	return int64(q)
}

// Limit returns the share of a limit: of its Rate, and of the Burst of a bucket.
func (s Share) Limit(whole *bucket.Limit) bucket.Limit {
	l := *whole
	l.Whole = whole.Capacity()
	if whole.IsBucket() {
		l.Burst = s.unitsOf(whole.Capacity())
		if l.Burst == 0 || s.unitsOf(l.Rate) == 0 {
			// This is a capacity of zero units; a Burst of 0 would stand for Rate. The share is
			// also empty if it has no part of the Rate: units spent from it would never recover.
			// Units that are already used recover meanwhile at the whole rate.
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
	AsOwner   Standing = iota // with authority
	AsStandIn                 // for this side: the member with authority is not reached, or has not answered
	AsSelf                    // for itself: no stand-in has answered either
)

// Standing returns the capacity in which this node answers a request for an id.
func (v *View) Standing(id bucket.ID) Standing {
	if v.Holds(id) {
		return AsOwner
	}
	return AsStandIn
}

// Share returns the share of the limit of an id that this node may spend, and the source of the
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

// sideShare returns the share that this node may spend for its side. It is the whole limit while no
// member is missing. With MajorityShare and FailClosed, it is also the whole limit on the side with
// a majority of the roster. Otherwise it is the part of the members of the side.
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
		return Share{of: 1}, wire.FailedClosed
	case v.vacated && (v.Side >= v.Expect || 2*v.Side > v.Expect && partition != wire.FairShare):
		return Share{All: true}, wire.Owner
	case v.vacated:
		return Share{of: v.Expect, ranks: firstRanks(v.Side)}, wire.Budget
	}
	return v.partOf(id, partition, func(i int) bool { return i < 0 || v.Reaches(i) }), wire.Budget
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

// firstRanks returns the ranks 0 to k-1.
func firstRanks(k int) (ranks []int) {
	for rank := range k {
		ranks = append(ranks, rank)
	}
	return ranks
}

// ownShare returns the share of an id that this node may spend for itself: the part of one member.
// If the node is a side of its own, the share is that of the side, because no other member has the
// part of the members that are gone. A node without points has no share. With FairShare no node has
// a share until all members on this side know the missing members: until then the stand-in of an
// owner beyond a cut has the whole limit, and all sides together already have twice the limit.
func (v *View) ownShare(id bucket.ID, partition wire.Policy) (Share, wire.Source) {
	switch {
	case partition == wire.FailOpen:
		return Share{All: true}, wire.FailedOpen
	case partition == wire.FailClosed:
		return Share{of: 1}, wire.FailedClosed
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
		return Share{of: 1}, wire.Budget
	}
	return v.partOf(id, partition, func(i int) bool { return i == v.Self || i < 0 && lone }), wire.Budget
}

// missingAreAway reports whether the view is not complete, and each missing member has been missing
// for so long that all members on this side know it.
func (v *View) missingAreAway() bool {
	return !v.Complete && !slices.ContainsFunc(v.Points, func(i int) bool { return v.Next[i] < 0 && !v.Away[i] })
}

// RetryAfter returns the time until the caller should ask again, given the time that the count
// returned. A share for this node alone may be empty until the missing members are known. It then
// denies until other members answer.
func (v *View) RetryAfter(as Standing, source wire.Source, after time.Duration) time.Duration {
	if as == AsSelf && source == wire.Budget && !v.missingAreAway() {
		return min(after, OutageRetry)
	}
	return after
}

// HasMajority reports whether a majority of the roster is on this side.
func (v *View) HasMajority() bool { return 2*v.Side > v.weight() }

// weight returns the size of the roster that shares and majorities refer to. Below Expect it is
// Expect.
func (v *View) weight() int { return max(len(v.Points), v.Expect) }

// partOf returns the share of some members that are not a majority.
//
// The part of k of n members is ⌊whole·k/n⌋, whether they spend it together or each alone. Beside a
// majority, which has the whole limit, fewer than half of the members are left, so that all members
// together stay below 1.5 times the limit. The part of a member must not depend on the id: by ring
// order, the owner would get the rounding remainders of the other parts, and of a limit of one unit
// that is the whole limit.
//
// With FairShare a majority has only its part. So the rounding remainders can go to one member each
// by ring order, and the parts sum to the limit. Below Expect they do not: members that are not
// known yet have no place in that order.
//
// If a member goes while other members are missing, only this side knows that it is gone. The other
// sides still divide by n, and keep their parts. A division by n−1 moves the rounding remainders,
// and could give away a unit that another side has. So the part of a side has two bounds. It is at
// most the part that the side had together with the members that are gone, which is never less than
// k·⌊whole/(n−1)⌋. It is also at most the part by n−1, so that sides that all know of the member
// have the limit at most. Both bounds also hold if the roster of this side falls below Expect and
// the roster of another side does not.
func (v *View) partOf(id bucket.ID, partition wire.Policy, member func(i int) bool) Share {
	s := Share{of: v.weight()}
	if partition == wire.FairShare && v.places != nil && len(v.placed) >= v.Expect {
		s.most = &Share{of: len(v.placed), ranks: ranks(v.places, v.placed, id, member)}
	}
	if partition == wire.FairShare && len(v.Points) >= v.Expect {
		s.ranks = ranks(v.Ring, v.Points, id, member)
		return s
	}
	k := 0
	for _, i := range v.Points {
		if member(i) {
			k++
		}
	}
	s.ranks = firstRanks(k)
	return s
}

// ranks returns the ranks of some members of a ring in ring order from the id. The owner has the
// last rank. member is called with the elements of points.
func ranks(r *ring.Ring, points []int, id bucket.ID, member func(i int) bool) (ranks []int) {
	order := r.Order(make([]int, 0, len(points)), id.Hi, len(points))
	for k := range order {
		if member(points[order[(k+1)%len(order)]]) {
			ranks = append(ranks, k)
		}
	}
	return ranks
}
