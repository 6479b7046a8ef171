package cluster_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
)

// countedNames is a network that counts lookups.
type countedNames struct {
	cluster.Network
	lookups *atomic.Int64
}

func (n countedNames) LookupHost(ctx context.Context, host string) ([]string, error) {
	n.lookups.Add(1)
	return n.Network.LookupHost(ctx, host)
}

func TestNodesAtRestSeldomLookUpNames(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		var lookups atomic.Int64
		join := func(host, name string) *node {
			cfg := h.configure(host, config(""))
			cfg.Join, cfg.Network = []string{name}, countedNames{cfg.Network, &lookups}
			return startNode(t, cfg)
		}
		h.Host("a")
		h.Host("c")
		h.SetName("one", "a")
		h.SetName("two", "c")
		a, b := join("a", "one"), join("b", "one")
		join("c", "two")
		join("d", "two")
		time.Sleep(time.Minute)
		lookups.Store(0)
		time.Sleep(time.Minute)
		// A node looks up an entry of Join and its own address once in 8 to 16 s.
		require.LessOrEqual(t, lookups.Load(), int64(4*2*8))

		h.SetName("one", "a", "c")
		waitFor(t, 20*time.Second, "two clusters that began apart meet", func() bool {
			return len(a.View().Members) == 4 && len(b.View().Members) == 4
		})
	})
}

func TestNodeLooksUpUnresolvedNameAtFullPace(t *testing.T) {
	t.Parallel()
	onHosts(t, func(t *testing.T, h hosts) {
		var lookups atomic.Int64
		b := startNode(t, h.configure("b", config("b")))
		cfg := h.configure("a", config("a", b))
		cfg.Join, cfg.Network = append(cfg.Join, "later"), countedNames{cfg.Network, &lookups}
		startNode(t, cfg)
		time.Sleep(time.Minute)
		lookups.Store(0)
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, lookups.Load(), int64(2*60/4), "a round, with both entries of Join, begins at most 4 s after another")
	})
}
