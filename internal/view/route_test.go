package view

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// viewOf returns a view of member 0. Each row has the connections of a member: a member with "101" is
// connected to the first and the third.
func viewOf(now int64, before *View, rows ...string) *View {
	c, matrix := &cluster.View{Self: 0}, [][]bool(nil)
	for i, row := range rows {
		c.Members = append(c.Members, cluster.Member{Name: string(rune('a' + i)), State: cluster.Serving, Announced: cluster.Serving})
		hears := make([]bool, len(rows))
		for j := range row {
			hears[j] = row[j] == '1'
		}
		matrix = append(matrix, hears)
	}
	c.Connected, c.Direct = clustertest.Rows(matrix), matrix[0]
	return New(now, c, Terms{Replicas: 1}, before)
}

func TestRouteFollowsAuthorityAndConnections(t *testing.T) {
	const second = int64(time.Second)
	whole := viewOf(0, nil, "111", "111", "111")
	cut := viewOf(5*second, whole, "110", "111", "011")     // 0 is no longer connected to 2, but 1 is
	chain := viewOf(1, nil, "1100", "1110", "0111", "0011") // 0-1-2-3
	split := viewOf(5*second, whole, "110", "110", "001")
	none := New(0, &cluster.View{Self: -1}, Terms{}, nil)
	for _, c := range []struct {
		name  string
		v     *View
		order []int // the ring order from the id
		now   int64
		way   way
		to    int
		hop   int
	}{
		{"range of this node", whole, []int{0}, 0, Here, 0, 0},
		{"connected owner", whole, []int{2}, 0, Direct, 2, 2},
		{"stand-in for an owner that was just lost", cut, []int{2, 1}, 5 * second, StandIn, 1, 1},
		{"this node as the stand-in", cut, []int{2, 0}, 5 * second, StandIn, 0, 0},
		{"stand-in until HoldDown has passed", cut, []int{2, 1}, 6*second - 1, StandIn, 1, 1},
		{"relay after HoldDown", cut, []int{2}, 6 * second, Relay, 2, 1},
		{"relay at once to an owner that was never connected", chain, []int{3}, 1, Relay, 3, 1},
		{"relay after a clock step backwards", cut, []int{2}, 4 * second, Relay, 2, 1},
		{"path of several hops", chain, []int{3}, 2 * second, Relay, 3, 1},
		{"stand-in for an owner beyond a cut", split, []int{2, 1}, 9 * second, StandIn, 1, 1},
		{"empty ring", none, nil, 0, NoWay, -1, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := idInOrder(c.v, c.order...)
			require.Equal(t, Route{c.way, c.to, c.hop}, c.v.Route(id, c.now))
		})
	}
}

// idInOrder returns an id for which the ring order begins with these members.
func idInOrder(v *View, members ...int) (id bucket.ID) {
	for !slices.Equal(v.Ring.Order(nil, id.Hi, len(members)), members) {
		id.Hi += 1<<40 + 1
	}
	return id
}

// A member that is stalled or not reached still has to receive its copies. Until then, the next
// member receives the copies as well, so that a crash of this node does not lose the units that it
// has counted in that time. No ranges move to the next member for this.
func TestNextMemberAlsoReceivesCopiesForUnresponsiveMember(t *testing.T) {
	whole := viewOf(0, nil, "1111", "1111", "1111", "1111")
	id := idInOrder(whole, 0, 2, 1, 3)
	arc := countsync.NewRanges(countsync.Range{First: id.Hi, Last: id.Hi})
	stalls := func(now int64, before *View) *View {
		c := *whole.View
		c.Stalled = []bool{false, false, true, false}
		return New(now, &c, Terms{Replicas: 1}, before)
	}
	cut := func(now int64, before *View) *View { return viewOf(now, before, "1101", "1101", "0010", "1101") }
	two, both := []countsync.Member{whole.Hashes[2]}, []countsync.Member{whole.Hashes[2], whole.Hashes[1]}
	for name, from := range map[string]func(int64, *View) *View{"stalled": stalls, "not reached": cut} {
		t.Run(name, func(t *testing.T) {
			const soon, late = 1 + int64(doubleAfter) - 1, 1 + int64(doubleAfter)
			v := from(1, whole)
			require.Equal(t, two, v.Targets(nil, id), "at first")
			require.False(t, v.Stale(soon))
			require.False(t, v.Lasts())
			require.Equal(t, two, from(soon, v).Targets(nil, id))
			require.True(t, v.Stale(late))
			doubled := from(late, v)
			require.Equal(t, name == "stalled", doubled.Lasts(), "a member that is not reached will be away after HoldDown")
			require.Equal(t, both, doubled.Targets(nil, id))
			require.False(t, doubled.OwesAs(v), "the next member also receives the counts from before")
			require.Empty(t, doubled.Answerers(arc)[1])
			back := viewOf(late+1, doubled, "1111", "1111", "1111", "1111")
			require.Equal(t, two, back.Targets(nil, id), "the member is back")
			require.True(t, back.Lasts())
		})
	}
	v := stalls(1, whole)
	v = cut(int64(doubleAfter)/2, v)
	require.Equal(t, both, cut(1+int64(doubleAfter), v).Targets(nil, id), "the member first stalls, and is then not connected")
}

// This node may never be connected to such a member, so the copies cannot wait for a connection.
func TestNextMemberReceivesCopiesOfNeverConnectedMember(t *testing.T) {
	v := viewOf(1, nil, "1011", "0100", "1011", "1011")
	require.Equal(t, []countsync.Member{v.Hashes[1], v.Hashes[2]}, v.Targets(nil, idInOrder(v, 0, 1, 2, 3)))
}

func TestNoMemberJoinsWhileAMemberIsMissing(t *testing.T) {
	v := viewAt(1, nil, "a b c+")
	require.Len(t, v.joiners, 1)
	require.Empty(t, viewAt(2, v, "a b- c+").joiners)
}

func TestEldestJoinerStartedFirst(t *testing.T) {
	born := time.Now()
	c := *viewOf(0, nil, "1111", "1111", "1111", "1111").View
	for i, age := range []time.Duration{1, 2, 2, 3} {
		c.Members[i].Announced, c.Members[i].Born = cluster.Joining, born.Add(-age)
	}
	c.Members[3].Announced = cluster.Serving
	require.Equal(t, 1, New(0, &c, Terms{}, nil).Eldest())
}

// Until a member serves, the other joiners send the units that they spend to the eldest, and the
// eldest sends its counts to them. So a crash loses no more units than at any other time. The
// eldest does not decide about the holdings of its region.
func TestEldestExchangesCountsUntilAMemberServes(t *testing.T) {
	id := bucket.ID{Hi: 1 << 63}
	born := time.Now()
	for self := range 3 {
		c := *viewOf(0, nil, "111", "111", "111").View
		c.Self = self
		for i := range c.Members {
			c.Members[i].Announced, c.Members[i].Born = cluster.Joining, born.Add(-time.Duration(i%2))
		}
		v := New(0, &c, Terms{Replicas: 1}, nil)
		require.False(t, v.Holds(id))
		require.False(t, v.Speaks(id))
		require.Equal(t, v.Hashes[1], v.Answers(id))
		if self == 1 {
			require.ElementsMatch(t, []countsync.Member{v.Hashes[0], v.Hashes[2]}, v.Targets(nil, id))
			require.Equal(t, countsync.All(), v.Audiences()[v.Hashes[0]])
		} else {
			require.Empty(t, v.Audiences()[v.Hashes[1]])
		}
		v = v.WithStates(countsync.All(), Entry{State: Abandoned}) // the side missed a member when it met other members
		require.Len(t, v.Targets(nil, id), 2)
	}
}

// An abandoned range has no known holder, although the ring assigns the range to a member.
func TestAbandonedRangeHasNoHolder(t *testing.T) {
	v := viewOf(0, nil, "11", "11")
	id := idInOrder(v, 1)
	require.Equal(t, v.Hashes[1], v.Holder(id))
	v = v.WithStates(countsync.All(), Entry{State: Abandoned})
	require.Zero(t, v.Holder(id))
}

// Only this node knows that a member has stalled. It sends requests and spends to the next member
// that has not stalled. The stand-in for the whole side remains the same.
func TestStalledOwnerHasStandInForThisNode(t *testing.T) {
	whole := viewOf(0, nil, "1111", "1111", "1111", "1111")
	split := viewOf(1, whole, "1101", "1101", "0010", "1101") // 2 is missing
	for _, c := range []struct {
		name    string
		v       *View
		order   []int // the ring order from the id
		stalled []int
		way     way
		to      int
	}{
		{"next member in ring order", whole, []int{2, 1, 3, 0}, []int{2}, StandIn, 1},
		{"next member that has not stalled", whole, []int{2, 1, 3, 0}, []int{1, 2}, StandIn, 3},
		{"this node as the stand-in", whole, []int{2, 0, 1, 3}, []int{2}, StandIn, 0},
		{"this node if all other members have stalled", whole, []int{2, 1, 3, 0}, []int{1, 2, 3}, StandIn, 0},
		{"stand-in for a lost owner has stalled", split, []int{2, 1, 3, 0}, []int{1}, StandIn, 3},
		{"owner with a stalled successor", whole, []int{1, 2, 3, 0}, []int{2}, Direct, 1},
		{"range of this node with all other members stalled", whole, []int{0, 2, 1, 3}, []int{1, 2, 3}, Here, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := idInOrder(c.v, c.order...)
			each, base := *c.v, *c.v.View
			v := &each
			v.View = &base
			v.Stalled = make([]bool, len(v.Members))
			for _, i := range c.stalled {
				v.Stalled[i] = true
			}
			require.Equal(t, Route{c.way, c.to, c.to}, v.Route(id, 2))
			require.Equal(t, v.Hashes[c.to], v.Answers(id), "Route and Answers return the same member")
			require.Equal(t, c.v.successor(id), v.successor(id))
		})
	}
}

func TestCheckIsPassedOnToAuthority(t *testing.T) {
	v := viewOf(0, nil, "11", "11")
	lost := viewOf(9, v, "10", "01")
	a := wire.Ask{Limit: &bucket.Limit{Rate: 1, Per: time.Second}, ID: idInOrder(v, 1)}
	self, other := NameHash("a"), NameHash("b")
	for _, c := range []struct {
		name    string
		v       *View
		h       wire.Header
		receipt bucket.Receipt
		stoodIn bool
		member  int
		flags   uint8
	}{
		{"request for this node", v, wire.Header{Op: wire.OpTake, To: self}, 0, false, 1, 1},
		{"request for another member", v, wire.Header{Op: wire.OpTake, To: other}, 0, false, 1, 0},
		{"request passed on before", v, wire.Header{Op: wire.OpTake, Flags: 1, To: self}, 0, false, 1, 2},
		{"request passed on too often", v, wire.Header{Op: wire.OpTake, Flags: wire.MaxPasses, To: self}, 0, false, -1, 0},
		{"reset", v, wire.Header{Op: wire.OpReset, To: self}, 0, false, -1, 0},
		{"refund", v, wire.Header{Op: wire.OpRefund, To: self}, 0, false, 1, 1},
		{"refund with a receipt of this node", v, wire.Header{Op: wire.OpRefund, To: self}, 7, false, -1, 0},
		{"stand-in request while the owner is connected", v, wire.Header{Op: wire.OpTake, Flags: wire.FlagStandIn, To: self}, 0, false, 1, 1},
		{"refund of units that the stand-in request took at the owner", v, wire.Header{Op: wire.OpRefund, Flags: wire.FlagStandIn, To: self}, 7, false, 1, 1},
		{"refund of units that this node granted as a stand-in", v, wire.Header{Op: wire.OpRefund, Flags: wire.FlagStandIn, To: self}, 7, true, -1, 0},
		{"stand-in request while the owner is not connected", lost, wire.Header{Op: wire.OpTake, Flags: wire.FlagStandIn, To: self}, 0, false, -1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.h.Asks = 1
			a.Spent.Receipt, a.Spent.StoodIn = c.receipt, c.stoodIn
			member, flags := c.v.Onward(c.h, a.Append(c.h.Append(nil)), 10)
			require.Equal(t, c.member, member)
			require.Equal(t, c.flags, flags)
		})
	}
}

// A leaver may be unable to report the units that it grants, so another stand-in for the lost owner
// answers instead.
func TestLeaverPassesChecksOnToStandIn(t *testing.T) {
	whole := viewOf(0, nil, "111", "111", "111")
	cut := viewOf(1, whole, "110", "110", "001")
	cut.Members[0].Announced = cluster.Leaving
	leaving := New(2, cut.View, Terms{Replicas: 1}, whole)
	left := New(3, &cluster.View{
		Self: -1, Members: leaving.Members[1:], Direct: []bool{true, false}, Connected: [][]int{nil, nil},
	}, Terms{Replicas: 1}, leaving)
	for name, v := range map[string]*View{"leaving": leaving, "left": left} {
		a := wire.Ask{Limit: &bucket.Limit{Rate: 1, Per: time.Second}, ID: idInOrder(v, 1, 0)}
		for _, asked := range []uint8{0, wire.FlagStandIn, 1} {
			h := wire.Header{Op: wire.OpTake, Flags: asked, Asks: 1, To: NameHash("a")}
			member, flags := v.Onward(h, a.Append(h.Append(nil)), 10)
			require.Equal(t, v.Named[NameHash("b")], member, name)
			require.Equal(t, asked&^wire.FlagStandIn+1|wire.FlagStandIn, flags, name)
		}
		h := wire.Header{Op: wire.OpTake, Flags: wire.MaxPasses, Asks: 1, To: NameHash("a")}
		member, _ := v.Onward(h, a.Append(h.Append(nil)), 10)
		require.Equal(t, -1, member, name)
	}
}

// All other members leave as well, so there is no member to pass a request on to.
func TestLeaverDeclinesRequestsWithoutAuthority(t *testing.T) {
	stays := viewOf(0, nil, "11", "11")
	all := viewOf(1, stays, "11", "11")
	all.Members[0].Announced, all.Members[1].Announced = cluster.Leaving, cluster.Leaving
	leaving := New(2, all.View, Terms{Replicas: 1}, stays)
	left := New(3, &cluster.View{Self: -1, Members: all.Members[1:], Direct: []bool{true}, Connected: [][]int{nil}}, Terms{Replicas: 1}, leaving)
	mine, other := idInOrder(stays, 0), idInOrder(stays, 1)
	asks := []wire.Op{wire.OpTake, wire.OpDebit, wire.OpPeek, wire.OpWait, wire.OpLend, wire.OpHold}
	gives := []wire.Op{wire.OpRefund, wire.OpReturn, wire.OpRelease, wire.OpReset}
	for _, c := range []struct {
		name         string
		v            *View
		ids          []bucket.ID
		asked, given bool // whether the node declines asks, and whether it declines returned units
	}{
		{"node that stays", stays, []bucket.ID{other}, false, false},
		{"leaver with authority", leaving, []bucket.ID{mine, mine}, false, false},
		{"leaver without authority", leaving, []bucket.ID{other}, true, false},
		{"leaver without authority over one of two ids", leaving, []bucket.ID{mine, other}, true, false},
		{"node that has left", left, []bucket.ID{mine}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, op := range slices.Concat(asks, gives) {
				h := wire.Header{Op: op, Asks: uint8(len(c.ids)), To: NameHash("a")}
				request := h.Append(nil)
				for _, id := range c.ids {
					request = (&wire.Ask{Limit: &bucket.Limit{Rate: 1, Per: time.Second}, ID: id}).Append(request)
				}
				want := c.asked
				if slices.Contains(gives, op) {
					want = c.given
				}
				require.Equal(t, want, c.v.Declines(h, request), "op %d", op)
				if want {
					member, _ := c.v.Onward(h, request, 10)
					require.Equal(t, -1, member, "op %d: there is no member to which the request could be passed on", op)
				}
			}
		})
	}
}

func TestDetourAvoidsDirectConnection(t *testing.T) {
	require.Equal(t, 1, viewOf(0, nil, "111", "111", "111").Detour(2, 2))
	require.Equal(t, -1, viewOf(0, nil, "111", "110", "101").Detour(2, 2))
}

func TestPathAvoidsStalledMembers(t *testing.T) {
	for name, c := range map[string]struct {
		stalled []bool
		rows    []string
		want    []int
	}{
		"no stalled member":                    {[]bool{false, false, false, false}, []string{"1110", "1111", "1111", "0111"}, []int{0, 1, 2, 1}},
		"first member stalled":                 {[]bool{false, true, false, false}, []string{"1110", "1111", "1111", "0111"}, []int{0, 1, 2, 2}},
		"both members stalled":                 {[]bool{false, true, true, false}, []string{"1110", "1111", "1111", "0111"}, []int{0, 1, 2, 1}},
		"only member stalled":                  {[]bool{false, true, false, false}, []string{"1110", "1101", "1010", "0101"}, []int{0, 1, 2, 1}},
		"longer path without a stalled member": {[]bool{false, true, false, false, false}, []string{"11100", "11001", "10110", "00111", "01011"}, []int{0, 1, 2, 2, 2}},
	} {
		v := *viewOf(0, nil, c.rows...).View
		v.Stalled = c.stalled
		require.Equal(t, c.want, New(0, &v, Terms{Replicas: 1}, nil).Next, name)
	}
}

func TestConnectedMemberIsNotLost(t *testing.T) {
	whole := viewOf(1, nil, "11", "11")
	lost := viewOf(2, whole, "10", "01")
	still := viewOf(3, lost, "10", "01")
	again := viewOf(4, still, "11", "11")
	require.Equal(t, []int64{0, 2}, lost.Lost)
	require.Equal(t, []int64{0, 2}, still.Lost)
	require.Equal(t, []int64{0, 0}, again.Lost)
}

// The first member on each path is one step closer to the end of the path. The test computes the
// distances by relaxation over all connections.
func TestPathsAreShortest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, far := rapid.IntRange(1, 8).Draw(t, "members"), 1<<20
		rows, distance := make([]string, n), make([][]int, n)
		for i := range n {
			row := rapid.StringMatching(fmt.Sprintf("[01]{%d}", n)).Draw(t, "row")
			rows[i] = row[:i] + "1" + row[i+1:]
			for _, c := range rows[i] {
				distance[i] = append(distance[i], map[rune]int{'0': far, '1': 1}[c])
			}
			distance[i][i] = 0
		}
		for via := range n {
			for i := range n {
				for j := range n {
					distance[i][j] = min(distance[i][j], distance[i][via]+distance[via][j])
				}
			}
		}
		v := viewOf(0, nil, rows...)
		for i := 1; i < n; i++ {
			next, from := v.Next[i], distance[0][i]
			if (next < 0) != (from >= far) || next >= 0 && distance[next][i] != from-1 {
				t.Fatalf("member %d at distance %d: next %d is no step closer", i, from, next)
			}
		}
	})
}

func TestNewMemberHasPointsAfterItIsConnected(t *testing.T) {
	on := func(v *View) int { return len(v.Ring.Members()) }
	require.Equal(t, 3, on(viewOf(0, nil, "100", "010", "001")), "a node that starts counts all members of the ring")
	two := viewOf(0, nil, "11", "11")
	disconnected := viewOf(1, two, "110", "110", "001")
	require.Equal(t, 2, on(disconnected))
	require.Equal(t, 3, on(viewOf(2, disconnected, "110", "111", "011")), "the new member is connected to another member on this side")
	heard := viewOf(2, disconnected, "111", "111", "111")
	require.Equal(t, 3, on(heard))
	require.Equal(t, 3, on(viewOf(3, heard, "100", "010", "001")), "a member that is lost keeps its points")
}
