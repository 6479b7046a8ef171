package cluster

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Only the kernel of a member can report that the process of the member has ended: the kernel closes the
// connections of the process, and refuses later connections.
func TestMemberHasEndedWhenItsKernelRefusesConnections(t *testing.T) {
	t.Parallel()
	newNode := func(name, bind string, refused bool, join ...string) *gossipCluster {
		return NewGossip(Config{Name: name, Bind: bind, Join: join, ForgetRefused: refused}).(*gossipCluster)
	}
	a, c := newNode("a", "127.0.0.1:0", true), (*gossipCluster)(nil)
	ended := func(g *gossipCluster) bool { // reports whether b has ended in the view of g
		v := g.View()
		return v.Ended != nil && len(v.Members) == 3 && v.Ended[1]
	}
	start := func(g *gossipCluster) {
		t.Cleanup(func() { require.NoError(t, g.Close()) })
		require.NoError(t, g.Start(t.Context(), &testHandler{}))
		require.NoError(t, g.Announce(Serving))
	}
	start(a)
	b := newNode("b", "127.0.0.1:0", true, a.advertise)
	start(b)
	c = newNode("c", "127.0.0.1:0", false, a.advertise, b.advertise)
	start(c)
	await := func(what func() bool) {
		t.Helper()
		require.Eventually(t, what, time.Minute, 5*time.Millisecond)
	}
	await(func() bool {
		v := a.View()
		return len(v.Members) == 3 && v.Direct[1] && v.Direct[2] && v.IsConnected(2, 1)
	})
	require.False(t, ended(a))
	a.handleReplaced("b")
	require.Len(t, a.members(), 3, "a connected member is not replaced")
	require.NoError(t, b.Close())
	await(func() bool { return ended(a) })
	require.Nil(t, c.View().Ended, "not without the option")
	listener, err := net.Listen("tcp", b.advertise) // a server that is no member, and sends no bytes
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	await(func() bool { return !ended(a) })
	a.handleReplaced("b")
	require.Len(t, a.members(), 2)
}

func TestRefusalNeedsAClosedConnection(t *testing.T) {
	t.Parallel()
	refusal := fmt.Errorf("%w: %w", errSilent, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})
	timeout := fmt.Errorf("%w: %w", errSilent, os.ErrDeadlineExceeded)
	inMemory(t, func(t *testing.T, lo *loopback) {
		a, b := lo.peer(t, "a", nil), lo.peer(t, "b", nil)
		a.set([]Member{a.member(), {Name: "b", Addr: "b.example:1"}})
		l := a.links["b"]
		refused := func() bool { return a.connections([]string{"a", "b"}).Ended[1] }
		for _, c := range []struct {
			err             error
			silent, refused bool
		}{
			{refusal, false, true}, {timeout, false, false}, {refusal, false, true}, {refusal, true, false}, {errSilent, false, false},
		} {
			require.False(t, l.setRefused(c.err, c.silent))
			require.Equal(t, c.refused, refused(), "%v", c)
		}
		b.set([]Member{b.member(), a.member()})
		eventually(t, time.Second, func() bool { return a.isCalling("b") }, "b does not connect")
		require.True(t, l.setRefused(refusal, false))
		require.False(t, refused(), "its connection is open")
	})
	for err, closed := range map[error]bool{
		io.EOF: true, io.ErrUnexpectedEOF: true, syscall.ECONNRESET: true, syscall.EPIPE: true,
		net.ErrClosed: false, os.ErrDeadlineExceeded: false, syscall.ETIMEDOUT: false, errGarbage: false,
	} {
		require.Equal(t, closed, closedByPeer(&net.OpError{Op: "read", Err: err}), err)
	}
}
