//go:build unix

package main

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConnectionsOfSparedPortStayOpen(t *testing.T) {
	for _, spared := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		one, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer one.Close()
		other, err := l.Accept()
		require.NoError(t, err)
		defer other.Close()
		ports := []int{one.LocalAddr().(*net.TCPAddr).Port, 0}
		if spared {
			ports[1] = l.Addr().(*net.TCPAddr).Port
		}
		cut, err := breakConnections(ports...)
		require.NoError(t, err)
		if spared {
			_, err = other.Write([]byte("x"))
			require.NoError(t, err)
			continue
		}
		require.GreaterOrEqual(t, cut, 1)
		require.NoError(t, one.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = one.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		again, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err, "the listener still accepts connections")
		again.Close()
	}
}
