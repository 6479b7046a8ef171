package cluster

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/gossip/gossiptest"
	"github.com/weir-go/weir/internal/conns"
)

// from is a connection from an address. A Read waits for Close once it has returned all bytes of says.
type from struct {
	net.Conn
	addr   net.Addr
	says   []byte // bytes that are read first
	closed chan struct{}
	once   *sync.Once
}

func connFrom(addr string) *from {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		panic(err)
	}
	return &from{addr: a, closed: make(chan struct{}), once: new(sync.Once)}
}

func (f *from) RemoteAddr() net.Addr        { return f.addr }
func (f *from) Close() error                { f.once.Do(func() { close(f.closed) }); return nil }
func (f *from) SetDeadline(time.Time) error { return nil }
func (f *from) Write(b []byte) (int, error) { return len(b), nil }

func (f *from) Read(b []byte) (int, error) {
	if n := copy(b, f.says); n > 0 {
		f.says = f.says[n:]
		return n, nil
	}
	<-f.closed
	return 0, net.ErrClosed
}

func (f *from) isClosed() bool {
	select {
	case <-f.closed:
		return true
	default:
		return false
	}
}

func TestOriginIsIPv4AddressOrIPv6Network(t *testing.T) {
	tcp := func(addr string) net.Addr { return connFrom(addr).addr }
	for _, c := range []struct {
		one, two string
		same     bool
	}{
		{"192.0.2.1:1", "192.0.2.1:2", true},
		{"192.0.2.1:1", "[::ffff:192.0.2.1]:1", true},
		{"[2001:db8::1]:1", "[2001:db8::ffff:ffff:ffff:ffff]:9", true},
		{"192.0.2.1:1", "192.0.2.2:1", false},
		{"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false},
		{"[::1]:1", "127.0.0.1:1", false},
	} {
		require.Equal(t, c.same, conns.Origin(tcp(c.one)) == conns.Origin(tcp(c.two)), "%+v", c)
	}
	linked := func(zone string) net.Addr { return &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: zone} }
	require.Equal(t, conns.Origin(linked("a")), conns.Origin(linked("b")))
	require.Equal(t, []string{"", "@x"}, []string{conns.Origin(nil), conns.Origin(&net.UnixAddr{Name: "@x"})})
}

func TestOldestConnectionOfLargestOriginIsRemoved(t *testing.T) {
	l := newPending(4, 1<<20)
	in := map[string]*pendingConn{}
	enter := func(name, addr string) (out string) {
		g, gone := l.enter(connFrom(addr))
		in[name] = g
		for n, g := range in {
			if g == gone {
				return n
			}
		}
		return ""
	}
	require.Equal(t, "", enter("a", "192.0.2.1:1"))
	for _, name := range []string{"b", "c", "d"} {
		require.Equal(t, "", enter(name, "[2001:db8::"+name+"]:1"), "one address may have all")
	}
	require.Equal(t, "b", enter("e", "192.0.2.2:1"), "of three in a network of 64 bits")
	require.Equal(t, "c", enter("f", "192.0.2.3:1"), "of two")
	require.Equal(t, "a", enter("g", "192.0.2.4:1"), "of all")
	require.Same(t, in["e"], l.evict())
	require.False(t, l.leave(in["e"]), "e was removed")
	require.True(t, l.leave(in["f"]))
	require.Same(t, in["d"], l.evict())
	require.Same(t, in["g"], l.evict())
	require.Nil(t, l.evict())
	require.Empty(t, l.origins)
}

func TestPendingConnectionsUsePartOfFileDescriptors(t *testing.T) {
	for _, c := range []struct {
		descriptors uint64
		size        int
	}{{1 << 20, 1024}, {8192, 1024}, {1024, 128}, {256, 32}, {16, 2}, {0, 1}} {
		l := newPending(pendingSize, c.descriptors)
		require.Equal(t, c.size, l.size, "%d", c.descriptors)
	}
	require.NotZero(t, conns.OpenFiles())
}

// exhausted is a listener that runs out of file descriptors at times.
type exhausted struct {
	*memoryListener
	failed atomic.Int64
	fails  atomic.Bool
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.fails.Load() {
		l.failed.Add(1)
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.memoryListener.Accept()
}

func TestMuxSurvivesLackOfFileDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &exhausted{memoryListener: new(loopback).listen()}
		var log lines
		m := newMux(l, nil, nil, nil, slog.New(slog.NewTextHandler(&log, nil)), newPending(pendingSize, 1<<20), nil)
		var conns []*from
		for i := range 20 {
			conns = append(conns, connFrom(fmt.Sprintf("192.0.2.%d:1", i)))
			if i == 19 {
				synctest.Wait()     // the mux waits for the twentieth connection
				l.fails.Store(true) // from the next accept on
			}
			l.backlog <- conns[i]
		}
		time.Sleep(2 * time.Second) // accept is called after 0, 5, 15, 35, 75, 155, 315, 635 and 1275 ms
		synctest.Wait()
		require.EqualValues(t, 9, l.failed.Load())
		require.Equal(t, 2, log.countLines("accepting a connection failed; trying again"))
		for i, conn := range conns {
			require.Equal(t, i < 9, conn.isClosed(), "%d", i)
		}
		require.EqualValues(t, 9, m.refused.snapshot()[reasonCrowded])
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.LessOrEqual(t, l.failed.Load(), int64(9+11))
		require.LessOrEqual(t, log.countLines("accepting a connection failed; trying again"), 2+11)

		l.fails.Store(false)
		time.Sleep(time.Second)
		late := connFrom("192.0.2.99:1")
		l.backlog <- late
		synctest.Wait()
		require.False(t, late.isClosed(), "it accepts again")
		require.NoError(t, m.close())
	})
}

// At each stage, a connection that has not identified itself counts once, together with all other such
// connections.
func TestPendingConnectionCountsOnceAtEachStage(t *testing.T) {
	silent, half, stream := []byte(nil), []byte{firstByteCheck, opening}, []byte{firstByteGossip, gossiptest.TypeLabel}
	for _, c := range []struct {
		about       string
		descriptors uint64
		hosts       int // number of hosts of the connections
		stages      [][]byte
		most        int
	}{
		{"from everywhere, in another order", 1 << 20, 4096, [][]byte{silent, half}, 1024},
		{"from everywhere, streams of gossip among them", 1 << 20, 4096, [][]byte{stream, half, silent}, 1024},
		{"from one address, streams of gossip at last", 1 << 20, 1, [][]byte{half, silent, stream}, 1024},
		{"with 256 descriptors", 256, 4096, [][]byte{half, silent, stream}, 32},
		{"with 256 descriptors, from one address", 256, 1, [][]byte{stream, half, silent}, 32},
	} {
		t.Run(c.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := new(loopback).listen()
				p := newPeers(peersConfig{Self: hello{Name: "a", Addr: "a"}}, &testHandler{})
				p.pending = newPending(pendingSize, c.descriptors)
				m := newMux(l, nil, func(net.Conn) error { return nil }, func(r io.Reader, _ bool) ([]byte, error) { return io.ReadAll(r) }, slog.New(slog.DiscardHandler), p.pending, p.serve)
				var streams sync.WaitGroup
				streams.Go(func() {
					for {
						select {
						case s := <-m.streams:
							streams.Go(func() {
								s.Read(make([]byte, 1))
								s.Close()
							})
						case <-m.ctx.Done():
							return
						}
					}
				})
				var conns []*from
				for _, says := range c.stages {
					for i := range 1200 {
						host := i % c.hosts
						conn := connFrom(fmt.Sprintf("198.51.%d.%d:1", host>>8, host&255))
						conn.says = says
						conns = append(conns, conn)
						l.backlog <- conn
						synctest.Wait()
					}
				}
				open := 0
				for _, conn := range conns {
					if !conn.isClosed() {
						open++
					}
				}
				require.LessOrEqual(t, open, c.most)
				require.Greater(t, open, c.most*3/4, "the bound is used")
				require.NoError(t, m.close())
				p.close()
				streams.Wait()
				require.Empty(t, p.pending.origins)
				require.Zero(t, p.pending.count)
			})
		})
	}
}

// The connection that pending has removed is closed soon, and is not served until then.
func TestEvictedConnectionIsNotServed(t *testing.T) {
	inMemory(t, func(t *testing.T, lo *loopback) {
		p, conn := lo.peer(t, "a", nil), memoryPipe("192.0.2.1:1")
		in, _ := p.pending.enter(conn.peer)
		require.Same(t, in, p.pending.evict())
		p.serve(conn.peer, in)
		_, _, err := identity{self: hello{Name: "b", Region: "r"}.withVersions(ownVersions)}.dial(conn, "r")
		require.NoError(t, err)
		requireClosed(t, conn, idleWait-1)
	})
}

// Members behind one address connect at once, and a flood from another address does not displace a member.
func TestMembersBehindOneAddressEnterAtOnce(t *testing.T) {
	l := newPending(pendingSize, 1<<20)
	var members []*pendingConn
	for range 1000 {
		in, out := l.enter(connFrom("192.0.2.1:1"))
		require.Nil(t, out)
		members = append(members, in)
	}
	for _, in := range members {
		require.True(t, l.leave(in))
	}
	var member *pendingConn
	for i := range 4 * pendingSize {
		if i == 2*pendingSize {
			member, _ = l.enter(connFrom("192.0.2.1:1"))
		}
		l.enter(connFrom("198.51.100.1:1"))
	}
	require.True(t, l.leave(member))
}

// A stream of gossip takes longer than a handshake. So if pending is full, the connections that have sent
// nothing are closed before the stream.
func TestFullPendingClosesGossipStreamLast(t *testing.T) {
	l := newPending(4, 1<<20)
	stream, _ := l.enter(connFrom("192.0.2.1:1"))
	require.True(t, l.moveToStreams(stream))
	var silent []*pendingConn
	for i := range 8 {
		addr := "192.0.2.1:2"
		if i%2 == 0 {
			addr = fmt.Sprintf("192.0.2.%d:1", 2+i)
		}
		in, out := l.enter(connFrom(addr))
		silent = append(silent, in)
		require.NotSame(t, stream, out)
	}
	for range 3 {
		require.NotSame(t, stream, l.evict())
	}
	require.Same(t, stream, l.evict(), "a stream is removed if there is no other connection")
	require.False(t, l.moveToStreams(silent[0]), "it was removed")
	require.Nil(t, l.evict())
	require.Empty(t, l.origins)
}
