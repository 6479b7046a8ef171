package main

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// region is the link of the demo between two regions.
var region = link{Delay: oneWay}

// farAway starts an echo server in another region, and returns the network and the
// address by which a test reaches the server.
func farAway(t *testing.T) (n *network, addr string) {
	addr = echo(t, newNetwork(nil))
	n = newNetwork(map[string]link{addr: region, "127.0.0.1:1": region})
	t.Cleanup(n.close)
	return n, addr
}

func dial(t *testing.T, n *network, addr string) net.Conn {
	conn, err := n.Dial(t.Context(), addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(eventually)))
	return conn
}

func TestDelayedBytesArriveInOrder(t *testing.T) {
	t.Parallel()
	n, addr := farAway(t)
	conn := dial(t, n, addr)
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 8)
	}
	go func() {
		for b := sent; len(b) > 0; b = b[1<<12:] {
			conn.Write(b[:1<<12])
		}
	}()
	heard := make([]byte, len(sent))
	_, err := io.ReadFull(conn, heard)
	require.NoError(t, err)
	require.Equal(t, sent, heard)
}

func TestCloseEndsDataOfOtherRegion(t *testing.T) {
	t.Parallel()
	n, addr := farAway(t)
	conn := dial(t, n, addr)
	begun, hello := time.Now(), []byte("hello")
	_, err := conn.Write(hello)
	require.NoError(t, err)
	_, err = io.ReadFull(conn, hello)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begun), minRoundTrip)
	n.set(map[string]link{addr: {Cut: true, Delay: oneWay}})
	_, err = conn.Write([]byte("x"))
	require.NoError(t, err)
	n.close() // returns when all connections have ended
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
}

func TestReportSetsLinksOfGateway(t *testing.T) {
	left, leave := context.WithCancel(t.Context())
	leave()
	g := &Gateway{leave: left, links: newNetwork(map[string]link{"far": {Delay: oneWay}})}
	defer g.links.close()
	for _, want := range []link{{Cut: true}, {}} {
		require.NoError(t, g.Report(map[string]link{"far": want}, new(Report)))
		got, changed := g.links.link("far")
		require.Equal(t, want, got)
		require.NoError(t, g.Report(map[string]link{"far": want}, new(Report)))
		select {
		case <-changed:
			require.Fail(t, "the same links are no change")
		default:
		}
	}
}

// echo listens on a network and returns the data that it receives, until the test ends.
func echo(t *testing.T, n *network) (addr string) {
	t.Helper()
	tcp, udp, err := n.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { tcp.Close(); udp.Close() })
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			udp.WriteTo(b[:n], from)
		}
	}()
	return tcp.Addr().String()
}

func TestCutLinkDelaysDataAndDropsPackets(t *testing.T) {
	t.Parallel()
	far := newNetwork(nil)
	defer far.close()
	addr := echo(t, far)
	near := newNetwork(map[string]link{addr: {}})
	defer near.close()
	conn, err := near.Dial(t.Context(), addr)
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, addr, conn.RemoteAddr().String())
	said, heard := []byte("hello"), make([]byte, 5)
	exchange := func(within time.Duration) error {
		conn.SetDeadline(time.Now().Add(within))
		if _, err := conn.Write(said); err != nil {
			return err
		}
		_, err := conn.Read(heard)
		return err
	}
	require.NoError(t, exchange(eventually))
	tcp, udp, err := near.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer tcp.Close()
	defer udp.Close()
	there, err := net.ResolveUDPAddr("udp", addr)
	require.NoError(t, err)
	packet := func(within time.Duration) error {
		udp.SetDeadline(time.Now().Add(within))
		if _, err := udp.WriteTo(said, there); err != nil {
			return err
		}
		_, _, err := udp.ReadFrom(heard)
		return err
	}
	require.NoError(t, packet(eventually))

	near.set(map[string]link{addr: {Cut: true}})
	const silence = 20 * time.Millisecond
	_, err = conn.Write(said)
	require.NoError(t, err)
	conn.SetReadDeadline(time.Now().Add(silence))
	_, err = conn.Read(heard)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = udp.WriteTo(said, there)
	require.NoError(t, err)
	udp.SetReadDeadline(time.Now().Add(silence))
	_, _, err = udp.ReadFrom(heard)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	short, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()
	_, err = near.Dial(short, addr)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	near.set(map[string]link{addr: {}})
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = conn.Read(heard)
	require.NoError(t, err, "data in flight arrives")
	require.NoError(t, packet(eventually))

	near.set(map[string]link{addr: {Delay: 30 * time.Millisecond}})
	begun := time.Now()
	require.NoError(t, exchange(eventually))
	require.GreaterOrEqual(t, time.Since(begun), 60*time.Millisecond, "each way")
}
