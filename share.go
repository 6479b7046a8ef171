package weir

import (
	"math/bits"
	"slices"
	"time"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/internal/wire"
	"github.com/weir-go/weir/ring"
)

// outageRetry is when to ask again in an outage: a member that comes back is
// heard within about this long. It is the RetryAfter of a FailClosed denial.
const outageRetry = time.Second

// share is a part of a whole limit: of each of ranks, the units above
// rank·whole/of up to (rank+1)·whole/of. The shares of the ranks 0 to of-1 sum to
// the whole exactly. A share with all is the whole.
type share struct {
	all   bool
	ranks []int // each once
	of    int
	most  *share // no more than this, if not nil
}

// part is the sum of ⌊whole·(rank+1)/of⌋ − ⌊whole·rank/of⌋ over the ranks.
func (s share) part(whole int64) int64 {
	if s.all {
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

// limit is the part of l: of its Rate, and for the buckets of its Burst.
func (s share) limit(whole *bucket.Limit) bucket.Limit {
	l := *whole
	l.Whole = whole.Capacity()
	if l.Algorithm == TokenBucket || l.Algorithm == LeakyBucket {
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

// standing is in what capacity a node decides.
type standing uint8

const (
	asOwner   standing = iota // with authority
	asStandIn                 // for this side: the member with authority is not reached, or has not answered
	asSelf                    // on its own: nor has a stand-in
)

// standing is in what capacity this node answers for an id that it is asked for.
func (v *view) standing(id bucket.ID) standing {
	if v.Holds(id) {
		return asOwner
	}
	return asStandIn
}

// share is what this node may spend of an id, and what to call the decision.
func (v *view) share(as standing, id bucket.ID, partition wire.Policy) (share, wire.Source) {
	if as == asSelf {
		return v.ownShare(id, partition)
	}
	s, source := v.sideShare(id, partition)
	if source == wire.Owner && as == asStandIn {
		source = wire.StandIn
	}
	return s, source
}

// without is the view in which a member is missing that has just not answered.
func (v *view) without(i int) *view {
	if i < 0 || v.next[i] < 0 || i == v.Self {
		return v
	}
	less := *v
	less.next = slices.Clone(v.next)
	less.next[i] = -1
	if _, weighs := slices.BinarySearch(v.points, i); weighs {
		less.side--
		less.complete = false
	}
	return &less
}

// sideShare is what this node may spend of an id for its side: everything while
// no member is missing, or, with MajorityShare and FailClosed, on the side with a
// majority of the roster; else the part of its members.
func (v *view) sideShare(id bucket.ID, partition wire.Policy) (share, wire.Source) {
	majority := 2*v.side > v.weight()
	switch {
	case v.complete:
		return share{all: true}, wire.Owner
	case partition == wire.FailOpen:
		return share{all: true}, wire.FailedOpen
	case majority && partition != wire.FairShare:
		return share{all: true}, wire.Owner
	case partition == wire.FailClosed:
		return share{of: 1}, wire.FailedClosed
	}
	return v.partOf(id, partition, func(i int) bool { return i < 0 || v.reaches(i) }), wire.Budget
}

// ownShare is what this node may spend of an id on its own: the part of one
// member, and where it is a side of its own, that side's: a part of members that are gone
// goes to nobody else. A node that has no points has none. With FairShare nobody has any until all
// on this side know who is missing: until then the stand-in of an owner beyond a cut has
// the whole limit, and all sides together have twice the limit already.
func (v *view) ownShare(id bucket.ID, partition wire.Policy) (share, wire.Source) {
	switch {
	case partition == wire.FailOpen:
		return share{all: true}, wire.FailedOpen
	case partition == wire.FailClosed:
		return share{of: 1}, wire.FailedClosed
	}
	lone := v.side == 1 && v.serves()
	if partition == wire.FairShare && !lone && !v.agreed() {
		return share{of: 1}, wire.Budget
	}
	return v.partOf(id, partition, func(i int) bool { return i == v.Self || i < 0 && lone }), wire.Budget
}

// agreed reports whether members are missing, and each has been for so long that all on
// this side know of it.
func (v *view) agreed() bool {
	return !v.complete && !slices.ContainsFunc(v.points, func(i int) bool { return v.next[i] < 0 && !v.away[i] })
}

// retryAfter is when whoever asks is to ask again, where the count said after: a share of
// this node's own that is denied until it is known who is missing denies until others answer.
func (v *view) retryAfter(as standing, source wire.Source, after time.Duration) time.Duration {
	if as == asSelf && source == wire.Budget && !v.agreed() {
		return min(after, outageRetry)
	}
	return after
}

// weight is the size of the roster that shares and majorities are of. Below Expect
// it is Expect.
func (v *view) weight() int { return max(len(v.points), v.expect) }

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
func (v *view) partOf(id bucket.ID, partition wire.Policy, member func(i int) bool) share {
	s := share{of: v.weight()}
	if partition == wire.FairShare && len(v.points) >= v.expect {
		s.ranks = ranks(v.ring, v.points, id, member)
		if v.places != nil {
			s.most = &share{of: len(v.placed), ranks: ranks(v.places, v.placed, id, member)}
		}
		return s
	}
	for _, i := range v.points {
		if member(i) {
			s.ranks = append(s.ranks, len(s.ranks)) // the first k
		}
	}
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
