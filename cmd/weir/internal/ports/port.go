package ports

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-go/weir/internal/loglimit"
)

// Port is a net.Listener whose connections are bounded by a Budget. A Port must be served by
// a server of NewWeb or NewRPC, which report the activity of connections to the Port.
type Port struct {
	net.Listener
	name        string
	budget      *Budget
	pool        *pool
	mostNew     int
	writeWithin time.Duration // bounds each write; 0 if the server bounds responses
	paced       loglimit.Line
	rpcs        rpcs

	draining  atomic.Bool // each HTTP response ends its connection
	accepting sync.Mutex  // held by Accept
	closed    sync.Once
	closing   chan struct{}
	shut      atomic.Bool // Shutdown was called

	fresh, kept set // new and proven connections; guarded by pool
}

// Clients returns a port for services, with a name for logs.
func (b *Budget) Clients(l net.Listener, name string) *Port {
	return b.port(l, name, b.clients, b.clients.most/newOfClients)
}

// Probes returns the port for liveness probes, which has a separate part of the budget.
func (b *Budget) Probes(l net.Listener, name string) *Port {
	return b.port(l, name, b.probes, b.probes.most/newOfProbes)
}

func (b *Budget) port(l net.Listener, name string, from *pool, mostNew int) *Port {
	p := &Port{Listener: l, name: name, budget: b, pool: from, mostNew: min(mostNew, maxNew), closing: make(chan struct{})}
	from.mu.Lock()
	defer from.mu.Unlock()
	from.ports = append(from.ports, p)
	return p
}

// roomEvery is the interval at which a waiting connection checks for a stalled
// connection.
const roomEvery = 2 * time.Millisecond

// sendBuffer bounds the kernel buffer for unread responses, in bytes for each connection.
const sendBuffer = 64 << 10

// Accept implements net.Listener. While all connections that the budget allows are busy, Accept
// blocks and the kernel queues new connections. After Shutdown it returns http.ErrServerClosed,
// so that http.Server.Serve returns this error although its own Shutdown begins later.
func (p *Port) Accept() (net.Conn, error) {
	p.accepting.Lock()
	defer p.accepting.Unlock()
	raw, err := p.Listener.Accept()
	if err != nil {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			p.cut(p.pool.shed(p.budget.age()))
		}
		return nil, p.acceptError(err) // the server retries if there are no more file descriptors
	}
	if b, is := raw.(interface{ SetWriteBuffer(int) error }); is {
		_ = b.SetWriteBuffer(sendBuffer) // SetWriteBuffer fails only on a closed connection, where reads fail, too
	}
	c := &conn{Conn: raw, port: p, at: -1}
	c.since.Store(p.budget.age())
	out, in := p.pool.enter(c, p.budget.age())
	p.cut(out)
	if !in && !p.await(c) {
		_ = raw.Close()
		return nil, p.acceptError(net.ErrClosed)
	}
	return c, nil
}

func (p *Port) acceptError(err error) error {
	if p.shut.Load() {
		return http.ErrServerClosed
	}
	return err
}

// await waits for room for c, and returns false if the port is closed first.
func (p *Port) await(c *conn) bool {
	p.pool.waits.Add(1)
	defer p.pool.waits.Add(-1)
	tick := time.Tick(roomEvery)
	for {
		select {
		case <-tick:
		case <-p.pool.room:
		case <-p.closing:
			return false
		}
		out, in := p.pool.enter(c, p.budget.age())
		p.cut(out)
		if in {
			return true
		}
	}
}

// cut closes connections that were dropped to make room.
func (p *Port) cut(dropped []*conn) {
	for _, c := range dropped {
		c.sever()
		if unlogged, due := c.port.paced.Due(time.Now()); due {
			p.budget.log.Warn("a stalled connection was closed, because its port is full", "listener", c.port.name, "addr", c.Conn.RemoteAddr().String(), "unlogged", unlogged)
		}
	}
}

// HTTP can announce the end of a connection only in a response. So a client that has used a
// connection within recentUse may send its next request just when the connection is closed. A
// client that has just connected sends its request within firstRequestWait, or has opened the
// connection without a request.
const (
	recentUse        = time.Second
	firstRequestWait = 100 * time.Millisecond
	restTick         = 10 * time.Millisecond
)

// DrainConnections makes each HTTP response end its connection from now on. It waits until every connection that was
// used in the last second before the call, or later, has closed, for at most a second or until ctx is done.
func (p *Port) DrainConnections(ctx context.Context) {
	p.draining.Store(true)
	p.wait(ctx, recentUse, p.usedSince)
}

// Shutdown closes the port and then calls the Shutdown of its server, which drops every
// later request. So clients that have just connected first have a tenth of a second to
// send a request. The server would wait five seconds for a connection without a request;
// Shutdown closes such a connection. Shutdown returns the error of the server's Shutdown,
// which is not nil if ctx is done first. The server keeps an HTTP/2 connection open for a
// second after its last response, unless the client closes it.
func (p *Port) Shutdown(ctx context.Context, server *http.Server) error {
	p.shut.Store(true)
	p.closeAndAwaitAccept()
	unasked := func(then int64) bool { return len(p.unaskedSince(then)) > 0 }
	p.wait(ctx, firstRequestWait, unasked)
	over := make(chan error, 1)
	go func() { over <- server.Shutdown(ctx) }()
	p.wait(ctx, firstRequestWait, unasked) // waits until handlers have all requests that the server accepted before
	for _, c := range p.unaskedSince(0) {
		_ = c.Close() // this bypasses TLS, because sending its close notification can block
	}
	return <-over
}

// closeAndAwaitAccept closes the port. When it returns, the connection that Accept was about to return is in the
// pool, or is closed because there was no room.
func (p *Port) closeAndAwaitAccept() {
	_ = p.Close() // by the contract of net.Listener, a pending Accept returns, even if there is an error
	p.accepting.Lock()
	defer p.accepting.Unlock()
}

// wait waits while the function open reports a connection that arrived or was used within the time age before the
// call, or later. It waits for at most that time, or until ctx is done. It measures the time in ticks. During the
// first two ticks every connection counts as just arrived, so that a process that was paused first reads the data
// that has arrived.
func (p *Port) wait(ctx context.Context, age time.Duration, open func(since int64) bool) {
	then := p.budget.age() - int64(age)
	tick := time.Tick(restTick)
	for n := range age / restTick {
		since := then
		if n < 2 {
			since = 0
		}
		if !open(since) {
			return
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

// usedSince reports whether an open connection arrived, had a request that began or ended, or
// had unread data, at the given time or later.
func (p *Port) usedSince(then int64) bool {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	isUsed := func(c *conn) bool { return c.since.Load() >= then }
	return slices.ContainsFunc(p.fresh, isUsed) || slices.ContainsFunc(p.kept, isUsed)
}

// unaskedSince returns the connections that have no request yet, and that arrived or had
// unread data at the given time or later.
func (p *Port) unaskedSince(then int64) (unasked []*conn) {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	for _, c := range p.fresh {
		if !c.asked.Load() && c.since.Load() >= then {
			unasked = append(unasked, c)
		}
	}
	return unasked
}

// Close implements net.Listener, and may be called more than once.
func (p *Port) Close() (err error) {
	p.closed.Do(func() {
		close(p.closing)
		err = p.Listener.Close()
	})
	return err
}
