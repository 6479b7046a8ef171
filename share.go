package weir

import (
	"math/bits"
	"time"

	"github.com/weir-go/weir/bucket"
)

// outageRetry is when to ask again in an outage: a member that comes back is
// heard within about this long. It is the RetryAfter of a FailClosed denial.
const outageRetry = time.Second

// share is a part of a whole limit: units above from·whole/of, up to to·whole/of.
// The shares of 0..1, 1..2, ..., (of-1)..of sum to the whole exactly.
type share struct{ from, to, of int }

// part is ⌊whole·to/of⌋ − ⌊whole·from/of⌋.
func (s share) part(whole int64) int64 {
	return scaled(whole, s.to, s.of) - scaled(whole, s.from, s.of)
}

func scaled(whole int64, n, of int) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(n))
	q, _ := bits.Div64(hi, lo, uint64(of))
	return int64(q)
}

// limit is the part of l: of its Rate, and for the buckets of its Burst.
func (s share) limit(whole *bucket.Limit) bucket.Limit {
	l := *whole
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

// whole says that nothing is missing.
func (s share) whole() bool { return s.from == 0 && s.to == s.of }

// standing is in what capacity a node decides.
type standing uint8

const (
	asOwner standing = iota // with authority
	asSelf                  // on its own: nobody here reaches the owner
)

// share is what this node may spend of an id, and what to call the decision.
func (v *view) share(as standing, id bucket.ID, partition PartitionPolicy) (share, Source) {
	if as == asOwner {
		return v.sideShare(partition)
	}
	return v.ownShare(id, partition)
}

// sideShare is what this node may spend of an id that it owns: everything, but
// for a roster below Expect. There a side of k has k of Expect, and with
// MajorityShare everything if k is a majority of Expect.
func (v *view) sideShare(partition PartitionPolicy) (share, Source) {
	if v.complete {
		return share{0, 1, 1}, Owner
	}
	majority := 2*v.side > v.expect
	switch {
	case partition == FailOpen:
		return share{0, 1, 1}, FailedOpen
	case majority && partition != FairShare:
		return share{0, 1, 1}, Owner
	case partition == FailClosed:
		return share{0, 0, 1}, FailedClosed
	}
	return share{0, v.side, v.expect}, Budget
}

// ownShare is what this node may spend of an id whose owner it cannot reach:
// its own part by ring order from the id, the owner last, so that the parts of
// all members sum to the whole; a node that has left has none.
func (v *view) ownShare(id bucket.ID, partition PartitionPolicy) (share, Source) {
	switch {
	case partition == FailOpen:
		return share{0, 1, 1}, FailedOpen
	case partition == FailClosed:
		return share{0, 0, 1}, FailedClosed
	case v.Self < 0:
		return share{0, 0, 1}, Budget
	case len(v.Members) < v.expect:
		return share{0, 1, v.expect}, Budget
	}
	order := v.ring.Order(make([]int, 0, len(v.points)), id.Hi, len(v.points))
	for i, at := range order {
		if v.points[at] == v.Self {
			// The owner comes first in ring order, and last here.
			i = (i + len(order) - 1) % len(order)
			return share{i, i + 1, len(order)}, Budget
		}
	}
	return share{0, 0, 1}, Budget
}
