package cluster

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// dialAs returns a connection of the named member to p, after the handshake.
func dialAs(t *testing.T, p *testPeer, name string) net.Conn {
	t.Helper()
	conn := dialRaw(t, p)
	self := p.cfg.Self
	self.Name = name
	secured, _, err := identity{self: self, secrets: p.cfg.Secrets}.dial(conn, self.Region)
	require.NoError(t, err)
	return secured
}

func TestExcessConnectionReplacesOldestOfSameMember(t *testing.T) {
	t.Parallel()
	inPair(t, func(t *testing.T, a, b *testPeer) {
		const more = 20
		var conns []net.Conn
		for range maxIncomingOfOne + more {
			conns = append(conns, dialAs(t, a, "greedy"))
		}
		for _, conn := range conns[:more] {
			requireClosed(t, conn, 10*time.Second)
		}
		synctest.Wait()
		require.Len(t, a.conns, maxIncomingOfOne+len("b"))
		require.EqualValues(t, more, a.stats().Refused[reasonCrowded])
		require.NoError(t, askX(b.peer("a"), 10*time.Second), "b's connection is served as before")
	})
}

func TestConnectionsAboveBoundAreClosedAndCounted(t *testing.T) {
	t.Parallel()
	inPair(t, func(t *testing.T, a, b *testPeer) {
		a.mu.Lock()
		a.most = len(a.conns) + 3
		a.mu.Unlock()
		for i := range 3 {
			dialAs(t, a, string(rune('p'+i)))
		}
		const more = 5
		for range more {
			requireClosed(t, dialRaw(t, a), 10*time.Second)
		}
		eventually(t, 10*time.Second, func() bool { return a.stats().Refused[reasonCrowded] == more }, "%v", a.stats().Refused)
		require.NoError(t, askX(b.peer("a"), 10*time.Second))
	})
}

func TestHandshakeAboveBoundClosesOldestHandshake(t *testing.T) {
	t.Parallel()
	inPair(t, func(t *testing.T, a, b *testPeer) {
		most := a.pending.size
		const more = 10
		var conns []net.Conn
		for range most + more {
			conns = append(conns, dialRaw(t, a))
		}
		eventually(t, 10*time.Second, func() bool { return a.stats().Refused[reasonCrowded] >= more }, "%v", a.stats().Refused)
		requireClosed(t, conns[0], 10*time.Second)
		dialAs(t, a, "c") // a connection that completes the handshake is still accepted
		require.NoError(t, askX(b.peer("a"), 10*time.Second))
	})
}
