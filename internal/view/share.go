package view

import (
	"math/bits"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
	"github.com/weir-go/weir/ring"
)

// OutageRetry is when to ask again in an outage: a member that comes back is
// heard within about this long. It is the RetryAfter of a FailClosed denial.
const OutageRetry = time.Second

// Share is a part of a whole limit: of each of ranks, the units above
// rank·whole/of up to (rank+1)·whole/of. The shares of the ranks 0 to of-1 sum to
// the whole exactly. A share with all is the whole.
type Share struct {
	All   bool
	ranks []int // each once
	of    int
	most  *Share // no more than this, if not nil
}

// part is the sum of ⌊whole·(rank+1)/of⌋ − ⌊whole·rank/of⌋ over the ranks.
func (s Share) part(whole int64) int64 {
	if s.All {
		return whole
	}
	if s.most != nil {
		least := s
		least.most = nil
		return min(least.part(whole), s.most.part(whole))
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

// Limit is the part of l: of its Rate, and for the buckets of its Burst.
func (s Share) Limit(whole *bucket.Limit) bucket.Limit {
	l := *whole
	l.Whole = whole.Capacity()
	if whole.IsBucket() {
		l.Burst = s.part(whole.Capacity())
		if l.Burst == 0 || s.part(l.Rate) == 0 {
			// A capacity of nothing; 0 would stand for Rate. So it is where none
			// of the Rate is left, too: what was spent would never recover. What
			// is used already recovers meanwhile at the whole rate.
			l.Burst = -1
			return l
		}
	}
	l.Rate = s.part(l.Rate)
	return l
}

// Standing is in what capacity a node decides.
type Standing uint8

const (
	AsOwner   Standing = iota // with authority
	AsStandIn                 // for this side: the member with authority is not reached, or has not answered
	AsSelf                    // on its own: nor has a stand-in
)

// Standing is in what capacity this node answers for an id that it is asked for.
func (v *View) Standing(id bucket.ID) Standing {
	if v.Holds(id) {
		return AsOwner
	}
	return AsStandIn
}

// Share is what this node may spend of an id, and what to call the decision.
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

// sideShare is what this node may spend of an id for its side: everything while
// no member is missing, or, with MajorityShare and FailClosed, on the side with a
// majority of the roster; else the part of its members.
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
// A missing member whose host is silent may live, and may be connected to others.
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

// ownShare is what this node may spend of an id on its own: the part of one
// member, and where it is a side of its own, that side's: a part of members that are gone
// goes to nobody else. A node that has no points has none. With FairShare nobody has any until all
// on this side know who is missing: until then the stand-in of an owner beyond a cut has
// the whole limit, and all sides together have twice the limit already.
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
	if partition == wire.FairShare && !lone && !v.agreed() {
		return Share{of: 1}, wire.Budget
	}
	return v.partOf(id, partition, func(i int) bool { return i == v.Self || i < 0 && lone }), wire.Budget
}

// agreed reports whether members are missing, and each has been for so long that all on
// this side know of it.
func (v *View) agreed() bool {
	return !v.Complete && !slices.ContainsFunc(v.Points, func(i int) bool { return v.Next[i] < 0 && !v.Away[i] })
}

// RetryAfter is when whoever asks is to ask again, where the count said after: a share of
// this node's own that is denied until it is known who is missing denies until others answer.
func (v *View) RetryAfter(as Standing, source wire.Source, after time.Duration) time.Duration {
	if as == AsSelf && source == wire.Budget && !v.agreed() {
		return min(after, OutageRetry)
	}
	return after
}

// HasMajority reports whether a majority of the roster is on this side.
func (v *View) HasMajority() bool { return 2*v.Side > v.weight() }

// weight is the size of the roster that shares and majorities are of. Below Expect
// it is Expect.
func (v *View) weight() int { return max(len(v.Points), v.Expect) }

// partOf returns the share of some members, which are no majority.
//
// k of n members have ⌊whole·k/n⌋, whether they spend it together or each on its
// own. Beside a majority, which has all of the limit, fewer than half are left, so
// that all together stay below 1.5 times the limit. A member's part must not depend
// on the id: ring order gives the owner what rounding leaves of the others' parts,
// and of one unit that is all of it.
//
// FairShare gives a majority no more than its part, so that what rounding leaves can
// go to one member each by ring order, and the parts sum to the limit. Below Expect
// they do not: members that are not known yet have no place in that order.
//
// A member that goes while others are missing is gone on this side alone: the others
// divide by n as before, and keep their parts. To divide by n−1 moves what rounding
// leaves, and could give a unit away that another side has. So a side has no more than
// it had together with those that are gone, which is never less than k·⌊whole/(n−1)⌋;
// and no more than by n−1, so that sides which all know of it have the limit at most.
// That holds also where its roster falls below Expect, and the others' does not.
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

// ranks is the places that some of a ring's members have in ring order from the id, the
// owner last. points is what member is asked by.
func ranks(r *ring.Ring, points []int, id bucket.ID, member func(i int) bool) (ranks []int) {
	order := r.Order(make([]int, 0, len(points)), id.Hi, len(points))
	for k := range order {
		if member(points[order[(k+1)%len(order)]]) {
			ranks = append(ranks, k)
		}
	}
	return ranks
}
