//go:build unix

package ports

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// If this process is late, received data stays unread, although the client has not stalled.
func TestConnectionWithUnreadRequestHasNotStalled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := NewBudget(256, quiet).Clients(l, "test")
	defer p.Close()
	open := func(first string) (client net.Conn, accepted *conn) {
		client, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { client.Close() })
		c, err := p.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		_, err = io.WriteString(client, first)
		require.NoError(t, err)
		return client, c.(*conn)
	}
	_, asked := open("GET / HTTP/1.1\r\n")
	_, silent := open("")
	require.Eventually(t, func() bool { return unread(asked.Conn) }, time.Minute, time.Millisecond)
	require.False(t, unread(silent.Conn))
	now := p.budget.age() + int64(time.Second)
	choose := func() *conn {
		p.pool.mu.Lock()
		defer p.pool.mu.Unlock()
		return stalled(now, p.fresh)
	}
	require.Equal(t, silent, choose(), "though the other one came first")
	silent.Close()
	require.Nil(t, choose())

	_, err = io.ReadFull(asked.Conn, make([]byte, 16))
	require.NoError(t, err)
	now += int64(time.Second)
	require.Equal(t, asked, choose(), "it has sent half a request, and that was read")
	asked.Close()
	require.False(t, unread(asked.Conn))
}
