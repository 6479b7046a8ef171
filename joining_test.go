package weir

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/cluster/clustertest"
	"github.com/weir-go/weir/internal/handover"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
	countsync "github.com/weir-go/weir/sync"
)

// pair is a cluster of two members, a and b. The node under test is member a. The test plays member
// b, which applies the frames that a sends.
type pair struct {
	cluster.Cluster
	handler  cluster.Handler
	view     atomic.Pointer[cluster.View]
	stream   *countsync.Stream // the stream of b
	complete atomic.Int64      // the number of frames that report to b that it has all counts
	frames   atomic.Int64      // the number of frames that b has applied
	given    atomic.Int64      // the number of frames with authority for b
	serves   atomic.Int64      // the number of times that the node has announced the state Serving

	unanswered atomic.Int64 // the number of further frames that are dropped on the way to b
}

func newPair() *pair {
	p := &pair{Cluster: cluster.NewSolo("a", "")}
	store := bucket.NewStore(100, bucket.Salt{})
	store.Track(uint64(view.NameHash("b")), 1, nil)
	p.stream = countsync.New(view.NameHash("b"), store)
	p.stream.Meet([]countsync.Member{view.NameHash("a")})
	p.see(cluster.Serving, 0, cluster.Serving, 0)
	return p
}

// see sets the states and the epochs of the two members in the view.
func (p *pair) see(a cluster.State, epochOfA uint64, b cluster.State, epochOfB uint64) {
	p.view.Store(&cluster.View{
		Members:   []cluster.Member{{Name: "a", State: a, Announced: a, Epoch: epochOfA}, {Name: "b", State: b, Announced: b, Epoch: epochOfB, Peer: p}},
		Connected: clustertest.Mesh(2), Direct: []bool{true, true},
	})
}

func (p *pair) Start(_ context.Context, h cluster.Handler) error {
	p.handler = h
	return nil
}

func (p *pair) View() *cluster.View { return p.view.Load() }

func (p *pair) Announce(s cluster.State) error {
	if s == cluster.Serving {
		p.serves.Add(1)
	}
	return nil
}

func (p *pair) Send([]byte) {}

func (*pair) Delay() time.Duration         { return 0 }
func (p *pair) Protocol() cluster.Protocol { return cluster.Protocol{Version: cluster.Version} }

func (p *pair) Ask(_ context.Context, request, answer []byte, _ time.Duration) ([]byte, error) {
	time.Sleep(time.Millisecond)
	p.handler.Answered()
	if wire.Op(request[0]) != wire.OpStream {
		return nil, cluster.ErrDisconnected
	}
	if p.unanswered.Add(-1) >= 0 {
		return nil, cluster.ErrTimeout
	}
	answer, a, err := p.stream.Serve(time.Now().UnixNano(), request[wire.HeaderBytes:], p, wire.AppendResponse(answer[:0], wire.Done, 0))
	p.frames.Add(1)
	if a.Complete {
		p.complete.Add(1)
	}
	if a.Authority != nil {
		p.given.Add(1)
	}
	return answer, err
}

func (p *pair) Holds(bucket.ID) bool                                           { return false }
func (p *pair) Holder(bucket.ID) countsync.Member                              { return view.NameHash("a") }
func (p *pair) Answers(bucket.ID) countsync.Member                             { return view.NameHash("a") }
func (p *pair) Targets(dst []countsync.Member, _ bucket.ID) []countsync.Member { return dst }

func scripted(t *testing.T, test func(t *testing.T, p *pair, n *Node)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair()
		n := solo(t, Config{Cluster: p, Logger: quiet})
		time.Sleep(time.Second)
		test(t, p, n)
	})
}

// A node that joins again waits until other members report that the node has all counts. A member must
// send this report again even if the joiner was off the roster only in the view of this member, and the
// keys of the joiner are the same as before.
func TestRejoinerReceivesReportOfCompletenessAgain(t *testing.T) {
	scripted(t, func(t *testing.T, p *pair, n *Node) {
		told := p.complete.Load()
		require.Positive(t, told)
		p.see(cluster.Serving, 0, cluster.Joining, 1)
		p.handler.Changed()
		time.Sleep(time.Second)
		require.Greater(t, p.complete.Load(), told)
	})
}

// A node that was off the roster must not rely on the counts that it received before.
func TestRejoinerServesOnlyAfterItReceivesCountsAgain(t *testing.T) {
	scripted(t, func(t *testing.T, p *pair, n *Node) {
		b := countsync.Arrival{From: view.NameHash("b"), Complete: true}
		n.handover.Arrived(b)
		p.see(cluster.Joining, 1, cluster.Serving, 0)
		p.handler.Changed()
		time.Sleep(time.Second)
		require.Zero(t, p.serves.Load())
		n.handover.Arrived(b)
		time.Sleep(time.Second)
		require.Positive(t, p.serves.Load())
	})
}

// The node may receive gossip before there is a connection. If the node were ready then, a deploy
// would stop the member that has the counts.
func TestDisconnectedJoinerIsReadyAfterJoinTimeout(t *testing.T) {
	for name, reachedFirst := range map[string]bool{"never connected": false, "connected, without counts": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair()
				p.see(cluster.Joining, 0, cluster.Serving, 0)
				reach := func(reached bool) {
					v := *p.view.Load()
					v.Direct = []bool{true, reached}
					v.Connected = map[bool][][]int{true: clustertest.Mesh(2), false: {nil, nil}}[reached]
					p.view.Store(&v)
				}
				reach(reachedFirst)
				n := solo(t, Config{Cluster: p, Logger: quiet})
				time.Sleep(time.Second)
				require.False(t, n.Ready())
				reach(false)
				p.handler.Changed()
				time.Sleep(defaultJoinTimeout - 2*handover.HearFor - time.Second)
				require.False(t, n.Ready())
				time.Sleep(2 * handover.HearFor)
				require.True(t, n.Ready(), "after JoinTimeout the node answers within its share")
				reach(true)
				p.handler.Changed()
				n.handover.Arrived(countsync.Arrival{From: view.NameHash("b"), Complete: true})
				time.Sleep(time.Second)
				require.Positive(t, p.serves.Load())
			})
		})
	}
}

// Frames of a scan have pauses between them, so that there is time for checks. There must be no
// pauses while a transfer of authority to the same member is queued, because no member has the
// authority at that time.
func TestScanDoesNotDelayAuthority(t *testing.T) {
	scripted(t, func(t *testing.T, p *pair, n *Node) {
		b, limit := view.NameHash("b"), bucket.Limit{Rate: 100, Per: time.Hour}
		for i := range uint64(2000) {
			n.counts.Take(bucket.ID{Hi: (i + 1) << 48, Lo: i + 1}, &limit, n.env.Now(), 1)
		}
		n.handover.Stream().Collect(n.env.Now(), false, n.handover.View())
		n.handover.Stream().Transfer(b, 1, countsync.All(), n.env.Now())
		n.handover.Stream().Owe(b, countsync.All())
		begun, sent := time.Now(), p.frames.Load()
		n.handover.Wake([]countsync.Member{b})
		for p.given.Load() == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		frames := p.frames.Load() - sent
		require.Greater(t, frames, int64(3), "the counts that were queued before are sent before the authority")
		require.LessOrEqual(t, time.Since(begun), time.Duration(frames+2)*time.Millisecond)
	})
}

// If there is no response to a frame, the counts of the frame are sent again.
func TestUnacknowledgedCountsAreSentAgain(t *testing.T) {
	scripted(t, func(t *testing.T, p *pair, n *Node) {
		b, limit := view.NameHash("b"), bucket.Limit{Rate: 100, Per: time.Hour}
		p.unanswered.Store(2)
		n.counts.Take(bucket.ID{Hi: 1 << 48, Lo: 1}, &limit, n.env.Now(), 1)
		n.handover.Stream().Collect(n.env.Now(), false, n.handover.View())
		require.Equal(t, 1, n.handover.Stream().Lag(b, n.env.Now()).Counts)
		time.Sleep(time.Second)
		require.Negative(t, p.unanswered.Load())
		require.Zero(t, n.handover.Stream().Lag(b, n.env.Now()).Counts)
	})
}
