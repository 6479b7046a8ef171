package regions

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/bucket"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/env"
	"github.com/weir-go/weir/internal/view"
	"github.com/weir-go/weir/internal/wire"
)

// node is the only node of its region.
type node struct {
	*Regions
	env.Env
}

// neighbor is the cluster of a node that knows one node of the other region.
type neighbor struct {
	cluster.Cluster
	peer func() cluster.Peer
}

func (n neighbor) Region(string) cluster.Peer { return n.peer() }

// newNode returns the only node of a region. The function peer returns the node of the other
// region.
func newNode(region, other string, log *slog.Logger, peer func() cluster.Peer) *node {
	n := &node{Env: env.Env{Region: region, Clock: env.NewClock(nil)}}
	n.Begin()
	v := view.New(n.Monotonic(), &cluster.View{
		Members:   []cluster.Member{{Name: region, Region: region, State: cluster.Serving, Announced: cluster.Serving}},
		Connected: [][]int{nil}, Direct: []bool{true},
	}, view.Terms{}, nil)
	n.Store(v)
	n.Regions = New(Config{
		Others: []string{other}, Statements: 100, Timeout: time.Second,
		Log: log, Env: &n.Env, Cluster: neighbor{peer: peer},
		Replicate: func([]bucket.ID, int64, *view.View) {},
	}, bucket.NewStore(100, bucket.Salt{}))
	return n
}

// way is the connection from a region to a node of another region.
type way struct {
	from string
	to   *node
}

func (l way) Ask(ctx context.Context, request, _ []byte, wait time.Duration) ([]byte, error) {
	h, err := wire.ParseHeader(request)
	if err != nil {
		return nil, err
	}
	batch := cluster.NewBatch(l.from, nil)
	batch.Region = l.from
	if refusal, err := l.to.Border(batch, &h, request, l.to.Now()); refusal != nil || err != nil {
		return refusal, err
	}
	answer := make(chan []byte, 1)
	l.to.Serve(env.Sender{Region: l.from, Name: l.from}, request, h, func(body []byte) { answer <- body })
	select {
	case body := <-answer:
		return body, nil
	case <-time.After(wait):
		return nil, cluster.ErrTimeout
	}
}

func (way) Send([]byte) {}

func (way) Delay() time.Duration       { return 0 }
func (way) Protocol() cluster.Protocol { return cluster.Protocol{} }

// Each of two regions begins with half of a limit. The region with all the demand is granted the
// unused units of the other region, and the limit is never exceeded.
func TestRegionIsGrantedUnusedUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var near, far *node
		near = newNode("near", "far", slog.New(slog.DiscardHandler), func() cluster.Peer { return way{"near", far} })
		far = newNode("far", "near", slog.New(slog.DiscardHandler), func() cluster.Peer { return way{"far", near} })
		for _, n := range []*node{near, far} {
			n.Go(n.Run)
			defer func() { _ = n.Close(func() error { return nil }) }()
		}
		time.Sleep(15 * time.Second) // until then, a region that has just started assumes that it may have been granted units before its start

		limit := &bucket.Limit{Algorithm: bucket.FixedWindow, Rate: 100, Per: 24 * time.Hour, Start: near.Now()}
		id := bucket.ID{Hi: wire.GlobalIDBit, Lo: 1}
		take := func(n *node) (allowed int) {
			for range 200 {
				var r bucket.Result
				n.Holdings.TakeUnits(id, limit, n.Time(), 1, &r)
				if r.Allowed {
					allowed++
				}
			}
			return allowed
		}
		began := take(near)
		require.Equal(t, 50, began)
		granted := 0
		for range 20 {
			time.Sleep(time.Second)
			granted += take(near)
		}
		rest := take(far)
		require.Greater(t, granted, 25)
		require.LessOrEqual(t, began+granted+rest, 100)
		require.True(t, near.Stats()["far"].Reached)
		require.Zero(t, far.Stats()["near"].Refused)
	})
}
