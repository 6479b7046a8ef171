package handover_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
	"github.com/weir-go/weir/weirtest"
)

// node is a member that stores counts and hands them over, but decides no checks.
type node struct {
	*handover.Handover
	env.Env
	cluster cluster.Cluster
	counts  *bucket.Store
}

// leaseTerm is the remaining time of leases once a node has ceased to lend.
const leaseTerm = 200 * time.Millisecond

// join starts a member on a host, and returns it. The member joins all hosts of the network, or only the
// given hosts.
func join(t *testing.T, host *weirtest.Host, hosts ...string) *node {
	lentUntil := int64(0)
	n := &node{Env: env.Env{Clock: env.NewClock(nil)}, cluster: host.Cluster(cluster.Config{Join: hosts}), counts: bucket.NewStore(10_000, bucket.Salt{})}
	n.Handover = handover.New(handover.Config{
		Replicas: 1, Log: slog.New(slog.DiscardHandler), Env: &n.Env, Cluster: n.cluster,
		Counts: n.counts, Stream: countsync.New(0, n.counts),
		Swapped: func(*view.View) {}, Regain: func() {}, Leaving: func() {},
		Cease: func(_ bool, now int64) bool {
			if lentUntil == 0 && now > 0 {
				lentUntil = now + int64(leaseTerm)
			}
			return now >= lentUntil
		},
	})
	n.Begin()
	assert.NoError(t, n.cluster.Start(context.Background(), n))
	n.Refresh()
	n.Go(n.Run)
	n.Started(context.Background())
	t.Cleanup(func() { _ = n.Close(n.cluster.Close) })
	return n
}

func (n *node) used(id bucket.ID) int64 {
	used, _, _ := n.counts.Used(id, n.Now())
	return used
}

func (n *node) Changed() { n.Refresh() }

func (n *node) Answered() { n.Hear(n.Monotonic()) }

func (n *node) HandleLate(cluster.Peer, []byte, []byte) {}

func (n *node) Serve(b *cluster.Batch) {
	for i, request := range b.Requests {
		switch h, err := wire.ParseHeader(request); {
		case err != nil:
			b.Reply(i, wire.Refusal(err))
		case h.Op == wire.OpStream:
			b.Reply(i, n.ServeFrame(request[wire.HeaderBytes:], n.Now(), nil))
		case h.Op == wire.OpLocate:
			b.Reply(i, n.ServeLocate(request[wire.HeaderBytes:], nil))
		}
	}
}

// takeUnits makes the nodes take 7 units of each id over which they have authority.
func takeUnits(ids []bucket.ID, nodes ...*node) {
	for _, n := range nodes {
		for _, id := range ids {
			if n.View().Holds(id) {
				n.counts.Take(id, &bucket.Limit{Rate: 100, Per: time.Hour}, n.Now(), 7)
			}
		}
	}
}

// newIDs returns n ids, spread over the ring.
func newIDs(n uint64) (ids []bucket.ID) {
	for i := range n {
		ids = append(ids, bucket.ID{Hi: i * (1<<64 - 1) / n, Lo: i})
	}
	return ids
}

// requireCounts checks the counts of the ids over which the node has authority, and returns their
// number.
func (n *node) requireCounts(t *testing.T, ids []bucket.ID) (held int) {
	for _, id := range ids {
		if n.View().Holds(id) {
			require.EqualValues(t, 7, n.used(id))
			held++
		}
	}
	return held
}

// A joiner receives counts before it has authority over them, and a leaver gives away its
// authority.
func TestCountsAndAuthorityFollowMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		ids := newIDs(64)
		first := join(t, network.Host("a"))
		takeUnits(ids, first)
		require.Equal(t, len(ids), first.requireCounts(t, ids))

		second := join(t, network.Host("b"))
		time.Sleep(5 * time.Second)
		require.True(t, second.View().Serves())
		require.NotZero(t, second.requireCounts(t, ids))
		require.Equal(t, len(ids), first.requireCounts(t, ids)+second.requireCounts(t, ids))

		require.NoError(t, first.Leave(context.Background()))
		require.Zero(t, first.requireCounts(t, ids))
		require.Equal(t, len(ids), second.requireCounts(t, ids))
	})
}

func TestRestingNodeCopiesChangeWithin100Milliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		nodes := []*node{join(t, network.Host("a")), join(t, network.Host("b"))}
		limit, id := &bucket.Limit{Rate: 1000, Per: 24 * time.Hour}, bucket.ID{Hi: 1, Lo: 1}
		for spent := int64(1); spent <= 3; spent++ {
			time.Sleep(time.Minute)
			for _, n := range nodes {
				if n.View().Holds(id) {
					n.counts.Take(id, limit, n.Now(), 1)
				}
			}
			time.Sleep(100 * time.Millisecond)
			for _, n := range nodes {
				require.Equal(t, spent, n.used(id))
			}
		}
	})
}

func TestRestingNodeSendsRequestedCountsIn100Milliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		holder, other := join(t, network.Host("a")), join(t, network.Host("b"))
		limit, id := &bucket.Limit{Rate: 1000, Per: 24 * time.Hour}, bucket.ID{Hi: 1, Lo: 1}
		if other.View().Holds(id) {
			holder, other = other, holder
		}
		holder.counts.Take(id, limit, holder.Now(), 1)
		time.Sleep(time.Minute)
		other.counts.Reset(id, 0)
		other.Stream().RequestCounts()
		other.Wake(other.View().Hashes)
		time.Sleep(100 * time.Millisecond)
		require.EqualValues(t, 1, other.used(id))
	})
}

// A resting node makes up for omitted sweeps, so it deletes tallies as fast as other nodes.
func TestRestingNodesForgetTallies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		nodes := []*node{join(t, network.Host("a")), join(t, network.Host("b"))}
		limit := &bucket.Limit{Rate: 1000, Per: time.Second}
		for i := range uint64(4000) {
			for _, n := range nodes { // one of the nodes has no authority
				n.counts.Take(bucket.ID{Hi: i << 52, Lo: 1}, limit, n.Now(), 1)
			}
		}
		time.Sleep(10 * time.Second)
		for _, n := range nodes {
			require.NotZero(t, n.Stats().Tallies)
		}
		time.Sleep(10 * time.Second)
		for _, n := range nodes {
			require.Zero(t, n.Stats().Tallies)
		}
	})
}

// On a slow link, the next item is queued before the previous item is acknowledged. So each stage of Leave
// waits only for the items that were queued when the stage began.
func TestLeaveEndsWhileLeaverDecidesChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: 100 * time.Millisecond})
		limit := &bucket.Limit{Rate: 1 << 30, Per: time.Hour}
		first, second := join(t, network.Host("a")), join(t, network.Host("b"))
		time.Sleep(10 * time.Second)

		begun, spent, told := time.Now(), int64(0), int64(0)
		left := make(chan error, 1)
		go func() { left <- first.Leave(context.Background()) }()
		for over := false; !over; {
			first.counts.Take(bucket.ID{Hi: 1 << 63}, limit, first.Now(), 1) // as a stand-in for a late owner
			spent++
			if time.Since(begun) < 600*time.Millisecond {
				told = spent
			}
			select {
			case err := <-left:
				require.NoError(t, err)
				over = true
			case <-time.After(5 * time.Millisecond):
			}
		}
		require.Less(t, time.Since(begun), 2*time.Second)
		require.GreaterOrEqual(t, second.used(bucket.ID{Hi: 1 << 63}), told)
	})
}

// The leaver has a replica of a count. The owner of the count is disconnected from the member that
// becomes the next replica. So only the leaver can send the count to that member.
func TestLeaverSendsItsReplicasAndLastUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		owner, leaver, replica := join(t, network.Host("a")), join(t, network.Host("b")), join(t, network.Host("c"))
		time.Sleep(5 * time.Second)
		ids := newIDs(64)
		takeUnits(ids, owner, leaver, replica)
		time.Sleep(time.Second)
		network.Cut("a", "c")
		network.Cut("c", "a")
		left := make(chan error, 1)
		go func() { left <- leaver.Leave(context.Background()) }()
		var last []bucket.ID // the leaver takes a unit of each without authority
		for len(left) == 0 {
			last = append(last, bucket.ID{Hi: ids[63].Hi, Lo: uint64(100 + len(last))})
			leaver.counts.Take(last[len(last)-1], &bucket.Limit{Rate: 100, Per: time.Hour}, leaver.Now(), 1)
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, <-left)
		for _, id := range ids {
			require.EqualValues(t, 7, replica.used(id))
		}
		for _, id := range last[:len(last)-10] { // the last frame takes less than 10 ms
			require.EqualValues(t, 1, owner.used(id))
		}
	})
}

// Two nodes start together, and meet before they hear of the member with the counts. The elder
// must not serve without the counts.
func TestJoinersThatMeetWaitForServingMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		ids := newIDs(64)
		takeUnits(ids, join(t, network.Host("a")))
		network.SetLink("a", "c", weirtest.Link{Latency: 200 * time.Millisecond})
		network.SetLink("c", "a", weirtest.Link{Latency: 200 * time.Millisecond})
		go join(t, network.Host("c"), "a:1", "b:1")
		synctest.Wait()
		elder := join(t, network.Host("b"), "c:1")
		for range 500 {
			elder.requireCounts(t, ids)
			time.Sleep(10 * time.Millisecond)
		}
		require.True(t, elder.View().Serves())
	})
}

// If no member serves, a joiner begins to serve after the leavers have sent all counts, even if they are slow.
func TestJoinerWaitsForCountsOfLeaver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := weirtest.NewNetwork(1, weirtest.Link{Latency: 100 * time.Millisecond})
		leaver, ids := join(t, network.Host("a")), newIDs(8000)
		takeUnits(ids, leaver)
		joiner := join(t, network.Host("b"))
		time.Sleep(time.Second) // the leaver meets the joiner
		require.False(t, joiner.View().Serves())
		left := make(chan error, 1)
		go func() { left <- leaver.Leave(context.Background()) }()
		for len(left) == 0 {
			require.LessOrEqual(t, leaver.requireCounts(t, ids)+joiner.requireCounts(t, ids), len(ids), "one node has authority over each id")
			time.Sleep(100 * time.Millisecond)
		}
		require.NoError(t, <-left)
		require.Equal(t, len(ids), joiner.requireCounts(t, ids))
	})
}
