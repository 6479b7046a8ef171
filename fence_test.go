package weir

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/realtime"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// A node that has heard nobody for a second does not know what others have done
// in its stead, and has no authority until it hears one of them.
func TestANodeThatHasHeardNobodyForASecondIsFenced(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 2, nil)
	ls := limiters(t, nodes, Limit{Name: "test", Rate: 100, Per: time.Hour})
	key := ownedBy(t, ls[0], nodes[0])
	fenced := func(l *Limiter) (d Decision) {
		nodes[0].handover.Heard(nodes[0].env.Steady() - int64(2*time.Second)) // until the other one is heard once more
		d, err := l.Peek(t.Context(), key)
		require.NoError(t, err)
		return d
	}
	realtime.Eventually(t, "a fenced node grants its share", func() bool {
		d := fenced(ls[0])
		if d.Source == Budget {
			require.EqualValues(t, 50, d.Limit)
		}
		return d.Source == Budget
	})
	realtime.Eventually(t, "nor does it answer others", func() bool { return fenced(ls[1]).Source == StandIn })
	realtime.Eventually(t, "until it hears one again", func() bool {
		d, err := ls[0].Peek(t.Context(), key)
		return err == nil && d.Source == Owner
	})
}

// A fenced node still carries out resets, comparisons and what gives back.
func TestAFencedNodeDecidesNothingAndLearns(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 2, nil)
	n, l := nodes[0], limiters(t, nodes, Limit{Name: "test", Rate: 100, Per: time.Hour})[0]
	v := n.handover.View()
	var a wire.Ask
	require.NoError(t, l.ask(t.Context(), ownedBy(t, l, n), 1, &a))
	held := wire.Ask{ID: a.ID, Limit: &bucket.Limit{Algorithm: bucket.InFlight, Rate: 1, Per: time.Minute}, Units: 1}
	serve := func(request []byte) (s wire.Status, fenced bool) {
		got := make(chan []byte, 1)
		b := cluster.NewBatch(nodes[1].handover.View().Members[nodes[1].handover.View().Self].Name, within(got))
		b.Requests = [][]byte{request}
		heard := n.env.Steady() - int64(2*time.Second)
		n.handover.Heard(heard)
		inbound{n}.Serve(b)
		fenced = n.handover.Fenced(v, n.env.Now())
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
		realtime.Eventually(t, "the node is fenced throughout a request", func() bool {
			s, fenced := serve(c.request)
			if fenced {
				require.Equal(t, c.want, s, "op %d", c.request[0])
			}
			return fenced
		})
	}
}

// Authority that comes from a member that leaves must not go back to it, also if
// gossip has not said yet that it leaves.
func TestALeaversOwnWordTakesItsPoints(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 3, nil)
	v := nodes[0].handover.View()
	i := slices.IndexFunc(v.Points, func(i int) bool { return i != v.Self })
	nodes[0].handover.Arrived(countsync.Arrival{From: v.Hashes[v.Points[i]], Leaving: true})
	require.Len(t, nodes[0].handover.View().Points, 2)
}

// A node that has left stands in for nobody, and decides nothing that it cannot pass on: it would
// tell nobody of that.
func TestANodeThatHasLeftDecidesNothing(t *testing.T) {
	t.Parallel()
	nodes := fleet(t, 3, func(_ int, cfg *Config) { cfg.Timeout = realtime.GiveUp })
	ls := limiters(t, nodes, Limit{Name: "test", Rate: 100, Per: time.Hour})
	var a wire.Ask
	require.NoError(t, ls[1].ask(t.Context(), ownedBy(t, ls[0], nodes[0]), 1, &a))
	name := func(n *Node) string { v := n.handover.View(); return v.Members[v.Self].Name }
	left := nodes[1]
	self := left.handover.View().Hashes[left.handover.View().Self]
	require.NoError(t, left.Leave(t.Context()))
	serve := func(flags uint8) wire.Status {
		got := make(chan []byte, 1)
		b := cluster.NewBatch(name(nodes[2]), within(got))
		b.Requests = [][]byte{a.Append(wire.Header{Op: wire.OpTake, Flags: flags, Hops: wire.MaxHops, Asks: 1, Wait: realtime.GiveUp, To: self}.Append(nil))}
		inbound{left}.Serve(b)
		return wire.Status((<-got)[0])
	}
	realtime.Eventually(t, "the owner answers", func() bool { return serve(wire.FlagStandIn) == wire.Done })
	to := func(n *Node) int { return left.handover.View().Named[view.NameHash(name(n))] }
	through := func(way *Node) func(v *view.View) { // to the owner
		return func(v *view.View) {
			v.Next = slices.Clone(v.Next)
			v.Next[to(nodes[0])] = to(way)
		}
	}
	realtime.Eventually(t, "the view stays as it is edited while a request is served", func() bool {
		edit(left, through(nodes[2]))
		status := serve(wire.FlagStandIn)
		stays := left.handover.View().Next[to(nodes[0])] == to(nodes[2])
		if stays {
			require.Equal(t, wire.Unreached, status, "the node that asks is the way there")
		}
		return stays
	})
	edit(left, through(nodes[0]))
	require.NoError(t, nodes[0].Close())
	require.NoError(t, nodes[2].Close())
	require.Equal(t, wire.Unreached, serve(wire.FlagStandIn))
	require.Equal(t, wire.Unreached, serve(wire.MaxPasses), "there is no way left")
	kept := make(chan []byte, 1)
	h := wire.Header{Op: wire.OpTake, Flags: wire.MaxPasses, Hops: wire.MaxHops, Asks: 1, Wait: realtime.GiveUp, To: self}
	left.goOn(t.Context(), left.handover.View(), h, a.Append(h.Append(nil)), nil, func(answer []byte) { kept <- answer })
	require.Equal(t, wire.Unreached, wire.Status((<-kept)[0]), "it was kept until now")
	require.Zero(t, left.Stats().Served)
}
