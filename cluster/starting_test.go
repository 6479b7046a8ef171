package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/weirtest"
)

// onChange is a handler of Changed alone.
type onChange func()

func (f onChange) Changed()                        { f() }
func (onChange) Heard()                            {}
func (onChange) Serve(*cluster.Batch)              {}
func (onChange) Late(cluster.Peer, []byte, []byte) {}

// staleJoiner joins what never answers, and then others.
func staleJoiner(n *weirtest.Network, others ...string) cluster.Cluster {
	n.Host("stale").Freeze()
	return cluster.NewGossip(cluster.Config{
		Name: "joiner", Bind: "joiner:7946", Join: append([]string{"stale:7946"}, others...),
		Secrets: secret, Logger: quiet, Network: n.Host("joiner").Network(),
	})
}

func TestAStaleAddressToJoinKeepsNoMemberFromTheNodeAbove(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		a := virtual(t, n, 0)
		defer a.Close()
		c := staleJoiner(n, hostName(0))
		defer c.Close()
		begun := time.Now()
		heard := make(chan time.Duration, 1)
		require.NoError(t, c.Start(context.Background(), onChange(func() {
			if v := c.View(); len(v.Direct) == 2 && v.Direct[0] && v.Direct[1] {
				select {
				case heard <- time.Since(begun):
				default:
				}
			}
		})))
		require.GreaterOrEqual(t, time.Since(begun), time.Second, "Start waits for the stale address")
		select {
		case after := <-heard:
			require.Less(t, after, time.Second)
		default:
			t.Fatal("Start has returned, and Changed has told of nobody")
		}
	})
}

func TestChangedTellsOfTheNodeItselfBeforeAnybodyIsFound(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		c := staleJoiner(n)
		defer c.Close()
		self := make(chan int, 1)
		ctx, cancel := context.WithCancel(context.Background())
		err := c.Start(ctx, onChange(func() {
			select {
			case self <- c.View().Self:
				cancel()
			default:
			}
		}))
		require.ErrorIs(t, err, context.Canceled, "it would have waited for the stale address")
		require.Zero(t, <-self)
	})
}

// It would count alone else, until it tries again.
func TestAStarterFindsTheOneAddressThatAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		a := virtual(t, n, 0)
		defer a.Close()
		join := []string{hostName(0) + ":7946"}
		for i := range 30 {
			stale := fmt.Sprint("stale", i)
			n.Host(stale).Freeze()
			join = append(join, stale+":7946")
		}
		for i := 1; i <= 4; i++ {
			c := cluster.NewGossip(cluster.Config{
				Name: hostName(i), Bind: hostName(i) + ":7946", Join: join,
				Secrets: secret, Logger: quiet, Network: n.Host(hostName(i)).Network(),
			})
			defer c.Close()
			begun := time.Now()
			require.NoError(t, c.Start(context.Background(), onChange(func() {})))
			require.Greater(t, len(c.View().Members), 1, "it knows nobody")
			require.Less(t, time.Since(begun), 5*time.Second)
		}
	})
}

// All join one seed, which begins to listen a moment after the others have tried it.
func TestNodesFindASeedThatStartsAMomentLater(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := weirtest.NewNetwork(1, weirtest.Link{Latency: time.Millisecond})
		start := func(i int) cluster.Cluster {
			c := cluster.NewGossip(cluster.Config{
				Name: hostName(i), Bind: hostName(i) + ":7946", Join: []string{hostName(2) + ":7946"},
				Secrets: secret, Logger: quiet, Network: n.Host(hostName(i)).Network(),
			})
			require.NoError(t, c.Start(context.Background(), onChange(func() {})))
			return c
		}
		n.Host(hostName(2))
		all := []cluster.Cluster{start(0), start(1)}
		time.Sleep(100 * time.Millisecond)
		all = append(all, start(2))
		within(t, time.Second, "all know each other", func() bool {
			for _, c := range all {
				if len(c.View().Members) != len(all) {
					return false
				}
			}
			return true
		})
		for _, c := range all {
			require.NoError(t, c.Close())
		}
	})
}
