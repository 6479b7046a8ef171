package lab

import (
	"context"
	"net"
	"sync"
)

// A PipeListener implements net.Listener in memory, for tests of servers in a bubble of
// testing/synctest. A listener accepts the connections of Dial and DialContext. The
// deadlines of the connections use virtual time.
type PipeListener struct {
	conns chan net.Conn
	over  chan struct{}
	close func()
}

// ListenPipe returns an open PipeListener. The caller must be in the bubble of the test.
func ListenPipe() *PipeListener {
	over := make(chan struct{})
	return &PipeListener{make(chan net.Conn), over, sync.OnceFunc(func() { close(over) })}
}

func (l *PipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *PipeListener) Close() error   { l.close(); return nil }
func (l *PipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// Closed returns a channel that is closed when l is closed.
func (l *PipeListener) Closed() <-chan struct{} { return l.over }

// Dial opens a connection. The server receives the other end, or the result of wrap for
// it if wrap is not nil.
func (l *PipeListener) Dial(wrap func(net.Conn) net.Conn) net.Conn {
	here, there := net.Pipe()
	if wrap != nil {
		there = wrap(there)
	}
	l.conns <- there
	return here
}

// DialContext opens a connection for an http.Transport.
func (l *PipeListener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// FromIP returns c with the given IP address as its remote address.
func FromIP(c net.Conn, ip string) net.Conn { return addrConn{c, net.ParseIP(ip)} }

type addrConn struct {
	net.Conn
	ip net.IP
}

func (f addrConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: f.ip, Port: 1} }
