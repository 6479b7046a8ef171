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

// Members that start together may meet each other first, and know nobody who serves, where
// most of Join is out of reach. They go on until they have found one, or would begin a
// cluster of their own.
func TestJoinersThatMeetFirstStillFindAServingMember(t *testing.T) {
	for name, introduced := range map[string]bool{"by their own tries": false, "by another newcomer, before they try": true} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // which addresses are tried first is drawn
				inBubble(t, func(t *testing.T) { newcomersFindOneWhoServes(t, introduced) })
			}
		})
	}
}

func newcomersFindOneWhoServes(t *testing.T, introduced bool) {
	n := weirtest.NewNetwork(1, weirtest.Link{Latency: 100 * time.Microsecond})
	join := []string{"a:7946", "f:7946", "g:7946"}
	var lost []string
	for i := range 6 {
		lost = append(lost, fmt.Sprint("lost", i))
		join = append(join, lost[i]+":7946")
	}
	for _, name := range append([]string{"a", "f", "g", "h"}, lost...) {
		n.Host(name)
	}
	n.Split([]string{"a", "f", "g", "h"}, lost)
	var started sync.WaitGroup
	start := func(name string, network cluster.Network, join ...string) cluster.Cluster {
		c := cluster.NewGossip(cluster.Config{Name: name, Bind: name + ":7946", Join: join, Secrets: secret, Logger: quiet, Network: network})
		t.Cleanup(func() { c.Close() })
		started.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // before those out of reach are given up
			defer cancel()
			if err := c.Start(ctx, onChange(func() {})); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	a := start("a", n.Host("a").Network())
	started.Wait()
	require.NoError(t, a.Announce(cluster.Serving))

	var newcomers []cluster.Cluster
	for _, name := range []string{"f", "g"} {
		network := n.Host(name).Network()
		if introduced {
			network = slowNames{network, 50 * time.Millisecond}
		}
		newcomers = append(newcomers, start(name, network, join...))
	}
	if introduced {
		time.Sleep(10 * time.Millisecond) // they listen
		start("h", n.Host("h").Network(), "f:7946", "g:7946")
	}
	started.Wait()
	for _, c := range newcomers {
		v, serves := c.View(), false
		for _, m := range v.Members {
			serves = serves || m.Name == "a" && m.Announced == cluster.Serving
		}
		require.True(t, serves, "%s has found %v", v.Members[v.Self].Name, v.Members)
	}
}
