package weirtest

import (
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// socketBuffer is the maximum number of bytes of a direction of a stream that are
// written and not yet read. Above this, Write blocks.
const socketBuffer = 256 << 10

// conn is an end of a stream.
type conn struct {
	socket
	remote *net.TCPAddr
	peer   *conn // nil until the dial reaches the other host, and after a break
	out    flow

	unread int    // bytes written here that the peer has not read
	in     []byte // bytes that have arrived here
	eof    bool   // the peer has sent its last byte
	broken error  // reason why no data comes from the peer or reaches it
}

// socket is the common part of conn and packetConn.
type socket struct {
	process                     *process
	local                       net.Addr
	closed                      bool
	readDeadline, writeDeadline time.Time
	changed                     signal
}

func (s *socket) LocalAddr() net.Addr { return s.local }
func (s *socket) SetDeadline(t time.Time) error {
	return s.setDeadlines(t, &s.readDeadline, &s.writeDeadline)
}
func (s *socket) SetReadDeadline(t time.Time) error  { return s.setDeadlines(t, &s.readDeadline) }
func (s *socket) SetWriteDeadline(t time.Time) error { return s.setDeadlines(t, &s.writeDeadline) }

func (s *socket) setDeadlines(t time.Time, which ...*time.Time) error {
	n := s.process.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed {
		return &net.OpError{Op: "set", Net: s.local.Network(), Source: s.local, Err: net.ErrClosed}
	}
	for _, deadline := range which {
		*deadline = t
	}
	s.changed.wake()
	return nil
}

// newConn returns an end of a stream to a host. The caller must hold n.mu.
func newConn(p *process, local *net.TCPAddr, to *Host, remote *net.TCPAddr) *conn {
	c := &conn{socket: socket{process: p, local: local}, remote: remote, out: flow{from: p.host, to: to, stream: true}}
	p.conns = append(p.conns, c)
	return c
}

// arrive handles the dial of c at the other host. The caller must hold n.mu.
func (c *conn) arrive(port int, answered chan<- error) {
	n, p := c.process.host.net, c.out.to.process
	l := p.listeners[port]
	if l == nil || len(l.backlog) == maxBacklog {
		back := flow{from: c.out.to, to: c.out.from}
		n.send(&back, call(func() { answered <- syscall.ECONNREFUSED }))
		return
	}
	peer := newConn(p, c.remote, c.process.host, c.local.(*net.TCPAddr))
	peer.peer, c.peer = c, peer
	l.backlog = append(l.backlog, peer)
	l.changed.wake()
	n.send(&peer.out, call(func() { answered <- nil }))
}

// closeWith closes c. The peer reads the written data, and then err, or an end of file if
// err is nil. The caller must hold n.mu.
func (c *conn) closeWith(err error) {
	if c.closed {
		return
	}
	c.closed = true
	c.in = nil
	if i := slices.Index(c.process.conns, c); i >= 0 {
		c.process.conns = slices.Delete(c.process.conns, i, i+1)
	}
	c.changed.wake()
	c.process.host.net.send(&c.out, call(func() {
		if c.peer == nil {
			return
		}
		if err == nil {
			c.peer.eof, err = true, syscall.EPIPE
		}
		c.peer.broken = err
		c.peer.changed.wake()
	}))
}

// breakOff ends the connection at both ends at once. Data that has arrived can still be
// read. The caller must hold n.mu.
func (c *conn) breakOff() {
	for _, end := range []*conn{c, c.peer} {
		end.out.dropAll()
		end.broken, end.peer = syscall.ECONNRESET, nil // no data is exchanged any more
		end.changed.wake()
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n := c.process.host.net
	fail := func(err error) (int, error) {
		n.mu.Unlock()
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
	}
	for {
		n.mu.Lock()
		switch {
		case c.closed:
			return fail(net.ErrClosed)
		case hasPassed(c.readDeadline):
			return fail(os.ErrDeadlineExceeded)
		case len(c.in) > 0 || len(b) == 0:
			read := copy(b, c.in)
			c.in = c.in[read:]
			if len(c.in) == 0 {
				c.in = nil
			}
			if c.peer != nil && read > 0 {
				c.peer.unread -= read
				c.peer.changed.wake()
			}
			n.mu.Unlock()
			return read, nil
		case c.eof:
			n.mu.Unlock()
			return 0, io.EOF
		case c.broken != nil:
			return fail(c.broken)
		}
		changed, deadline := c.changed.wait(), c.readDeadline
		n.mu.Unlock()
		await(changed, deadline)
	}
}

func (c *conn) Write(b []byte) (int, error) {
	n := c.process.host.net
	written := 0
	fail := func(err error) (int, error) {
		n.mu.Unlock()
		return written, &net.OpError{Op: "write", Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
	}
	for {
		n.mu.Lock()
		switch {
		case c.closed:
			return fail(net.ErrClosed)
		case c.broken != nil:
			return fail(c.broken)
		case hasPassed(c.writeDeadline):
			return fail(os.ErrDeadlineExceeded)
		}
		if k := min(len(b)-written, socketBuffer-c.unread); k > 0 {
			segment := slices.Clone(b[written : written+k])
			c.unread += k
			written += k
			n.count(k)
			n.send(&c.out, call(func() { c.peer.receive(segment) }))
		}
		if written == len(b) {
			n.mu.Unlock()
			return written, nil
		}
		changed, deadline := c.changed.wait(), c.writeDeadline
		n.mu.Unlock()
		await(changed, deadline)
	}
}

// receive handles data from the other end. If c is closed, receive answers with a reset.
// The caller must hold n.mu.
func (c *conn) receive(segment []byte) {
	if c.closed {
		c.process.host.net.send(&c.out, call(func() {
			c.peer.broken = syscall.ECONNRESET
			c.peer.changed.wake()
		}))
		return
	}
	c.in = append(c.in, segment...)
	c.changed.wake()
}

// Close closes this end. The other end reads the written data, and then an end of file.
func (c *conn) Close() error {
	n := c.process.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return &net.OpError{Op: "close", Net: "tcp", Source: c.local, Addr: c.remote, Err: net.ErrClosed}
	}
	c.closeWith(nil)
	return nil
}

func (c *conn) RemoteAddr() net.Addr { return c.remote }
