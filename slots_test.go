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
	if op(request[0]) > opPeek {
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
	if op(request[0]) > opPeek {
		return p.crowd.Ask(ctx, request, answer, wait)
	}
	return (&result{Result: bucket.Result{Allowed: true}}).append(appendAnswer(answer[:0], statusDone, 1)), nil
}

// A member says itself how long it waits, and for whom. What it says neither holds the
// slots of a node for longer than the node waits itself, nor takes those of other members.
func TestNoMemberHoldsTheSlotsOfOthers(t *testing.T) {
	const bursts, burst, longest = 3, 3000, time.Duration(math.MaxUint32) * time.Microsecond
	for _, c := range []struct {
		about string
		to    string
		flags uint8
		edit  func(n *Node, v *view)
	}{
		{"asks for a member that never answers", "m002", 0, nil},
		{"asks to stand in for it", "m002", flagStandIn, nil},
		{"asks that wait for authority", "m000", 2, func(n *Node, v *view) {
			v.held, v.settled = nil, false
			v.waits = []wait{{ranges: countsync.All(), from: "m002", until: n.steady() + int64(2*longest)}}
		}},
	} {
		for _, from := range []string{"m001", "made up"} {
			t.Run(c.about+", from "+from, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDeaf()
					n := solo(t, Config{Cluster: d, Logger: quiet, Replicas: -1})
					if c.edit != nil {
						edit(n, func(v *view) { c.edit(n, v) })
					}
					asked := func(from, to string, flags uint8, many int) (got answers, pending func() int) {
						got = make(answers, many)
						b := cluster.NewBatch(from, got)
						a := ask{id: bucket.ID{Hi: 1, Lo: 1}, limit: &bucket.Limit{Rate: 1, Per: time.Second}, units: 1}
						for range many {
							b.Requests = append(b.Requests, a.append(header{opTake, flags, maxHops, 1, longest, nameHash(to)}.append(nil)))
						}
						d.handler.Heard()
						inbound{n}.Serve(b)
						return got, func() (pending int) {
							for _, answer := range got {
								if answer == nil {
									pending++
								}
							}
							return pending
						}
					}
					var waiting []func() int
					for range bursts {
						_, pending := asked(from, c.to, c.flags, burst)
						waiting = append(waiting, pending)
					}
					synctest.Wait()
					held := 0
					for _, pending := range waiting {
						held += pending()
					}
					require.Positive(t, held)
					require.LessOrEqual(t, held, maxBackground/4)
					honest, _ := asked("m003", "m001", 0, 1)
					synctest.Wait()
					s, err := parseAnswer(honest[0], 1)
					require.NoError(t, err)
					require.Equal(t, statusDone, s, "another member has slots of its own")

					time.Sleep(n.longestWait())
					synctest.Wait()
					for _, pending := range waiting {
						require.Zero(t, pending())
					}
					require.Zero(t, d.held.Load())
				})
			})
		}
	}
}
