package lab

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startEcho returns the address of a server that returns all data that it receives.
func startEcho(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				data := make([]byte, 16)
				for {
					n, err := conn.Read(data)
					if err != nil {
						return
					}
					_, _ = conn.Write(data[:n])
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func TestProxyDelaysSilencesAndRefusesConnections(t *testing.T) {
	p := StartProxy(t, startEcho(t))
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	ask := func(patience time.Duration) error {
		_, err := conn.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	require.NoError(t, ask(GiveUp))

	p.SetDelay(20 * time.Millisecond)
	begun := time.Now()
	require.NoError(t, ask(GiveUp))
	require.GreaterOrEqual(t, time.Since(begun), 40*time.Millisecond, "each direction is delayed")
	p.SetDelay(0)

	p.SetSilent(true)
	require.Error(t, ask(20*time.Millisecond))
	p.SetSilent(false)
	require.NoError(t, ask(GiveUp), "the connection is kept")

	p.SetRefusing(true)
	require.NoError(t, conn.SetReadDeadline(time.Time{}))
	for err = nil; err == nil; _, err = conn.Read(make([]byte, 1)) {
	}
	other, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.SetReadDeadline(time.Now().Add(GiveUp)))
	_, err = other.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "a new connection is broken")
	p.SetRefusing(false)
	conn, err = net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	require.NoError(t, ask(GiveUp))
}
