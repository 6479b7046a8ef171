package cluster_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

// Those who start together may meet each other first, and know nobody who serves, where
// most of Join is out of reach. They go on until they have found one, or would begin a
// cluster of their own.
func TestNewcomersWhoHaveMetEachOtherGoOnToFindOneWhoServes(t *testing.T) {
	for range 20 { // which addresses are tried first is drawn
		inBubble(t, func(t *testing.T) {
			n := weirtest.NewNetwork(1, weirtest.Link{Latency: 100 * time.Microsecond})
			side, join := []string{"a", "f", "g"}, []string{"a:7946", "f:7946", "g:7946"}
			var lost []string
			for i := range 6 {
				lost = append(lost, fmt.Sprint("lost", i))
				n.Host(lost[i])
				join = append(join, lost[i]+":7946")
			}
			node := func(name string) cluster.Cluster {
				c := cluster.NewGossip(cluster.Config{
					Name: name, Bind: name + ":7946", Join: join, Secrets: secret, Logger: quiet, Network: n.Host(name).Network(),
				})
				t.Cleanup(func() { c.Close() })
				return c
			}
			a := node("a")
			require.NoError(t, a.Start(t.Context(), onChange(func() {})))
			require.NoError(t, a.Announce(cluster.Serving))
			for _, name := range side[1:] {
				n.Host(name)
			}
			n.Split(side, lost)
			var started sync.WaitGroup
			newcomers := []cluster.Cluster{node("f"), node("g")}
			for _, c := range newcomers {
				started.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second) // sooner than those out of reach are given up
					defer cancel()
					if err := c.Start(ctx, onChange(func() {})); err != nil {
						t.Error(err)
					}
				})
			}
			started.Wait()
			for _, c := range newcomers {
				v, serves := c.View(), false
				for _, m := range v.Members {
					serves = serves || m.Name == "a" && m.Announced == cluster.Serving
				}
				require.True(t, serves, "%s has found %v", v.Members[v.Self].Name, v.Members)
			}
		})
	}
}
