package processtests

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/freeport"
	"github.com/weir-go/weir/internal/realtime"
)

// The procedure of docs/rotation.md for RegionSecrets, on sockets: an operator restarts
// the nodes of both regions one after the other, while the others are asked.
func TestASecretOfTwoRegionsIsRotatedInTwoRolloutsWithoutALostCheck(t *testing.T) {
	t.Parallel()
	const rate = 200
	oldSecret, newSecret := []byte("the old one of both regions....."), []byte("the new one of both regions.....")
	other := map[string]string{"eu": "us", "us": "eu"}
	at := map[string][]string{"eu": {freeport.Addr(t), freeport.Addr(t)}, "us": {freeport.Addr(t), freeport.Addr(t)}}
	start := func(region string, i int, secrets ...[]byte) *node {
		t.Helper()
		cfg := weir.Config{
			Name: region, Bind: at[region][i], Join: at[region], Region: region, Timeout: 2 * time.Second, Logger: quiet,
			Regions: map[string][]string{other[region]: at[other[region]]},
			Secrets: [][]byte{[]byte(region + " alone.....................")[:16]}, RegionSecrets: map[string][][]byte{other[region]: secrets},
		}
		return startAt(t, cfg)
	}
	var mu sync.RWMutex             // each check holds it for reading, so that Lock waits for all checks
	serving := map[string][]*node{} // those that requests are sent to
	for region := range at {
		serving[region] = []*node{start(region, 0, oldSecret), start(region, 1, oldSecret)}
	}
	whole := func(reached bool) {
		t.Helper()
		realtime.Eventually(t, "every node has the other of its region, and the key's owner reaches the other region", func() bool {
			for region, nodes := range serving {
				if reached && !slices.ContainsFunc(nodes, func(n *node) bool { return n.Stats().Regions[other[region]].Reached }) {
					return false // the key's owner is to reach it
				}
				if slices.ContainsFunc(nodes, func(n *node) bool { return !n.Ready() || len(n.Members()) != 2 }) {
					return false
				}
			}
			return true
		})
	}
	whole(false) // other regions are reached once a Global limit asks for it

	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	end := sync.OnceFunc(func() {
		stop()
		asking.Wait()
	})
	t.Cleanup(end)
	var asked, admitted atomic.Int64
	for region := range at {
		asking.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for turn := 0; ; turn++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				mu.RLock()
				n := serving[region][turn%len(serving[region])]
				l, err := n.Limiter(weir.Limit{Name: "global", Algorithm: weir.SlidingLog, Rate: rate, Per: time.Hour, Scope: weir.Global})
				var d weir.Decision
				if err == nil {
					d, err = l.Allow(context.Background(), "key")
				}
				mu.RUnlock()
				if err != nil {
					t.Errorf("a check in %s is lost: %v", region, err)
				}
				asked.Add(1)
				if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	whole(true)
	restarts := 0
	for _, secrets := range [][][]byte{{oldSecret, newSecret}, {newSecret}} {
		for _, region := range []string{"eu", "us"} {
			for i := range at[region] {
				leaving := serving[region][0] // the one that has served longest: that of at[region][i]
				require.NoError(t, leaving.Leave(t.Context()))
				mu.Lock()
				serving[region] = serving[region][1:]
				mu.Unlock()
				require.NoError(t, leaving.Close())
				n := start(region, i, secrets...)
				realtime.Eventually(t, "the node is ready", n.Ready)
				mu.Lock()
				serving[region] = append(serving[region], n)
				mu.Unlock()
				restarts++
			}
		}
		whole(true)
	}
	realtime.Eventually(t, "the limit is asked for", func() bool { return asked.Load() > rate })
	end()
	t.Logf("%d of %d admitted", admitted.Load(), asked.Load())
	require.LessOrEqual(t, admitted.Load(), int64(rate+2*restarts), "a leave and a start may each cost a unit (docs/guarantees.md)")
	require.GreaterOrEqual(t, admitted.Load(), int64(rate/2))

	n := serving["eu"][0]
	before := n.Stats().Cluster.Refused["authentication"]
	_, _, err := outsider(t, cluster.Config{
		Region: "us", Secrets: [][]byte{make([]byte, 32)}, RegionSecrets: map[string][][]byte{"eu": {oldSecret}}, Regions: map[string][]string{"eu": at["eu"][:1]},
	})
	require.NoError(t, err)
	realtime.Eventually(t, "the old one opens nothing any more", func() bool { return n.Stats().Cluster.Refused["authentication"] > before })
}
