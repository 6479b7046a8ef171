package freeport

import (
	"errors"
	"net"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddrRefusesUntilTheTestListens(t *testing.T) {
	addr := Addr(t)
	for range 3 {
		_, err := net.Dial("tcp", addr)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		tcp, err := net.Listen("tcp", addr)
		require.NoError(t, err)
		udp, err := net.ListenPacket("udp", addr)
		require.NoError(t, err)
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		met, err := tcp.Accept()
		require.NoError(t, err)
		require.NoError(t, errors.Join(met.Close(), conn.Close(), udp.Close(), tcp.Close()))
	}
}

func TestAddrIsHeldUntilItsTestEnds(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no port is held on this system")
	}
	var ports []int
	t.Run("held", func(t *testing.T) {
		for range 5 {
			addr := Addr(t)
			_, text, err := net.SplitHostPort(addr)
			require.NoError(t, err)
			port, err := strconv.Atoi(text)
			require.NoError(t, err)
			ports = append(ports, port)
			_, err = hold(port)
			require.ErrorIs(t, err, syscall.EADDRINUSE)
			l, err := net.Listen("tcp", addr)
			require.NoError(t, err)
			require.NoError(t, l.Close())
			_, err = hold(port)
			require.ErrorIs(t, err, syscall.EADDRINUSE, "also after a node was there")
		}
	})
	held := 0
	for _, port := range ports {
		if release, err := hold(port); err == nil { // another process may hold some of them by now
			held++
			release()
		}
	}
	require.Positive(t, held)
}
