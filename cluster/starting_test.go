package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
)

// newJoiner returns a node whose Join has an address that does not answer, and other addresses.
func (h hosts) newJoiner(t *testing.T, others ...string) cluster.Cluster {
	h.Host("stale").Freeze()
	cfg := h.configure("joiner", config("joiner"))
	cfg.Join = append([]string{"stale:7946"}, others...)
	c := cluster.NewGossip(cfg)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestMemberIsFoundBeforeStaleAddressTimesOut(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		h.startMembers(t, 1, 0)
		c := h.newJoiner(t, hostName(0))
		begun := time.Now()
		found := make(chan time.Duration, 1)
		require.NoError(t, c.Start(context.Background(), onChange(func() {
			if v := c.View(); len(v.Direct) == 2 && v.Direct[0] && v.Direct[1] {
				select {
				case found <- time.Since(begun):
				default:
				}
			}
		})))
		require.GreaterOrEqual(t, time.Since(begun), time.Second, "Start waits for the stale address")
		select {
		case after := <-found:
			require.Less(t, after, time.Second)
		default:
			t.Fatal("Start has returned before Changed has reported the member")
		}
	})
}

func TestChangedIsCalledBeforeMembersAreFound(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		c := h.newJoiner(t)
		self := make(chan int, 1)
		ctx, cancel := context.WithCancel(context.Background())
		err := c.Start(ctx, onChange(func() {
			select {
			case self <- c.View().Self:
				cancel()
			default:
			}
		}))
		require.ErrorIs(t, err, context.Canceled, "Start waits for the stale address until ctx is canceled")
		require.Zero(t, <-self)
	})
}

// If a starting node did not find the only answering address among the stale addresses, it
// would count alone until its next attempt.
func TestStartFindsTheOnlyAddressThatAnswers(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		h.startMembers(t, 1, 0)
		join := []string{hostName(0) + ":7946"}
		for i := range 30 {
			stale := fmt.Sprint("stale", i)
			h.Host(stale).Freeze()
			join = append(join, stale+":7946")
		}
		for i := 1; i <= 4; i++ {
			cfg := h.configure(hostName(i), config("m"))
			cfg.Join = join
			begun := time.Now()
			n := startNode(t, cfg)
			require.Greater(t, len(n.View().Members), 1, "the node has found no member")
			require.Less(t, time.Since(begun), 5*time.Second)
		}
	})
}

// All nodes join a seed that starts to listen just after the first attempts of the other nodes.
func TestNodesFindSeedThatStartsLater(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		h.Host("seed")
		start := func(host string) *node {
			cfg := h.configure(host, config(host))
			cfg.Join = []string{"seed:7946"}
			return startNode(t, cfg)
		}
		all := []*node{start("a"), start("b")}
		time.Sleep(100 * time.Millisecond)
		all = append(all, start("seed"))
		waitFor(t, time.Second, "all know each other", func() bool {
			return !slices.ContainsFunc(all, func(n *node) bool { return len(n.View().Members) != len(all) })
		})
	})
}
