package cluster_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/testenv"
)

// If most addresses of Join cannot be reached, members that start together may find each other before a
// serving member. They must continue until they find a serving member. Otherwise they would form a
// separate cluster.
func TestJoinersThatMeetFirstStillFindAServingMember(t *testing.T) {
	for name, introduced := range map[string]bool{"by their own tries": false, "by another newcomer, before they try": true} {
		t.Run(name, func(t *testing.T) {
			for range testenv.PickFull(t, 8, 20) { // the order of the addresses is random
				onHosts(t, func(t *testing.T, h hosts) { requireNewcomersFindServing(t, h, introduced) })
			}
		})
	}
}

func requireNewcomersFindServing(t *testing.T, h hosts, introduced bool) {
	join := []string{"a:7946", "f:7946", "g:7946"}
	var lost []string
	for i := range 6 {
		lost = append(lost, fmt.Sprint("lost", i))
		join = append(join, lost[i]+":7946")
	}
	for _, name := range append([]string{"a", "f", "g", "h"}, lost...) {
		h.Host(name)
	}
	h.Split([]string{"a", "f", "g", "h"}, lost)
	var started sync.WaitGroup
	start := func(name string, slow time.Duration, join ...string) cluster.Cluster {
		cfg := h.configure(name, config(""))
		cfg.Name, cfg.Join, cfg.Network = name, join, slowNames{cfg.Network, slow}
		c := cluster.NewGossip(cfg)
		t.Cleanup(func() { c.Close() })
		started.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // shorter than an attempt at an address that cannot be reached
			defer cancel()
			assert.NoError(t, c.Start(ctx, mute))
		})
		return c
	}
	a := start("a", 0)
	started.Wait()
	require.NoError(t, a.Announce(cluster.Serving))

	var newcomers []cluster.Cluster
	for _, name := range []string{"f", "g"} {
		var slow time.Duration
		if introduced {
			slow = 50 * time.Millisecond
		}
		newcomers = append(newcomers, start(name, slow, join...))
	}
	if introduced {
		time.Sleep(10 * time.Millisecond) // until the newcomers listen
		start("h", 0, "f:7946", "g:7946")
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
