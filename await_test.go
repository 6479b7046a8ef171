package weir

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/lab"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// edit replaces the view by a changed copy. The stream may still read the last view.
func edit(n *Node, change func(v *view.View)) {
	n.handover.Step(func(before *view.View) *view.View {
		v := *before
		v.View = new(*v.View)
		v.Members = slices.Clone(v.Members)
		change(&v)
		return &v
	})
}

// delayAuthority makes the node owner wait for authority over all ranges that it holds. In the view of the
// other node, the authority was transferred to the owner. The authority arrives when the caller calls come.
func delayAuthority(t *testing.T, owner, other *Node) (come func()) {
	t.Helper()
	v := owner.handover.View()
	moved, until := v.Ranges(view.Held), owner.env.Monotonic()+int64(time.Hour)
	from, to := other.handover.View(), v.Members[v.Self].Name
	giver := from.Members[from.Self].Name
	edit(other, func(v *view.View) { *v = *v.TransferRanges(moved, to, until) })
	edit(owner, func(v *view.View) {
		*v = *v.WithStates(moved, view.Entry{State: view.Awaited, Member: giver, Until: until})
	})
	return func() {
		edit(owner, func(v *view.View) { *v = *v.ReceiveRanges(moved) })
	}
}

// If a node answered before its authority arrives, it would decide from a replica.
func TestCheckWaitsForAuthorityInTransit(t *testing.T) {
	t.Parallel()
	lab.WhileHealthy(t, func(t *testing.T) decisions {
		nodes := fleet(t, 2, func(_ int, cfg *Config) { cfg.Timeout = 20 * time.Second }) // a busy machine may be slow
		ls := limiters(t, nodes, Limit{Name: "test", Algorithm: SlidingLog, Rate: 100, Per: time.Hour})
		key := findOwnedKey(t, ls[1], nodes[0])
		come := delayAuthority(t, nodes[0], nodes[1])
		answered := make(chan Decision, 8)
		for range cap(answered) {
			go func() {
				d, err := ls[1].Allow(context.WithoutCancel(t.Context()), key)
				assert.NoError(t, err)
				answered <- d
			}()
		}
		each := uint64(cap(answered))
		passed := func() bool { return nodes[0].Stats().Passed >= each && nodes[1].Stats().Passed >= each }
		lab.Eventually(t, "each check is passed on once and sent back once", func() bool { return passed() || len(answered) > 0 })
		early := len(answered)
		come()
		var all []Decision
		var remaining []int64
		for range cap(answered) {
			d := <-answered
			all, remaining = append(all, d), append(remaining, d.Remaining)
		}
		requireOwners(t, all...)
		for _, d := range all {
			require.Equal(t, Forwarded, d.Source)
		}
		require.Zero(t, early, "a check that was passed on and sent back waits for authority")
		slices.Sort(remaining)
		require.EqualValues(t, 100-cap(answered), remaining[0])
		require.Equal(t, []uint64{each, each}, []uint64{nodes[0].Stats().Passed, nodes[1].Stats().Passed}, "a check that was sent back is not passed on again")
		return nil
	})
}

func TestCheckWithoutAuthorityIsDecidedInTime(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 2, nil)
	ls := limiters(t, nodes, Limit{Name: "test", Rate: 100, Per: time.Hour})
	key := findOwnedKey(t, ls[1], nodes[0])
	delayAuthority(t, nodes[0], nodes[1])
	late, begun := lab.MeasureDelay(), time.Now()
	d, err := ls[1].Allow(t.Context(), key)
	took := time.Since(begun)
	late.Stop()
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.Contains(t, []Source{StandIn, Budget}, d.Source)
	require.LessOrEqual(t, took-late.Total(), 2*time.Second+late.Worst(), "the check takes longer than Timeout")
}

func TestFrozenNodeDoesNotAnswerKeptCheck(t *testing.T) {
	for frozen, status := range map[bool]wire.Status{true: wire.Unreached, false: wire.Done} {
		scripted(t, func(t *testing.T, _ *pair, n *Node) {
			edit(n, func(v *view.View) {
				*v = *v.WithStates(countsync.All(), view.Entry{State: view.Awaited, Member: "b", Until: n.env.Monotonic() + int64(time.Hour)})
			})
			h := wire.Header{Op: wire.OpTake, Flags: 2, Hops: wire.MaxHops, Asks: 1, Wait: time.Second, To: view.NameHash("a")}
			a := wire.Ask{ID: bucket.ID{Hi: 1, Lo: 1}, Limit: &bucket.Limit{Rate: 1, Per: time.Second}, Units: 1}
			answers := make(chan []byte, 1)
			b := cluster.NewBatch("b", answerChan(answers))
			b.Requests = [][]byte{a.Append(h.Append(nil))}
			n.checks.Serve(b)
			synctest.Wait()
			require.Empty(t, answers)
			if frozen {
				n.env.Hear(n.env.Monotonic() - int64(2*view.HoldDown))
			}
			edit(n, func(v *view.View) { *v = *v.ReceiveRanges(countsync.All()) })
			synctest.Wait()
			require.Len(t, answers, 1)
			got, err := wire.ParseResponse(<-answers, h.Op, 1)
			require.NoError(t, err)
			require.Equal(t, status, got)
		})
	}
}

// A node waits for authority from a member that does not have it. If both forwarded checks to
// each other, no node would decide. The node stands in until all members have answered that they
// do not have the authority. Then it takes the authority.
func TestChecksWithoutAuthorityAreNotForwardedInCircles(t *testing.T) {
	t.Parallel()
	lab.WhileHealthy(t, func(t *testing.T) decisions {
		nodes := fleet(t, 3, func(_ int, cfg *Config) { cfg.Timeout = 20 * time.Second }) // a busy machine may be slow
		ls := limiters(t, nodes, Limit{Name: "test", Algorithm: SlidingLog, Rate: 100, Per: time.Hour})
		key := findOwnedKey(t, ls[2], nodes[0])
		v := nodes[0].handover.View()
		lost, from := v.Ranges(view.Held), nodes[1].handover.View()
		edit(nodes[0], func(v *view.View) {
			*v = *v.WithStates(lost, view.Entry{State: view.Awaited, Member: from.Members[from.Self].Name, Until: view.Forever})
		})
		edit(nodes[1], func(v *view.View) {
			*v = *v.WithStates(lost, view.Entry{State: view.Abandoned})
			v.Heal(v.Hashes[v.Self], nodes[1].env.Monotonic())
		})
		stands := func() bool { return nodes[0].handover.View().HasAny(view.Abandoned | view.Claimed) }
		lab.Eventually(t, "the node that waits is told, and stands in", stands)
		require.Equal(t, lost, nodes[0].handover.View().Ranges(view.Claimed))
		before := nodes[0].Stats().Passed + nodes[1].Stats().Passed
		for i, l := range ls {
			d, err := l.Allow(t.Context(), key)
			require.NoError(t, err)
			if d.Source != StandIn {
				return unanswered() // the machine was paused, or no node stands in
			}
			require.EqualValues(t, 99-i, d.Remaining, "all nodes use one count, with the whole limit")
		}
		require.Equal(t, before, nodes[0].Stats().Passed+nodes[1].Stats().Passed)
		for _, n := range nodes {
			edit(n, func(v *view.View) { v.Healed -= int64(view.Patience) })
		}
		settled := func() bool { return nodes[0].handover.View().Settled && nodes[1].handover.View().Settled }
		lab.Eventually(t, "both hold what the ring gives them", settled)
		d, err := ls[2].Peek(t.Context(), key)
		require.NoError(t, err)
		requireOwners(t, d)
		require.Equal(t, Forwarded, d.Source)
		require.EqualValues(t, 97, d.Remaining)
		return nil
	})
}

func TestMalformedLocateIsRefused(t *testing.T) {
	n := new(Node)
	for _, body := range [][]byte{nil, make([]byte, 7), make([]byte, 8+15), append(make([]byte, 8), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)} {
		require.Nil(t, n.handover.ServeLocate(body, nil))
	}
}

// If no other member has answered a node for a second, the node does not know which decisions were
// made in its place. The node has no authority until a member answers.
func TestDisconnectedNodeIsFencedAfterOneSecond(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 2, nil)
	ls := limiters(t, nodes, Limit{Name: "test", Rate: 100, Per: time.Hour})
	key := findOwnedKey(t, ls[0], nodes[0])
	fenced := func(l *Limiter) (d Decision) {
		nodes[0].env.Hear(nodes[0].env.Monotonic() - int64(2*time.Second)) // the node is fenced until the other node answers
		d, err := l.Peek(t.Context(), key)
		require.NoError(t, err)
		return d
	}
	lab.Eventually(t, "a fenced node grants its share", func() bool {
		d := fenced(ls[0])
		if d.Source == Budget {
			require.EqualValues(t, 50, d.Limit)
		}
		return d.Source == Budget
	})
	lab.Eventually(t, "a fenced node does not answer other nodes", func() bool { return fenced(ls[1]).Source == StandIn })
	lab.Eventually(t, "a node that hears another node again has authority", func() bool {
		d, err := ls[0].Peek(t.Context(), key)
		return err == nil && d.Source == Owner
	})
}

func TestFencedNodeRecordsButDoesNotDecide(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 2, nil)
	n, l := nodes[0], limiters(t, nodes, Limit{Name: "test", Rate: 100, Per: time.Hour})[0]
	v := n.handover.View()
	var a wire.Ask
	require.NoError(t, l.prepareCounted(t.Context(), findOwnedKey(t, l, n), 1, &a))
	held := wire.Ask{ID: a.ID, Limit: &bucket.Limit{Algorithm: bucket.InFlight, Rate: 1}, Units: 1, Hold: wire.Hold{TTL: time.Minute}}
	serve := func(request []byte) (s wire.Status, fenced bool) {
		got := make(chan []byte, 1)
		b := cluster.NewBatch(nodes[1].handover.View().Members[nodes[1].handover.View().Self].Name, answerChan(got))
		b.Requests = [][]byte{request}
		heard := n.env.Monotonic() - int64(2*time.Second)
		n.env.Hear(heard)
		n.checks.Serve(b)
		fenced = n.env.IsFenced(v, n.env.Now())
		return wire.Status((<-got)[0]), fenced
	}
	for _, c := range []struct {
		request []byte
		want    wire.Status
	}{
		{a.Append(wire.Header{Op: wire.OpTake, Asks: 1, To: v.Hashes[v.Self]}.Append(nil)), wire.Unreached},
		{a.Append(wire.Header{Op: wire.OpReset, Asks: 1, To: v.Hashes[v.Self]}.Append(nil)), wire.Done},
		{append(wire.Header{Op: wire.OpCompare, To: v.Hashes[v.Self]}.Append(nil), 0), wire.Done},
		{a.Append(wire.Header{Op: wire.OpRefund, Asks: 1, To: v.Hashes[v.Self]}.Append(nil)), wire.Done},
		{a.Append(wire.Header{Op: wire.OpReturn, Asks: 1, To: v.Hashes[v.Self]}.Append(nil)), wire.Done},
		{a.Append(wire.Header{Op: wire.OpRefund, Asks: 1, Wait: time.Second, To: v.Hashes[v.Self]}.Append(nil)), wire.Done},
		{held.Append(wire.Header{Op: wire.OpRelease, Asks: 1, To: v.Hashes[v.Self]}.Append(nil)), wire.Done},
	} {
		lab.Eventually(t, "the node is fenced throughout a request", func() bool {
			s, fenced := serve(c.request)
			if fenced {
				require.Equal(t, c.want, s, "op %d", c.request[0])
			}
			return fenced
		})
	}
}

// If a member leaves, the authority that it has sent must not be returned to it, even if gossip
// has not yet reported that the member leaves.
func TestLeavingFrameRemovesMemberFromRing(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 3, nil)
	v := nodes[0].handover.View()
	i := slices.IndexFunc(v.Points, func(i int) bool { return i != v.Self })
	nodes[0].handover.Arrived(countsync.Arrival{From: v.Hashes[v.Points[i]], Leaving: true})
	require.Len(t, nodes[0].handover.View().Points, 2)
}

// A node that has left must not stand in for another member. If it cannot forward a check, it
// must not decide the check, because it cannot send the decision to other members.
func TestNodeThatLeftDecidesNothing(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 3, func(_ int, cfg *Config) { cfg.Timeout = lab.GiveUp })
	ls := limiters(t, nodes, Limit{Name: "test", Rate: 100, Per: time.Hour})
	var a wire.Ask
	require.NoError(t, ls[1].prepareCounted(t.Context(), findOwnedKey(t, ls[0], nodes[0]), 1, &a))
	name := func(n *Node) string { v := n.handover.View(); return v.Members[v.Self].Name }
	left := nodes[1]
	self := left.handover.View().Hashes[left.handover.View().Self]
	require.NoError(t, left.Leave(t.Context()))
	serve := func(flags uint8) wire.Status {
		got := make(chan []byte, 1)
		b := cluster.NewBatch(name(nodes[2]), answerChan(got))
		b.Requests = [][]byte{a.Append(wire.Header{Op: wire.OpTake, Flags: flags, Hops: wire.MaxHops, Asks: 1, Wait: lab.GiveUp, To: self}.Append(nil))}
		left.checks.Serve(b)
		return wire.Status((<-got)[0])
	}
	lab.Eventually(t, "the owner answers", func() bool { return serve(wire.FlagStandIn) == wire.Done })
	to := func(n *Node) int { return left.handover.View().Named[view.NameHash(name(n))] }
	through := func(way *Node) func(v *view.View) { // makes way the next node on the route to the owner
		return func(v *view.View) {
			v.Next = slices.Clone(v.Next)
			v.Next[to(nodes[0])] = to(way)
		}
	}
	lab.Eventually(t, "the view stays as it is edited while a request is served", func() bool {
		edit(left, through(nodes[2]))
		status := serve(wire.FlagStandIn)
		stays := left.handover.View().Next[to(nodes[0])] == to(nodes[2])
		if stays {
			require.Equal(t, wire.Unreached, status, "the only way to the owner begins with the node that asks")
		}
		return stays
	})
	edit(left, through(nodes[0]))
	require.NoError(t, nodes[0].Close())
	require.NoError(t, nodes[2].Close())
	require.Equal(t, wire.Unreached, serve(wire.FlagStandIn))
	require.Equal(t, wire.Unreached, serve(wire.MaxPasses), "no other member is reachable")
	require.Zero(t, left.Stats().Served)
}
