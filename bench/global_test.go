package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/cluster"
)

// BenchmarkGlobal is an owned check of a Global limit, which another region shares,
// beside the same check of a Regional one.
func BenchmarkGlobal(b *testing.B) {
	n := startRegion(b)
	for _, name := range []string{"token_bucket", "sliding_window"} {
		for _, keys := range []int{1, 100_000} {
			for _, scope := range []weir.Scope{weir.Regional, weir.Global} {
				limit := limitOf(name)
				limit.Name, limit.Scope = fmt.Sprint(name, scope), scope
				l, err := n.Limiter(limit)
				require.NoError(b, err)
				owned := ownedBy(l, keys)
				b.Run(fmt.Sprintf("algorithm=%s/keys=%d/scope=%s", name, keys, [...]string{"regional", "global"}[scope]), func(b *testing.B) {
					benchmarkKeys(b, owned, func(key string) bool {
						d, err := l.Allow(context.Background(), key)
						return err == nil && d.Allowed
					})
				})
			}
		}
	}
}

// startRegion starts a node of one region, and one of another that answers it, and
// waits until the first holds its part of every limit.
func startRegion(tb testing.TB) *weir.Node {
	far := &abroad{served: &served{roster: newRoster(1)}, region: "far", begun: make(chan struct{})}
	near := &abroad{served: &served{roster: newRoster(ringMembers)}, region: "near", begun: make(chan struct{})}
	far.to, near.to = near, far
	var nodes []*weir.Node
	for _, at := range []*abroad{near, far} {
		n, err := weir.Start(context.Background(), weir.Config{
			Cluster: at, Replicas: -1, MaxKeys: 2 * worker.Million, Logger: quiet(),
			Region: at.region, Regions: map[string][]string{at.to.region: {"192.0.2.1:7946"}},
		})
		require.NoError(tb, err)
		tb.Cleanup(func() { require.NoError(tb, n.Close()) })
		nodes = append(nodes, n)
	}
	l, err := nodes[0].Limiter(weir.Limit{Name: "begun", Rate: worker.Million, Per: time.Second, Scope: weir.Global})
	require.NoError(tb, err)
	key := ownedBy(l, 1)[0]
	require.Eventually(tb, func() bool {
		d, err := l.Allow(context.Background(), key)
		return err == nil && d.Allowed
	}, time.Minute, 100*time.Millisecond, "the region holds nothing")
	time.Sleep(12 * time.Second) // until nothing granted before it began can be in use any more
	return nodes[0]
}

// abroad is a roster whose node has another region to ask, in the same process.
type abroad struct {
	*served
	region string
	to     *abroad
	begun  chan struct{} // closed once its node can be asked
}

func (a *abroad) Region(string) cluster.Peer { return a }

func (a *abroad) Start(ctx context.Context, h cluster.Handler) error {
	if err := a.roster.Start(ctx, h); err != nil {
		return err
	}
	defer close(a.begun)
	return a.served.Start(ctx, h)
}

// Ask implements cluster.Peer.
func (a *abroad) Ask(_ context.Context, request, answer []byte, _ time.Duration) ([]byte, error) {
	select {
	case <-a.to.begun:
	default:
		return answer[:0], cluster.ErrUnheard
	}
	w := &wire{}
	b := cluster.NewBatch("abroad", w)
	b.Region, b.Requests = a.region, [][]byte{request}
	a.to.handler.Serve(b)
	if w.answer == nil {
		return answer[:0], cluster.ErrUnheard
	}
	return append(answer[:0], w.answer...), nil
}

func (a *abroad) Tell([]byte) {}

func (*abroad) Delay() time.Duration         { return 0 }
func (a *abroad) Protocol() cluster.Protocol { return cluster.Protocol{Version: cluster.Version} }
