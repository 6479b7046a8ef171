package cluster

import (
	"context"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// loopback is a network in memory, for peers in virtual time. Its addresses are those of the
// loopback of a machine, so that certificates fit. The zero loopback is ready to use.
type loopback struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
}

// listen opens a new port.
func (n *loopback) listen() *memoryListener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = map[string]*memoryListener{}
	}
	addr := "127.0.0.1:" + strconv.Itoa(len(n.listeners)+1)
	n.listeners[addr] = &memoryListener{net: n, addr: addr, backlog: make(chan net.Conn, 1024), closed: make(chan struct{})}
	return n.listeners[addr]
}

// dial connects to a listener, or fails at once.
func (n *loopback) dial(_ context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[addr]
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	here := memoryPipe(addr)
	l.backlog <- here.peer
	return here, nil
}

// peer is startPeer on this network.
func (n *loopback) peer(t testing.TB, name string, h Handler, change ...func(*peersConfig)) *testPeer {
	t.Helper()
	dials := func(c *peersConfig) { c.Dial = n.dial }
	return startPeerOn(t, n.listen(), name, h, append([]func(*peersConfig){dials}, change...)...)
}

type memoryListener struct {
	net     *loopback
	addr    string
	backlog chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.backlog:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		l.net.listeners[l.addr] = nil
		close(l.closed)
		for len(l.backlog) > 0 {
			(<-l.backlog).Close()
		}
	})
	return nil
}

func (l *memoryListener) Addr() net.Addr { return memoryAddr(l.addr) }

type memoryAddr string

func (memoryAddr) Network() string  { return "tcp" }
func (a memoryAddr) String() string { return string(a) }

// memoryBuffer is the maximum number of unread bytes in one direction. A writer of more bytes waits,
// as at a full socket.
const memoryBuffer = 64 << 10

// memoryConn is one end of a connection in memory.
type memoryConn struct {
	peer *memoryConn
	addr memoryAddr // the dialled address
	both *sync.Mutex

	// both guards the following fields. The two ends share it.
	in          []byte
	closed      bool
	read, write time.Time     // deadlines
	changed     chan struct{} // closed, and made anew, when one of these fields changes
}

// memoryPipe returns one end of a connection. Its peer is the other end.
func memoryPipe(addr string) *memoryConn {
	both := new(sync.Mutex)
	here := &memoryConn{addr: memoryAddr(addr), both: both, changed: make(chan struct{})}
	here.peer = &memoryConn{addr: memoryAddr(addr), both: both, changed: make(chan struct{}), peer: here}
	return here
}

// wake wakes all goroutines that wait at this end. The caller must hold c.both.
func (c *memoryConn) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// await calls the function try at once and after each change, until try returns true. It returns the error
// of try, or an error if this end is closed or the deadline has passed.
func (c *memoryConn) await(deadline *time.Time, try func() (done bool, err error)) error {
	for {
		c.both.Lock()
		at, changed := *deadline, c.changed
		done, err := true, net.ErrClosed
		switch {
		case c.closed:
		case !at.IsZero() && !time.Now().Before(at):
			err = os.ErrDeadlineExceeded
		default:
			done, err = try()
		}
		c.both.Unlock()
		if done {
			return err
		}
		if at.IsZero() {
			<-changed
			continue
		}
		passes := time.NewTimer(time.Until(at))
		select {
		case <-changed:
		case <-passes.C:
		}
		passes.Stop()
	}
}

func (c *memoryConn) Read(b []byte) (n int, err error) {
	err = c.await(&c.read, func() (bool, error) {
		switch {
		case len(c.in) > 0:
			n = copy(b, c.in)
			c.in = c.in[n:]
			c.peer.wake()
			return true, nil
		case c.peer.closed:
			return true, io.EOF
		}
		return len(b) == 0, nil
	})
	return n, err
}

func (c *memoryConn) Write(b []byte) (n int, err error) {
	err = c.await(&c.write, func() (bool, error) {
		if c.peer.closed {
			return true, syscall.EPIPE
		}
		if k := min(len(b)-n, memoryBuffer-len(c.peer.in)); k > 0 {
			c.peer.in = append(c.peer.in, b[n:n+k]...)
			n += k
			c.peer.wake()
		}
		return n == len(b), nil
	})
	return n, err
}

// Close closes the connection. The other end reads the written bytes, and then an end of file.
func (c *memoryConn) Close() error {
	c.both.Lock()
	defer c.both.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed, c.in = true, nil
	c.wake()
	c.peer.wake()
	return nil
}

func (c *memoryConn) LocalAddr() net.Addr  { return c.addr }
func (c *memoryConn) RemoteAddr() net.Addr { return c.addr }

func (c *memoryConn) SetDeadline(t time.Time) error      { return c.set(&c.read, &c.write, t) }
func (c *memoryConn) SetReadDeadline(t time.Time) error  { return c.set(&c.read, &c.read, t) }
func (c *memoryConn) SetWriteDeadline(t time.Time) error { return c.set(&c.write, &c.write, t) }

func (c *memoryConn) set(one, other *time.Time, t time.Time) error {
	c.both.Lock()
	defer c.both.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	*one, *other = t, t
	c.wake()
	return nil
}

// inMemory runs a test in virtual time, with a network in memory.
func inMemory(t *testing.T, test func(t *testing.T, lo *loopback)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, new(loopback)) })
}

// inPair is like inMemory, for a test of two members that are connected to each other.
func inPair(t *testing.T, test func(t *testing.T, a, b *testPeer)) {
	t.Helper()
	inMemory(t, func(t *testing.T, lo *loopback) {
		a, b := lo.peer(t, "a", nil), lo.peer(t, "b", nil)
		connectAll(t, a, b)
		test(t, a, b)
	})
}
