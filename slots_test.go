package weir

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// deaf is a node's cluster in which m002 never answers a check. The others answer at once.
type deaf struct {
	*crowd
	held atomic.Int64 // checks that m002 has, now
}

func newDeaf() *deaf {
	d := &deaf{crowd: newCrowd(4, 0)}
	d.view.Members[2].Peer = deafPeer{d.crowd, d}
	for _, i := range []int{1, 3} {
		d.view.Members[i].Peer = promptPeer{d.crowd}
	}
	return d
}

type deafPeer struct {
	*crowd
	d *deaf
}

func (p deafPeer) Ask(ctx context.Context, request, answer []byte, wait time.Duration) ([]byte, error) {
	if wire.Op(request[0]) > wire.OpPeek {
		return p.crowd.Ask(ctx, request, answer, wait)
	}
	p.d.held.Add(1)
	defer p.d.held.Add(-1)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return answer[:0], cluster.ErrTimeout
}

type promptPeer struct{ *crowd }

func (p promptPeer) Ask(ctx context.Context, request, answer []byte, wait time.Duration) ([]byte, error) {
	if wire.Op(request[0]) > wire.OpPeek {
		return p.crowd.Ask(ctx, request, answer, wait)
	}
	return (&wire.Result{Result: bucket.Result{Allowed: true}}).Append(wire.AppendAnswer(answer[:0], wire.Done, 1)), nil
}

// openRequests counts the requests of a batch that have no answer yet.
type openRequests struct{ many, status atomic.Int64 }

func (u *openRequests) Reply(_ int, body []byte) {
	u.many.Add(-1)
	if len(body) > 0 {
		u.status.Store(int64(body[0]))
	}
}

func (u *openRequests) Later(i int) cluster.Later { return func(body []byte) { u.Reply(i, body) } }

// A member says itself how long it waits, and for whom. What it says neither holds the
// slots of a node for longer than the node waits itself, nor takes those of other members.
func TestNoMemberHoldsTheSlotsOfOthers(t *testing.T) {
	t.Parallel()
	const bursts, burst, longest = 3, 3000, time.Duration(math.MaxUint32) * time.Microsecond
	for _, c := range []struct {
		about string
		to    string
		flags uint8
		edit  func(n *Node, v *view.View)
	}{
		{"asks for a member that never answers", "m002", 0, nil},
		{"asks to stand in for it", "m002", wire.FlagStandIn, nil},
		{"asks that wait for authority", "m000", 2, func(n *Node, v *view.View) {
			v.Held, v.Settled = nil, false
			v.Waits = []view.Wait{{Ranges: countsync.All(), From: "m002", Until: n.env.Steady() + int64(2*longest)}}
		}},
	} {
		for _, from := range []string{"m001", "made up"} {
			t.Run(c.about+", from "+from, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDeaf()
					n := solo(t, Config{Cluster: d, Logger: quiet, Replicas: -1})
					if c.edit != nil {
						edit(n, func(v *view.View) { c.edit(n, v) })
					}
					asked := func(from, to string, flags uint8, many int) *openRequests {
						u := new(openRequests)
						u.many.Store(int64(many))
						b := cluster.NewBatch(from, u)
						a := wire.Ask{ID: bucket.ID{Hi: 1, Lo: 1}, Limit: &bucket.Limit{Rate: 1, Per: time.Second}, Units: 1}
						for range many {
							b.Requests = append(b.Requests, a.Append(wire.Header{Op: wire.OpTake, Flags: flags, Hops: wire.MaxHops, Asks: 1, Wait: longest, To: view.NameHash(to)}.Append(nil)))
						}
						d.handler.Heard()
						inbound{n}.Serve(b)
						return u
					}
					var waiting []*openRequests
					for range bursts {
						waiting = append(waiting, asked(from, c.to, c.flags, burst))
					}
					synctest.Wait()
					held := int64(0)
					for _, u := range waiting {
						held += u.many.Load()
					}
					require.Positive(t, held)
					require.LessOrEqual(t, held, int64(env.MaxOfOneSender))
					honest := asked("m003", "m001", 0, 1)
					synctest.Wait()
					require.Zero(t, honest.many.Load())
					require.EqualValues(t, wire.Done, honest.status.Load(), "another member has slots of its own")

					time.Sleep(n.cfg.longestWait())
					synctest.Wait()
					for _, u := range waiting {
						require.Zero(t, u.many.Load())
					}
					require.Zero(t, d.held.Load())
				})
			})
		}
	}
}
