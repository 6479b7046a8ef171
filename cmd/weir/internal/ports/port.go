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

// Port is a net.Listener whose connections are bounded by a Budget. It is served by a
// server of NewWeb or NewRPC, which tell it what its connections do.
type Port struct {
	net.Listener
	name        string
	budget      *Budget
	pool        *pool
	mostNew     int
	writeWithin time.Duration // bounds each write; 0 where the server bounds answers
	paced       loglimit.Line
	rpcs        rpcs

	resting   atomic.Bool
	accepting sync.Mutex // held by Accept
	closed    sync.Once
	closing   chan struct{}
	shut      atomic.Bool // Shutdown was called

	fresh, kept set // connections that are new, and others; guarded by pool
}

// Clients returns a port that services ask, with the name that logs have for it.
func (b *Budget) Clients(l net.Listener, name string) *Port {
	return b.port(l, name, b.clients, b.clients.most/newOfClients)
}

// Probes returns the port that is asked whether the process lives. It has a part of the
// budget of its own.
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

// roomEvery is how often a connection that waits looks whether another one stalls by now.
const roomEvery = 2 * time.Millisecond

// sendBuffer bounds what the kernel holds of answers that a client does not read, in bytes
// of a connection.
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
			p.cut(p.pool.shed(p.budget.now()))
		}
		return nil, p.acceptError(err) // after an error for lack of descriptors, servers try again
	}
	if b, is := raw.(interface{ SetWriteBuffer(int) error }); is {
		_ = b.SetWriteBuffer(sendBuffer) // which fails on a closed connection alone, as reads will
	}
	c := &conn{Conn: raw, port: p, at: -1}
	c.since.Store(p.budget.now())
	out, in := p.pool.enter(c, p.budget.now())
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

// await waits until there is room for c. It returns false if the port was closed first.
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
		out, in := p.pool.enter(c, p.budget.now())
		p.cut(out)
		if in {
			return true
		}
	}
}

// cut closes connections that had to go for others.
func (p *Port) cut(out []*conn) {
	for _, c := range out {
		c.sever()
		if unlogged, due := c.port.paced.Due(time.Now()); due {
			p.budget.log.Warn("closed a stalled connection, because its port is full", "listener", c.port.name, "addr", c.Conn.RemoteAddr().String(), "unlogged", unlogged)
		}
	}
}

// HTTP has no way to say that a connection is about to end, but in an answer. A client that
// used one within recently may send its next request in the moment that the connection ends.
// One that has connected asks within shortly, or keeps the connection as a spare one.
const (
	recently = time.Second
	shortly  = 100 * time.Millisecond
	restTick = 10 * time.Millisecond
)

// Rest waits until no connection is left that was used within the last second, for a second at
// most, or until ctx is done. Each answer of HTTP ends its connection from now on.
func (p *Port) Rest(ctx context.Context) {
	p.resting.Store(true)
	p.wait(ctx, recently, p.usedSince)
}

// Shutdown closes the port and then calls the Shutdown of its server, which drops each request
// that comes later. So clients that have just connected have a tenth of a second to ask first.
// The server would wait five seconds for a connection on which nobody asks; it is closed here.
// Shutdown returns the error of the server's Shutdown, which is not nil if ctx is done first. The
// server keeps a connection of HTTP/2 open for a second after its last answer, unless the client
// ends it.
func (p *Port) Shutdown(ctx context.Context, server *http.Server) error {
	p.shut.Store(true)
	p.closeAndTakeIn()
	unasked := func(then int64) bool { return len(p.unaskedSince(then)) > 0 }
	p.wait(ctx, shortly, unasked)
	over := make(chan error, 1)
	go func() { over <- server.Shutdown(ctx) }()
	p.wait(ctx, shortly, unasked) // until requests that the server took before are with their handlers
	for _, c := range p.unaskedSince(0) {
		_ = c.Close() // below TLS, whose goodbye can block
	}
	return <-over
}

// closeAndTakeIn closes the port. The connection that Accept was about to return is in the pool
// when closeAndTakeIn returns.
func (p *Port) closeAndTakeIn() {
	_ = p.Close() // whatever the error, an Accept that is under way returns, by net.Listener's contract
	p.accepting.Lock()
	defer p.accepting.Unlock()
}

// wait waits until no connection is open that came or was used within age. It waits for age at
// most, or until ctx is done. It measures that in ticks. During the first two, each connection
// counts as one that just came, so that a process that stood still first reads what has come.
func (p *Port) wait(ctx context.Context, age time.Duration, open func(since int64) bool) {
	then := p.budget.now() - int64(age)
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

// usedSince reports whether a connection is open that came then or later, or on which a
// request began or ended.
func (p *Port) usedSince(then int64) bool {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	isUsed := func(c *conn) bool { return c.since.Load() >= then }
	return slices.ContainsFunc(p.fresh, isUsed) || slices.ContainsFunc(p.kept, isUsed)
}

// unaskedSince returns the connections that came then or later and have no request so far.
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

// Close implements net.Listener. To close it again does nothing.
func (p *Port) Close() (err error) {
	p.closed.Do(func() {
		close(p.closing)
		err = p.Listener.Close()
	})
	return err
}
