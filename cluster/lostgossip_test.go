package cluster_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster"
)

// gossipLoser is a network that can lose all gossip that a node sends, and no messages between peers.
type gossipLoser struct {
	cluster.Network
	loses *atomic.Bool
}

func (n gossipLoser) Listen(ctx context.Context, addr string) (net.Listener, net.PacketConn, error) {
	l, p, err := n.Network.Listen(ctx, addr)
	return l, losingPackets{p, n.loses}, err
}

func (n gossipLoser) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := n.Network.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return losingConn{conn, n.loses}, nil
}

type losingPackets struct {
	net.PacketConn
	loses *atomic.Bool
}

func (p losingPackets) WriteTo(b []byte, to net.Addr) (int, error) {
	if p.loses.Load() {
		return len(b), nil
	}
	return p.PacketConn.WriteTo(b, to)
}

// losingConn fails to open a stream of gossip, whose first byte is written alone.
type losingConn struct {
	net.Conn
	loses *atomic.Bool
}

func (c losingConn) Write(b []byte) (int, error) {
	if len(b) == 1 && b[0] == cluster.FirstByteGossip && c.loses.Load() {
		return 0, errors.New("the stream of gossip is lost")
	}
	return c.Conn.Write(b)
}

// Without gossip, memberlist reports the death of each member after some seconds.
func TestMemberDoesNotDieOfLostGossip(t *testing.T) {
	onHosts(t, func(t *testing.T, h hosts) {
		const members = 3
		var loses atomic.Bool
		h.setAll(members)
		var nodes []cluster.Cluster
		for i := range members {
			cfg := h.configure(hostName(i), config(""))
			cfg.Name, cfg.Join, cfg.Network = memberName(i), []string{"all"}, gossipLoser{cfg.Network, &loses}
			nodes = append(nodes, startNode(t, cfg))
		}
		waitFor(t, 15*time.Second, "all members find each other", func() bool { return rostersAre(nodes, servingMembers(members)) })
		loses.Store(true)
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(50 * time.Millisecond) {
			require.True(t, rostersAre(nodes, servingMembers(members)), "after %v: %v", time.Since(begun), memberStates(nodes))
		}
		h.Host(hostName(0)).Kill()
		waitFor(t, 20*time.Second, "the reports of gossip count for a member that is not reached", func() bool {
			return nodes[1].(*node).roster()[memberName(0)] == cluster.Dead
		})
	})
}
