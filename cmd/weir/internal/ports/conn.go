package ports

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A connection without a running handler rests. It has stalled once it has rested for the
// time stall. A shorter rest is normal: a client that has just connected is about to send a
// request, and a busy client sends another request. A connection of an origin that does not
// have the most resting connections is closed only once it has rested for longStall.
const (
	stall      = 10 * time.Millisecond
	longStall  = time.Second
	writeGrace = 50 * time.Millisecond // a longer write is for a response that the client does not read
)

// conn is a connection that a Port has accepted.
type conn struct {
	net.Conn
	port *Port
	from *source // set by the pool

	asked    atomic.Bool  // a handler has started for a request
	calls    atomic.Int32 // requests with a running handler, except for streaming gRPC requests
	reads    atomic.Int32 // requests in calls whose bodies have not been read to the end
	since    atomic.Int64 // time at which the connection was accepted, its last request began or ended, or unread data was last seen
	writing  atomic.Int64 // start of the current write; 0 if there is none
	extended atomic.Int64 // time at which Write last set the write deadline; 0 if the next Write must set it
	proven   atomic.Bool  // the connection is no longer new; changed under the lock of the pool

	half    atomic.Int32 // gRPC requests that are not fully read
	streams atomic.Int32 // streaming gRPC requests

	at     int // index of the conn in the fresh or kept set of the port, negative if it is in neither; guarded by the pool
	closed sync.Once
}

// rests reports whether the connection rests, and since when. A connection also rests
// while it waits for the client to send a body or to read a response.
func (c *conn) rests(now int64) (since int64, isResting bool) {
	if began := c.writing.Load(); began != 0 {
		return began, now-began >= int64(writeGrace)
	}
	return c.since.Load(), c.calls.Load() <= c.reads.Load()
}

// begin records that a handler starts to work on a request. The argument reads is true if
// the body of the request has not been read yet.
func (c *conn) begin(reads bool) {
	c.since.Store(c.port.budget.age())
	if reads {
		c.reads.Add(1)
	}
	c.asked.Store(true)
	c.calls.Add(1)
}

func (c *conn) end() {
	c.since.Store(c.port.budget.age())
	c.calls.Add(-1)
}

// prove records that a request was answered with success.
func (c *conn) prove() {
	if !c.proven.Load() {
		c.port.cut(c.port.pool.prove(c, c.port.budget.age()))
	}
}

func (c *conn) Write(b []byte) (int, error) {
	now := c.port.budget.age()
	c.writing.Store(now)
	defer c.writing.Store(0)
	// Setting a deadline costs more than a comparison, so deadlines are not set for each write.
	within, last := c.port.writeWithin, c.extended.Load()
	if within > 0 && (last == 0 || now-last > int64(within/10)) {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
			return 0, err
		}
		c.extended.Store(now)
	}
	n, err := c.Conn.Write(b)
	if err != nil && within > 0 {
		c.sever() // gRPC continues to read from a connection to which it cannot write
	}
	return n, err
}

// SetDeadline never leaves a write without a deadline if the port bounds writes: gRPC
// removes the deadline of its handshakes while a write may be running.
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

// CloseWrite lets an HTTP server close its side first, so that a client can read the
// reason of a refusal.
func (c *conn) CloseWrite() error {
	if half, is := c.Conn.(interface{ CloseWrite() error }); is {
		return half.CloseWrite()
	}
	return nil
}

// RemoteAddr returns the address of the peer, by which gRPC handlers find c.
func (c *conn) RemoteAddr() net.Addr { return address{c.Conn.RemoteAddr(), c} }

type address struct {
	net.Addr
	conn *conn
}

// sever closes c even if it is in use. If a write is running, the unread part of the
// response is discarded.
func (c *conn) sever() {
	if tcp, is := c.Conn.(*net.TCPConn); is && c.writing.Load() != 0 {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
