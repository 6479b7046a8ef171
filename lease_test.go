package weir

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/asker"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/owner"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// lender is an owner of everything, without a network.
func lender() (*Node, *view.View) {
	still := func() int64 { return 0 }
	counts := bucket.NewStore(10, bucket.Salt{})
	n := &Node{counts: counts, env: env.Env{Clock: env.OneClock(still)}}
	n.handover = handover.New(handover.Config{Clock: n.env.Clock, Counts: counts, Stream: countsync.New(1, counts), Swapped: func(*view.View) {}})
	n.handover.Stream().WhenReset(n.whenReset)
	n.owner = owner.New(n.env.Clock, 0, counts, n.handover.Stream(), nil)
	n.asker = asker.New(n.env.Clock, &n.env.Life, 0, n.owner.ResetNumber, n.handover.View, n.tell)
	v := &view.View{View: &cluster.View{Self: 0}, Complete: true}
	v.Held = countsync.All()
	n.handover.Step(func(*view.View) *view.View { return v })
	return n, v
}

// A lease is of the member that was asked, so that whoever hands an ask on asks for none. The
// age of a receipt, which has its place, goes on.
func TestAnAskThatIsHandedOnWantsNoLease(t *testing.T) {
	limit := &bucket.Limit{Rate: 100, Per: time.Minute, Algorithm: TokenBucket, Burst: 7, Version: 3}
	for name, asks := range map[string]int{"one": 1, "two": 2, "all that a request may have": wire.MaxAsks} {
		for _, op := range []wire.Op{wire.OpTake, wire.OpRefund, wire.OpDebit} { // one is asked, and the others told
			t.Run(fmt.Sprint(name, " of ", op), func(t *testing.T) {
				h := wire.Header{Op: op, Hops: wire.MaxHops, Asks: uint8(asks)}
				if op == wire.OpTake {
					h.Wait = time.Second
				}
				var want [][]byte // each without its lease
				request := h.Append(nil)
				for i := range asks {
					a := ask1(bucket.ID{Hi: uint64(i), Lo: 2}, limit, int64(i+1))
					a.Receipt, a.ResetNumber, a.Shadow, a.Partition = 5, 6, true, wire.FailClosed
					if op == wire.OpDebit {
						a.ReceiptAge = time.Second
					}
					want = append(want, a.Append(nil))
					a.Lease = wire.Lease{Units: 1<<32 - 1, Term: 1<<16 - 2, Until: 1<<32 - 1}
					request = a.Append(request)
				}
				n, v := lender()
				n.pools.exchanges.New = func() any { return new(exchange) }
				n.env.Begin()
				to := new(handedOn)
				v.Members, v.Next, v.Hashes = []cluster.Member{{}, {Name: "b", Peer: to}}, []int{0, 1}, []uint64{1, 2}
				n.handOn(v, 1, h, request, nil, func([]byte) {}, n.env.Try)
				require.NoError(t, n.env.Close(func() error { return nil }))
				require.Len(t, to.requests, 1)
				for i := range asks {
					require.Equal(t, want[i], to.requests[0][wire.HeaderBytes+i*wire.AskBytes:][:wire.AskBytes], "ask %d", i)
				}
			})
		}
	}
}

// handedOn is a member that keeps what it is asked and told.
type handedOn struct{ requests [][]byte }

func (p *handedOn) Tell(request []byte) { p.requests = append(p.requests, slices.Clone(request)) }

func (*handedOn) Delay() time.Duration         { return 0 }
func (p *handedOn) Protocol() cluster.Protocol { return cluster.Protocol{Version: cluster.Version} }

func (p *handedOn) Ask(_ context.Context, request, _ []byte, _ time.Duration) ([]byte, error) {
	p.Tell(request)
	return nil, cluster.ErrUnheard
}

func ask1(id bucket.ID, l *bucket.Limit, units int64) wire.Ask {
	return wire.Ask{ID: id, Limit: l, Units: units, Leases: true}
}
