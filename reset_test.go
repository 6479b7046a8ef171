package weir

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/asker"
	"github.com/weir-go/weir/internal/check"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// crowd is the cluster of a node with many other members, each of which takes some time to reset
// a count.
type crowd struct {
	cluster.Cluster
	handler cluster.Handler
	view    cluster.View
	forgets time.Duration

	mu                           sync.Mutex
	running, mostRunning, resets int // resets that are running, their maximum, and all resets
}

func newCrowd(members int, forgets time.Duration) *crowd {
	c := &crowd{Cluster: cluster.NewSolo("m000", ""), forgets: forgets}
	all := make([]bool, members)
	for i := range members {
		m := cluster.Member{Name: fmt.Sprintf("m%03d", i), State: cluster.Serving, Announced: cluster.Serving}
		if i > 0 {
			m.Peer = c
		}
		all[i] = true
		c.view.Members = append(c.view.Members, m)
	}
	c.view.Direct, c.view.Connected = all, clustertest.Mesh(len(all))
	return c
}

func (c *crowd) Start(_ context.Context, h cluster.Handler) error {
	c.handler = h
	return nil
}

func (c *crowd) View() *cluster.View { return &c.view }

func (c *crowd) Send([]byte) {}

func (*crowd) Delay() time.Duration         { return 0 }
func (c *crowd) Protocol() cluster.Protocol { return cluster.Protocol{Version: cluster.Version} }

func (c *crowd) Ask(_ context.Context, request, answer []byte, wait time.Duration) ([]byte, error) {
	c.handler.Answered()
	if wire.Op(request[0]) != wire.OpReset {
		return nil, cluster.ErrDisconnected
	}
	c.count(1)
	defer c.count(-1)
	time.Sleep(min(wait, c.forgets))
	if wait < c.forgets {
		return nil, cluster.ErrTimeout
	}
	return new(wire.Result).Append(wire.Op(request[0]), wire.AppendResponse(answer[:0], wire.Done, 1)), nil
}

// count records that a reset begins (1) or ends (-1).
func (c *crowd) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running += n
	c.mostRunning = max(c.mostRunning, c.running)
	c.resets += max(0, n)
}

// A reset is sent to every member, and the number of its goroutines does not grow with the
// number of members.
func TestResetBoundsConcurrentRequests(t *testing.T) {
	const members, forgets = 200, 5 * time.Millisecond
	for _, c := range []struct {
		about  string
		missed int
		cfg    Config
	}{
		{"members that answer", 0, Config{Timeout: 2 * time.Second}},
		{"members that answer too late", members - 1, Config{Timeout: forgets / 2}},
	} {
		t.Run(c.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				crowd := newCrowd(members, forgets)
				c.cfg.Cluster, c.cfg.Logger, c.cfg.Replicas = crowd, quiet, -1
				n := solo(t, c.cfg)
				l := limiter(t, n, Limit{Rate: 1, Per: time.Hour})
				begun := time.Now()
				err := l.Reset(t.Context(), "key")
				require.LessOrEqual(t, time.Since(begun), members/check.ResetsAtOnce*forgets+forgets)
				if c.missed == 0 {
					require.NoError(t, err)
				} else {
					var partial *ErrPartial
					require.ErrorAs(t, err, &partial)
					require.Len(t, partial.Members, c.missed)
				}
				require.Equal(t, members-1, crowd.resets)
				require.LessOrEqual(t, crowd.mostRunning, check.ResetsAtOnce)
			})
		})
	}
}

func TestOldReceiptsDoNotChangeResetCounts(t *testing.T) {
	const begun = int64(time.Hour)
	limit := &bucket.Limit{Algorithm: FixedWindow, Rate: 1000, Per: 24 * time.Hour}
	id := bucket.ID{Hi: 1, Lo: 2}
	// serves executes a request of another member that has any number of asks above 0.
	serves := func(t *testing.T, n *Node, v *view.View, op wire.Op, at int64, asks ...wire.Ask) (results []wire.Result) {
		request := wire.Header{Op: op, Asks: uint8(len(asks))}.Append(nil)
		for i := range asks {
			request = asks[i].Append(request)
		}
		h, err := wire.ParseHeader(request)
		require.NoError(t, err)
		answer, err := n.owner.Answer(v, h, request, nil, at)
		require.NoError(t, err)
		for i := range asks {
			results = append(results, wire.ParseResult(answer, op, i))
		}
		return results
	}
	used := func(n *Node, at int64) int64 {
		units, _, _ := n.counts.Used(id, at)
		return units
	}
	later := begun + int64(time.Second)

	for name, c := range map[string]struct {
		resets, want int // resets between the take and its refund, and the units in use after the refund
	}{
		"a refund after a reset":      {1, 1},
		"a refund after two resets":   {2, 1},
		"a refund without any resets": {0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, algorithm := range []bucket.Algorithm{FixedWindow, SlidingWindow, SlidingLog} {
				limit := &bucket.Limit{Algorithm: algorithm, Rate: 1000, Per: 24 * time.Hour}
				n, v := lender()
				taken := ask1(id, limit, 1)
				r := serves(t, n, v, wire.OpTake, begun, taken)[0]
				for i := range c.resets {
					n.handover.Stream().Reset(id, begun+int64(i))
				}
				serves(t, n, v, wire.OpTake, begun, ask1(id, limit, 1))
				serves(t, n, v, wire.OpRefund, begun, taken.WithReceipt(&r))
				require.EqualValues(t, c.want, used(n, begun), algorithm)
			}
		})
	}
	t.Run("a refund without a take", func(t *testing.T) {
		n, v := lender()
		n.handover.Stream().Reset(id, begun)
		serves(t, n, v, wire.OpTake, later, ask1(id, limit, 3))
		serves(t, n, v, wire.OpRefund, later, ask1(id, limit, 1))
		require.EqualValues(t, 2, used(n, later))
	})
	t.Run("lent units are refunded", func(t *testing.T) {
		n, v := lender()
		borrows := ask1(id, limit, 1)
		borrows.Take.Want = wire.Want{Units: 10, Term: 500}
		require.EqualValues(t, 10, serves(t, n, v, wire.OpTake, begun, borrows)[0].Lease.Units)
		lent := n.owner.LentUnits(begun + 1)
		require.Equal(t, 10, lent)
		n.handover.Stream().Reset(id, begun+1)
		lent = n.owner.LentUnits(begun + 1)
		require.Zero(t, lent)
		serves(t, n, v, wire.OpTake, later, ask1(id, limit, 3))
		serves(t, n, v, wire.OpRefund, later, ask1(id, limit, 3))
		require.Zero(t, used(n, later))
	})
	t.Run("answers have the reset number", func(t *testing.T) {
		n, v := lender()
		other := bucket.ID{Hi: 3, Lo: 4}
		both := []wire.Ask{ask1(id, limit, 1), ask1(other, limit, 1)}
		for _, of := range [][]wire.Ask{both[:1], both} {
			require.EqualValues(t, owner.NoReset, serves(t, n, v, wire.OpTake, begun, of...)[0].ResetNumber)
		}
		number := n.handover.Stream().Reset(id, begun)
		for _, of := range [][]wire.Ask{both[:1], both} {
			require.Equal(t, number, serves(t, n, v, wire.OpTake, begun, of...)[0].ResetNumber)
		}
		require.EqualValues(t, owner.NoReset, serves(t, n, v, wire.OpTake, begun, both...)[1].ResetNumber)
	})
}

// lender returns a node that owns all keys and does not use a network.
func lender() (*Node, *view.View) {
	still := func() int64 { return 0 }
	counts := bucket.NewStore(10, bucket.Salt{})
	n := &Node{counts: counts, env: env.Env{Clock: env.OneClock(still)}, checks: check.New()}
	n.handover = handover.New(handover.Config{Env: &n.env, Counts: counts, Stream: countsync.New(1, counts), Swapped: func(*view.View) {}})
	n.handover.Stream().WhenReset(n.checks.WhenReset)
	n.owner = owner.New(n.env.Clock, 0, counts, n.handover.Stream(), nil)
	n.asker = asker.New(&n.env, 0, n.owner.ResetNumber, n.checks)
	v := (&view.View{View: &cluster.View{Self: 0}, Complete: true}).ReceiveRanges(countsync.All())
	n.handover.Step(func(*view.View) *view.View { return v })
	n.checks.Connect(n.checkConfig())
	return n, v
}

// A lease is for the member that has sent the request to the owner. If a member forwards a
// request, it must not request a lease. All other fields are kept.
func TestForwardedAskRequestsNoLease(t *testing.T) {
	limit := &bucket.Limit{Rate: 100, Per: time.Minute, Algorithm: TokenBucket, Burst: 7, Version: 3}
	for name, asks := range map[string]int{"one": 1, "two": 2, "all that a request may have": wire.MaxAsks} {
		for _, op := range []wire.Op{wire.OpTake, wire.OpRefund, wire.OpDebit} { // there is a response only to the first of these
			t.Run(fmt.Sprint(name, " of ", op), func(t *testing.T) {
				h := wire.Header{Op: op, Hops: wire.MaxHops, Asks: uint8(asks), To: 2}
				if op == wire.OpTake {
					h.Wait = time.Second
				}
				var want [][]byte // the asks as they are forwarded, without a request for a lease
				request := h.Append(nil)
				for i := range asks {
					a := ask1(bucket.ID{Hi: uint64(i), Lo: 2}, limit, int64(i+1))
					a.Spent = wire.Spent{Receipt: 5, Age: time.Second, ResetNumber: 6, StoodIn: true, OnlyLast: true}
					a.Take.Sent, a.Shadow, a.Partition = 7, true, wire.FailClosed
					want = append(want, a.Append(h.Append(nil))[wire.HeaderBytes:])
					a.Take.Want = wire.Want{Units: 1<<32 - 1, Term: 1<<16 - 2}
					request = a.Append(request)
				}
				n, v := lender()
				n.env.Begin()
				to := new(recordingPeer)
				v.Members, v.Next, v.Hashes = []cluster.Member{{}, {Name: "b", Peer: to}}, []int{0, 1}, []uint64{1, 2}
				v.Named = map[uint64]int{1: 0, 2: 1}
				b := cluster.NewBatch("c", answerChan(make(chan []byte, 1)))
				b.Requests = [][]byte{request}
				n.checks.Serve(b)
				require.NoError(t, n.env.Close(func() error { return nil }))
				require.Len(t, to.requests, 1)
				for i := range asks {
					require.Equal(t, want[i], to.requests[0][wire.HeaderBytes+i*op.AskBytes():][:op.AskBytes()], "ask %d", i)
				}
			})
		}
	}
}

// recordingPeer is a Peer that records the requests that are sent to it. Its Ask fails.
type recordingPeer struct{ requests [][]byte }

func (p *recordingPeer) Send(request []byte) { p.requests = append(p.requests, slices.Clone(request)) }

func (*recordingPeer) Delay() time.Duration { return 0 }
func (p *recordingPeer) Protocol() cluster.Protocol {
	return cluster.Protocol{Version: cluster.Version}
}

func (p *recordingPeer) Ask(_ context.Context, request, _ []byte, _ time.Duration) ([]byte, error) {
	p.Send(request)
	return nil, cluster.ErrDisconnected
}

func ask1(id bucket.ID, l *bucket.Limit, units int64) wire.Ask {
	return wire.Ask{ID: id, Limit: l, Units: units, Leases: true}
}

// denied returns the result of a take that was denied by its owner and may be tried again after
// the given time.
func denied(retry time.Duration) *wire.Result {
	return &wire.Result{Result: bucket.Result{Limit: 10, Remaining: 2, RetryAfter: retry, ResetAfter: 2 * retry}, Source: wire.Forwarded, Firm: true, ResetNumber: owner.NoReset}
}

func TestOwnerIgnoresPushbacks(t *testing.T) {
	n := solo(t, Config{})
	l := limiter(t, n, Limit{Rate: 10, Per: time.Minute})
	a := wire.Ask{ID: l.id("k"), Limit: &l.numbers, Units: 1}
	now := n.env.Time()
	require.False(t, n.asker.Denies(&a, now, new(wire.Result)))
	n.asker.Learn(&a, denied(time.Hour), 0, now)
	require.True(t, n.asker.Denies(&a, now, new(wire.Result)))
	d, err := l.Allow(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, Owner, d.Source)
	require.True(t, d.Allowed)
}
