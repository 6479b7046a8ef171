package view

import (
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/wire"
)

// newView returns a view of members "a", "b" and so on. The given members are connected to member 0,
// which is this node.
func newView(members, expect int, connected ...int) *View {
	c := &cluster.View{Self: 0, Direct: make([]bool, members)}
	for i := range members {
		c.Members = append(c.Members, cluster.Member{Name: string(rune('a' + i)), State: cluster.Serving, Announced: cluster.Serving})
		c.Connected = append(c.Connected, nil)
	}
	for _, i := range connected {
		c.Direct[i] = true
		if i > 0 {
			c.Connected[0], c.Connected[i] = append(c.Connected[0], i), []int{0}
		}
	}
	c.Direct[0] = true
	return New(0, c, Terms{Expect: expect}, nil)
}

// onSide returns the view of the member self, which is connected only to the members in hears;
// these include self.
func (v *View) onSide(self int, hears []int) *View {
	each, c := *v, *v.View
	c.Self = self
	each.View = &c
	each.Next = make([]int, len(v.Members))
	for i := range each.Next {
		if each.Next[i] = -1; slices.Contains(hears, i) {
			each.Next[i] = i
		}
	}
	each.Side = len(hears)
	each.Complete = each.Side == len(v.Points) && len(v.Points) >= v.Expect
	return &each
}

// The roster may split into sides in any way, and any members may decide alone. The sum of their
// shares stays within the bound of the policy, down to limits of one unit.
func TestSharesOfAllSidesStayBelowBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 7).Draw(t, "members")
		v := newView(n, rapid.SampledFrom([]int{0, 0, 0, n, n + 1, 2 * n}).Draw(t, "expect"))
		id := bucket.ID{Hi: rapid.Uint64().Draw(t, "id")}
		sides := make([][]int, 3) // the sides of two or more members; seven members have at most three
		var alone []int
		for i := range n {
			if side := rapid.SampledFrom([]int{0, 0, 0, 1, 2, -1, -1}).Draw(t, "side"); side >= 0 {
				sides[side] = append(sides[side], i)
			} else {
				alone = append(alone, i)
			}
		}
		units := rapid.OneOf(rapid.Int64Range(1, 4), rapid.Int64Range(1, 20), rapid.Int64Range(1, 1e12))
		whole := &bucket.Limit{
			Algorithm: rapid.SampledFrom([]bucket.Algorithm{bucket.SlidingLog, bucket.TokenBucket}).Draw(t, "algorithm"),
			Rate:      units.Draw(t, "rate"), Per: time.Second,
		}
		if whole.IsBucket() {
			whole.Burst = units.Draw(t, "burst")
		}
		whole.Keep = rapid.Int64Range(0, whole.Capacity()-1).Draw(t, "keep")
		for _, p := range []wire.Policy{wire.MajorityShare, wire.FairShare, wire.FailClosed} {
			var rate, most, usable int64
			spend := func(s Share) {
				part := s.Limit(whole)
				usable += part.Usable()
				if most += part.Capacity(); part.Capacity() > 0 {
					rate += part.Rate
				}
			}
			for _, side := range sides {
				if len(side) > 0 {
					s, _ := v.onSide(side[0], side).Share(AsStandIn, id, p)
					spend(s)
				}
			}
			for _, i := range alone {
				s, _ := v.onSide(i, []int{i}).Share(AsSelf, id, p)
				spend(s)
			}
			if p == wire.MajorityShare && (2*rate >= 3*whole.Rate || 2*most >= 3*whole.Capacity() || 2*usable >= 3*whole.Usable()) ||
				p != wire.MajorityShare && (rate > whole.Rate || most > whole.Capacity() || usable > whole.Usable()) {
				t.Fatalf("policy %d: sides %v and %v have rate %d and %d at a time, %d of them usable, of %+v", p, sides, alone, rate, most, usable, whole)
			}
		}
	})
}

// connectedView returns the view that the cluster gives to the member self, which is connected to some members.
func connectedView(self int, members, connected []int) *cluster.View {
	c := &cluster.View{Direct: make([]bool, len(members)), Connected: make([][]int, len(members)), Stalled: make([]bool, len(members))}
	for at, m := range members {
		c.Members = append(c.Members, cluster.Member{Name: string(rune('a' + m)), State: cluster.Serving, Announced: cluster.Serving})
		c.Direct[at] = slices.Contains(connected, m)
		if m == self {
			c.Self = at
		}
	}
	for at := range members {
		if c.Direct[at] && at != c.Self {
			c.Connected[c.Self] = append(c.Connected[c.Self], at)
		}
	}
	return c
}

// In this test, each side knows that all, some or none of the leavers have left. So there are sides
// that have split again, or met, after they had learned of different leaves, and there are leaves before
// a split was noticed. With Expect, the sides may also never have met.
func TestSharesStayWithinLimitAfterUnevenlyKnownLeaves(t *testing.T) {
	const second = int64(time.Second)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 7).Draw(t, "members")
		first := rapid.Uint64().Draw(t, "id")
		terms := Terms{Expect: rapid.SampledFrom([]int{0, 0, n - 1, n, n + 1}).Draw(t, "expect")}
		var all, gone []int
		sides := make([][]int, 3)
		for i := range n {
			all = append(all, i)
			if side := rapid.SampledFrom([]int{0, 0, 1, 1, 2, -1}).Draw(t, "side"); side >= 0 {
				sides[side] = append(sides[side], i)
			} else {
				gone = append(gone, i)
			}
		}
		alone := rapid.Bool().Draw(t, "each on its own")
		strange := terms.Expect >= n && rapid.Bool().Draw(t, "never met")
		var sums [32][20]int64 // by id and units
		for _, side := range sides {
			roster := slices.DeleteFunc(slices.Clone(all), func(i int) bool {
				return slices.Contains(gone, i) && rapid.IntRange(0, 2).Draw(t, "known") > 0
			})
			spend, as := side[:min(1, len(side))], AsStandIn // the first member of the side decides
			if alone {
				spend, as = side, AsSelf
			}
			begun, known, connected := all, all, side
			if strange {
				begun, known, roster = side, side, side
			} else if rapid.Bool().Draw(t, "left before the split was noticed") {
				known, connected = roster, roster
			}
			for _, self := range spend {
				v := New(second, connectedView(self, begun, begun), terms, nil)
				v = New(2*second, connectedView(self, known, connected), terms, v)
				v = New(4*second, connectedView(self, roster, side), terms, v)
				for i := range sums {
					id := bucket.ID{Hi: first + uint64(i)<<59}
					s, _ := v.Share(as, id, wire.FairShare)
					own, _ := v.Share(AsSelf, id, wire.FairShare)
					for whole := range sums[i] {
						units := s.unitsOf(int64(whole))
						sums[i][whole] += units
						if least := len(side) * (whole / max(len(roster), terms.Expect)); !alone && units < int64(least) {
							t.Fatalf("%v of %v have %d of %d units, less than %d", side, roster, units, whole, least)
						}
						if len(side) == 1 && own.unitsOf(int64(whole)) != units {
							t.Fatalf("%v, a side of its own, has not the %d of %d units of its side", side, units, whole)
						}
					}
				}
			}
		}
		for i := range sums {
			for whole, sum := range sums[i] {
				if sum > int64(whole) {
					t.Fatalf("%v of %v have %d of %d units of id %d together", sides, all, sum, whole, i)
				}
			}
		}
	})
}

// A roster of Expect nodes may split while the nodes start: each side knows only some of the other members, or
// has seen them end. The units of a side do not exceed the units that its members get when all members are known.
func TestUnknownMembersDoNotEnlargeFairShare(t *testing.T) {
	list := func(set int) (members []int) {
		for i := range bits.Len(uint(set)) {
			if set>>i&1 > 0 {
				members = append(members, i)
			}
		}
		return members
	}
	for expect := 2; expect <= 5; expect++ {
		view := func(known, side int, ended bool) *View {
			c := connectedView(list(side)[0], list(known), list(side))
			for _, reached := range c.Direct {
				c.Ended = append(c.Ended, ended && !reached)
			}
			return New(0, c, Terms{Expect: expect}, nil)
		}
		all := 1<<expect - 1
		for side := 1; side <= all; side++ {
			met := view(all, side, false)
			for known := side; known <= all; known = (known + 1) | side {
				for _, v := range []*View{view(known, side, false), view(known, side, true)} {
					for id := (bucket.ID{Hi: 1 << 60}); id.Hi > 0; id.Hi += 1 << 60 {
						most, _ := met.Share(AsStandIn, id, wire.FairShare)
						s, _ := v.Share(AsStandIn, id, wire.FairShare)
						for whole := range int64(2 * expect) {
							units, least := s.unitsOf(whole), int64(bits.OnesCount(uint(side)))*(whole/int64(expect))
							require.True(t, least <= units && units <= most.unitsOf(whole), "%b of %b have %d of %d units, Expect is %d, ended: %t", side, known, units, whole, expect, v.vacated)
						}
					}
				}
			}
		}
	}
}

// The members of a minority spend no more units if each decides alone than if they decide together,
// whoever owns the key.
func TestMinorityNodesSpendNoMoreAloneThanTogether(t *testing.T) {
	for n := 2; n <= 7; n++ {
		v := newView(n, 0)
		for whole := int64(1); whole <= 20; whole++ {
			for k := 1; 2*k <= n; k++ {
				var side []int
				var alone int64
				for i := range k {
					side = append(side, i)
					s, _ := v.onSide(i, []int{i}).Share(AsSelf, bucket.ID{Hi: uint64(whole) << 58}, wire.MajorityShare)
					alone += s.unitsOf(whole)
				}
				s, _ := v.onSide(0, side).Share(AsStandIn, bucket.ID{}, wire.MajorityShare)
				require.LessOrEqual(t, alone, s.unitsOf(whole), "%d of %d, %d units", k, n, whole)
			}
		}
	}
}

func TestFairSharesOfSidesSumToTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.IntRange(1, 12).Draw(t, "members")
		limit := &bucket.Limit{
			Algorithm: bucket.TokenBucket,
			Rate:      rapid.Int64Range(1, 1e12).Draw(t, "rate"), Per: time.Second,
			Burst: rapid.Int64Range(1, 1e12).Draw(t, "burst"),
		}
		id, v, sides := bucket.ID{Hi: rapid.Uint64().Draw(t, "id")}, newView(members, 0), make(map[int][]int)
		for i := range members {
			side := rapid.IntRange(0, members-1).Draw(t, "side")
			sides[side] = append(sides[side], i)
		}
		var rate, burst int64
		for _, side := range sides {
			s, _ := v.onSide(side[0], side).Share(AsStandIn, id, wire.FairShare)
			part := s.Limit(limit)
			rate += s.unitsOf(limit.Rate)
			burst += part.Capacity()
		}
		if rate != limit.Rate || burst > limit.Burst || burst < limit.Burst && limit.Rate >= int64(members) {
			t.Fatalf("shares of %+v sum to rate %d, burst %d", limit, rate, burst)
		}
	})
}

// withAway returns the view in which all members that are not reached are away.
func withAway(v *View) *View {
	later := *v
	later.Away = make([]bool, len(v.Members))
	for i := range later.Away {
		later.Away[i] = v.Next[i] < 0
	}
	return &later
}

// While not all members have noticed a cut, a member on each side may have the whole limit.
// Together with the units that other members spend alone, this would exceed twice the limit.
func TestFairShareNeedsKnownMissingMembers(t *testing.T) {
	limit := &bucket.Limit{Algorithm: bucket.SlidingLog, Rate: 100, Per: time.Second}
	cut := newView(4, 0, 0, 1, 2)
	for name, c := range map[string]struct {
		v    *View
		rate int64
	}{
		"no missing member":                      {newView(4, 0, 0, 1, 2, 3), 0},
		"member that was just lost":              {cut, 0},
		"member that is away":                    {withAway(cut), 25},
		"unanswered request to another member":   {withAway(cut).WithoutMember(1), 0},
		"all other members lost":                 {newView(4, 0, 0), 25},
		"no missing member, roster below Expect": {New(0, newView(4, 0, 0, 1, 2, 3).View, Terms{Expect: 5}, nil), 20},
	} {
		s, source := c.v.ownShare(bucket.ID{}, wire.FairShare)
		require.Equal(t, wire.Budget, source)
		require.Equal(t, c.rate, s.unitsOf(limit.Rate), name)
		s, _ = c.v.ownShare(bucket.ID{}, wire.MajorityShare)
		require.NotZero(t, s.unitsOf(limit.Rate), name)
	}
}

// Units of a share without a rate would be spent once and never recover.
func TestShareWithoutRateDenies(t *testing.T) {
	whole := &bucket.Limit{Algorithm: bucket.TokenBucket, Rate: 1, Per: time.Second, Burst: 100}
	some, none := Share{members: 1, places: []int{0}, total: 2}, Share{members: 1, places: []int{1}, total: 2}
	require.EqualValues(t, 1, some.unitsOf(whole.Rate))
	part := some.Limit(whole)
	require.EqualValues(t, 50, part.Capacity())
	part = none.Limit(whole)
	require.Zero(t, part.Capacity())
	s := bucket.NewStore(10, bucket.Salt{})
	require.False(t, s.Take(bucket.ID{}, &part, 0, 1).Allowed)
	require.Zero(t, s.Len())
	require.True(t, s.Take(bucket.ID{}, whole, 0, 2).Allowed)
	require.Equal(t, 2*time.Second, s.Take(bucket.ID{}, &part, 0, 1).ResetAfter, "used units recover nevertheless")
}

func TestOwnerHasLargestFairShareOfSmallLimit(t *testing.T) {
	v := newView(3, 0)
	for id := range uint64(100) {
		a := wire.Ask{ID: bucket.ID{Hi: id * 0x9e3779b97f4a7c15}, Limit: &bucket.Limit{Rate: 1, Per: time.Second}, Partition: wire.FairShare}
		s, _ := v.ownShare(a.ID, a.Partition)
		require.Equal(t, v.Owner(a.ID) == v.Self, s.Limit(a.Limit).Rate == 1)
	}
}

func TestNodeWithoutPointsHasNoShare(t *testing.T) {
	left, joins := *newView(3, 0).View, *newView(1, 0).View
	left.Self, joins.Members[0].Announced = -1, cluster.Joining
	for _, c := range []*cluster.View{&left, &joins} {
		v := New(0, c, Terms{}, nil)
		for _, p := range []wire.Policy{wire.MajorityShare, wire.FairShare} {
			own, _ := v.Share(AsSelf, bucket.ID{}, p)
			require.Zero(t, own.unitsOf(100))
		}
	}
}

func TestEachSideOfSplitHasItsShare(t *testing.T) {
	for _, c := range []struct {
		name            string
		members, expect int
		partition       wire.Policy
		connected       []int // members to which member 0 is connected
		want            int64 // units of the share, of a limit of 100
		source          wire.Source
	}{
		{"majority", 5, 0, wire.MajorityShare, []int{1, 2}, 100, wire.StandIn},
		{"minority", 5, 0, wire.MajorityShare, []int{1}, 40, wire.Budget},
		{"minority of one", 5, 0, wire.MajorityShare, nil, 20, wire.Budget},
		{"FairShare for a majority", 5, 0, wire.FairShare, []int{1, 2}, 60, wire.Budget},
		{"FailClosed for a majority", 5, 0, wire.FailClosed, []int{1, 2}, 100, wire.StandIn},
		{"FailClosed for a minority", 5, 0, wire.FailClosed, []int{1}, 0, wire.FailedClosed},
		{"FailOpen", 5, 0, wire.FailOpen, nil, 100, wire.FailedOpen},
		{"one of five expected members", 1, 5, wire.MajorityShare, nil, 20, wire.Budget},
		{"two of five expected members", 2, 5, wire.MajorityShare, []int{1}, 40, wire.Budget},
		{"three of five expected members", 3, 5, wire.MajorityShare, []int{1, 2}, 100, wire.StandIn},
		{"FairShare for a majority of Expect", 3, 5, wire.FairShare, []int{1, 2}, 60, wire.Budget},
		{"FailClosed below a majority of Expect", 2, 5, wire.FailClosed, []int{1}, 0, wire.FailedClosed},
		{"FailClosed for a majority of Expect", 3, 5, wire.FailClosed, []int{1, 2}, 100, wire.StandIn},
		{"FailOpen below Expect", 1, 5, wire.FailOpen, nil, 100, wire.FailedOpen},
	} {
		s, source := newView(c.members, c.expect, c.connected...).Share(AsStandIn, bucket.ID{}, c.partition)
		require.Equal(t, c.want, s.Limit(&bucket.Limit{Rate: 100, Per: time.Second}).Rate, c.name)
		require.Equal(t, c.source, source, c.name)
	}
}
