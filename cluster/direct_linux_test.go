package cluster

import (
	"bytes"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDirectConnBehavesAsTCPConn(t *testing.T) {
	for _, c := range []struct {
		name string
		wrap func(net.Conn) net.Conn
	}{
		{"direct", newDirectConn},
		{"package net", func(c net.Conn) net.Conn { return c }},
	} {
		t.Run(c.name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer listener.Close()
			pair := func() (near, far net.Conn) {
				near, err := net.Dial("tcp", listener.Addr().String())
				require.NoError(t, err)
				far, err = listener.Accept()
				require.NoError(t, err)
				t.Cleanup(func() { near.Close(); far.Close() })
				return c.wrap(near), c.wrap(far)
			}
			requireOpError := func(err, want error, op string) {
				t.Helper()
				var wrapped *net.OpError
				require.ErrorIs(t, err, want)
				require.ErrorAs(t, err, &wrapped)
				require.Contains(t, wrapped.Op, op)
			}

			near, far := pair()
			sent := bytes.Repeat([]byte("0123456789"), 1<<20) // more than the sockets hold
			go func() {
				near.Write(sent)
				near.Close()
			}()
			received, err := io.ReadAll(far)
			require.NoError(t, err)
			require.True(t, bytes.Equal(sent, received), "the bytes differ")
			_, err = near.Read(make([]byte, 1))
			requireOpError(err, net.ErrClosed, "read")

			for want, end := range map[error]func(conn net.Conn){
				os.ErrDeadlineExceeded: func(conn net.Conn) { conn.SetDeadline(time.Now()) },
				net.ErrClosed:          func(conn net.Conn) { conn.Close() },
			} {
				near, _ := pair()
				time.AfterFunc(10*time.Millisecond, func() { end(near) }) // while both calls wait
				read := make(chan error)
				go func() {
					_, err := near.Read(make([]byte, 1))
					read <- err
				}()
				n, err := near.Write(sent)
				requireOpError(err, want, "write")
				require.Less(t, n, len(sent))
				requireOpError(<-read, want, "read")
			}

			near, far = pair()
			near.Write([]byte("unread"))
			eventually(t, 10*time.Second, func() bool { _, err = far.Read(make([]byte, 1)); return err == nil }, "nothing arrives")
			far.Close() // with unread bytes, so the kernel resets the connection
			_, err = near.Read(make([]byte, 1))
			requireOpError(err, syscall.ECONNRESET, "read")
			_, err = near.Write([]byte("x"))
			requireOpError(err, syscall.EPIPE, "write")
		})
	}
}
