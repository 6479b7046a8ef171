package main

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo answers with what it is sent, until the test ends.
func echo(t *testing.T) (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// farAway is an echo that eu reaches in us.
func farAway(t *testing.T) (w *wan, addr string) {
	w = newWAN([]string{"eu", "us", "ap"})
	t.Cleanup(w.close)
	node := newFar()
	addr, err := w.reach("eu", "us", node)
	require.NoError(t, err)
	node.is(echo(t))
	return w, addr
}

func dial(t *testing.T, addr string) net.Conn {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(eventually)))
	return conn
}

func trip(t *testing.T, conn net.Conn, said string) time.Duration {
	begun := time.Now()
	_, err := conn.Write([]byte(said))
	require.NoError(t, err)
	heard := make([]byte, len(said))
	_, err = io.ReadFull(conn, heard)
	require.NoError(t, err)
	require.Equal(t, said, string(heard))
	return time.Since(begun)
}

func TestAnotherRegionIsAsFarAwayAsPromised(t *testing.T) {
	t.Parallel()
	_, addr := farAway(t)
	conn := dial(t, addr)
	for range 3 {
		require.GreaterOrEqual(t, trip(t, conn, "hello"), there)
	}
}

func TestBytesArriveInTheirOrderWhateverTheyAreDelayed(t *testing.T) {
	t.Parallel()
	_, addr := farAway(t)
	conn := dial(t, addr)
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

func TestACutHoldsBackWhatIsSaidUntilItHeals(t *testing.T) {
	t.Parallel()
	w, addr := farAway(t)
	conn := dial(t, addr)
	trip(t, conn, "before")
	w.cut("us", true)
	w.cut("us", true)
	_, err := conn.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(3*there)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	w.cut("us", false)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(eventually)))
	heard := make([]byte, 1)
	_, err = io.ReadFull(conn, heard)
	require.NoError(t, err)
	require.Equal(t, "x", string(heard))
}

func TestACutOfOneRegionCutsNoOther(t *testing.T) {
	t.Parallel()
	w, addr := farAway(t)
	w.cut("ap", true)
	trip(t, dial(t, addr), "hello")
}

func TestWhoHangsUpIsHungUpOn(t *testing.T) {
	t.Parallel()
	w := newWAN([]string{"eu", "us"})
	t.Cleanup(w.close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	node := newFar()
	addr, err := w.reach("eu", "us", node)
	require.NoError(t, err)
	node.is(listener.Addr().String())
	near := dial(t, addr)
	far, err := listener.Accept()
	require.NoError(t, err)
	defer far.Close()
	near.Close()
	require.NoError(t, far.SetReadDeadline(time.Now().Add(eventually)))
	_, err = far.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

func TestClosingEndsAllThatIsUnderWay(t *testing.T) {
	t.Parallel()
	w, addr := farAway(t)
	conn := dial(t, addr)
	trip(t, conn, "hello")
	w.cut("us", true)
	dial(t, addr)
	w.close() // returns when all has ended
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
}
