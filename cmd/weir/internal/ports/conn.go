package ports

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A connection on which no handler works rests. It stalls if it has rested for a while: a
// client that has just connected is about to ask, and a busy one asks again.
const (
	stall      = 10 * time.Millisecond
	longStall  = time.Second
	writeGrace = 50 * time.Millisecond // a write that takes longer is of an answer that is not read
)

// conn is a connection that a Port has accepted.
type conn struct {
	net.Conn
	port *Port
	from *source // set by the pool

	asked    atomic.Bool  // a handler has begun to work on a request
	calls    atomic.Int32 // requests that handlers work on
	reads    atomic.Int32 // the requests of calls whose bodies have not been read to the end
	since    atomic.Int64 // when it was accepted, or its last request began or ended
	writing  atomic.Int64 // when the write that is under way began; 0 if none is
	extended atomic.Int64 // when its deadline for writes was set; 0 if it was not
	proven   atomic.Bool  // it is not new any more; changed under the pool's lock

	half    atomic.Int32 // gRPC requests that are not read whole
	streams atomic.Int32 // gRPC requests without an end of their own

	at     int // its place in the port's fresh or kept, below 0 if in neither; guarded by the pool
	closed sync.Once
}

// rests reports whether nothing of this node's is under way on the connection, and since
// when.
func (c *conn) rests(now int64) (since int64, is bool) {
	if began := c.writing.Load(); began != 0 {
		return began, now-began >= int64(writeGrace)
	}
	return c.since.Load(), c.calls.Load() <= c.reads.Load()
}

// begin is called when a handler begins to work on a request. reads reports whether the
// request's body is not read yet.
func (c *conn) begin(reads bool) {
	c.since.Store(c.port.budget.now())
	if reads {
		c.reads.Add(1)
	}
	c.asked.Store(true)
	c.calls.Add(1)
}

func (c *conn) end() {
	c.since.Store(c.port.budget.now())
	c.calls.Add(-1)
}

// prove is called when a request was answered with success.
func (c *conn) prove() {
	if !c.proven.Load() {
		c.port.cut(c.port.pool.prove(c, c.port.budget.now()))
	}
}

func (c *conn) Write(b []byte) (int, error) {
	now := c.port.budget.now()
	c.writing.Store(now)
	defer c.writing.Store(0)
	// A deadline costs more than a comparison: it is set once in a while.
	within, last := c.port.writeWithin, c.extended.Load()
	if within > 0 && (last == 0 || now-last > int64(within/10)) {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
			return 0, err
		}
		c.extended.Store(now)
	}
	n, err := c.Conn.Write(b)
	if err != nil && within > 0 {
		c.sever() // gRPC goes on to read from a connection that it cannot write to
	}
	return n, err
}

// SetDeadline leaves no write without a deadline: gRPC lifts the one of its handshakes while
// a write may be under way.
func (c *conn) SetDeadline(t time.Time) error {
	if c.port.writeWithin == 0 || !t.IsZero() {
		c.extended.Store(0)
		return c.Conn.SetDeadline(t)
	}
	if err := c.Conn.SetWriteDeadline(time.Now().Add(c.port.writeWithin)); err != nil {
		return err
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) Close() (err error) {
	err = net.ErrClosed
	c.closed.Do(func() {
		c.port.pool.leave(c)
		err = c.Conn.Close()
	})
	return err
}

// CloseWrite lets a server of HTTP end its side first, so that a client reads why it was
// refused.
func (c *conn) CloseWrite() error {
	if half, is := c.Conn.(interface{ CloseWrite() error }); is {
		return half.CloseWrite()
	}
	return nil
}

// RemoteAddr returns the address of the other side, by which handlers of gRPC find c.
func (c *conn) RemoteAddr() net.Addr { return address{c.Conn.RemoteAddr(), c} }

type address struct {
	net.Addr
	conn *conn
}

// sever closes c, whatever is under way on it. What the other side has not read of an
// answer that it does not read is discarded.
func (c *conn) sever() {
	if tcp, is := c.Conn.(*net.TCPConn); is && c.writing.Load() != 0 {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
