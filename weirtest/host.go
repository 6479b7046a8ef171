package weirtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/weir-go/weir/cluster"
)

// Host is one machine on a Network. It runs one process at a time.
type Host struct {
	net     *Network
	name    string
	number  int // from 1, in the order of their making
	ip      net.IP
	frozen  bool
	thawed  time.Time // when it last was frozen no longer
	pauses  pauses
	process *process // the one that runs; Network.mu guards it
	starts  int      // of simulated clusters
}

// Name is what the host is called, and resolves to its address.
func (h *Host) Name() string { return h.name }

// Network is the host's own view of the network, for the process that runs on
// it now. Once Kill has ended that process it answers net.ErrClosed, and
// Network gives a new process a view of its own.
func (h *Host) Network() cluster.Network {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.process
}

// Freeze holds all that the host sends and is sent until Thaw, as when its
// process is stopped (SIGSTOP) or its machine hangs. Its goroutines and timers
// run on, but nobody notices; a node with Host.Cluster forgets no member for that time.
// A Freeze that is never followed by Thaw is a machine that has lost its power.
func (h *Host) Freeze() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.frozen = true
}

// Thaw ends Freeze.
func (h *Host) Thaw() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.frozen {
		h.frozen, h.thawed = false, time.Now()
	}
	h.net.release()
}

// Throttle pauses the host for the length of pause once in every, from some moment
// within the next every on in which it runs: as a CPU quota does, or a neighbour that takes the cores.
// What its process sends in a pause goes out at the end of it, and what it is sent
// comes in then; between pauses it is as fast as ever. When in each period the pauses
// come depends on the network's seed and on the host's name, so that hosts which are
// throttled together are out of step. It holds for whatever runs on the host, until
// the next Throttle; a pause of 0 ends it, but for what a pause has held by then. It
// panics if a pause is not shorter than every.
//
// A node with Host.Cluster judges others as a process does that stood still: the wait
// for an answer that ends in a pause ends after it, with the answer if that has come,
// and of what its pauses delay its looks by only a part counts as others' silence. All its other
// timers run on, as do those of a node with Host.Network.
func (h *Host) Throttle(pause, every time.Duration) {
	if pause < 0 || pause > 0 && pause >= every {
		panic(fmt.Sprintf("weirtest: Throttle of %q by %v in every %v: a pause must be shorter than the time from one to the next", h.name, pause, every))
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	// A pause that it is in may hold something until its end: it is not to run into
	// the first of the new ones, which would make one pause of two.
	runs := h.resumes(time.Now())
	h.pauses = pauses{pause: pause, every: every}
	if pause > 0 {
		h.pauses.from = runs.Add(1 + time.Duration(h.net.rand("pauses", h.name).Int64N(int64(every))))
	}
}

// Paused is how long the pause of Throttle lasts that the host is in now, 0 if it is
// in none. A process that is paused would ask nothing.
func (h *Host) Paused() time.Duration {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	now := time.Now()
	return h.resumes(now).Sub(now)
}

// resumes is when the host runs that is paused at a time; that time if it is not.
func (h *Host) resumes(at time.Time) time.Time { return h.pauses.resume(at) }

// pauses come once in every, the first at from. The zero pauses are none.
type pauses struct {
	from         time.Time
	pause, every time.Duration
}

// resume is the end of the pause that holds a moment, or the moment.
func (p *pauses) resume(at time.Time) time.Time {
	if p.pause == 0 || at.Before(p.from) {
		return at
	}
	return at.Add(max(0, p.pause-at.Sub(p.from)%p.every))
}

// within returns how much of the time between two moments was part of pauses.
func (p *pauses) within(from, to time.Time) (sum time.Duration) {
	if p.pause == 0 || !to.After(p.from) {
		return 0
	}
	return p.until(to) - p.until(from)
}

// until returns how long the host has been paused from the first pause up to a moment.
func (p *pauses) until(at time.Time) time.Duration {
	since := max(0, at.Sub(p.from))
	return since/p.every*p.pause + min(since%p.every, p.pause)
}

// Kill ends the host's process, as kill -9 does: its ports close, and the
// other ends of its connections read an error. What it runs is still to be
// closed by the test, for the sake of its goroutines, but reaches nobody.
func (h *Host) Kill() {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	p := h.process
	h.process = newProcess(h)
	p.dead = true
	for _, l := range p.listeners {
		l.changed.wake()
	}
	for _, pc := range p.packets {
		pc.changed.wake()
	}
	for _, c := range slices.Clone(p.conns) { // end removes it there
		if h.frozen {
			c.out.queue, c.out.due = nil, 0 // it never came to sending this
		}
		c.end(syscall.ECONNRESET)
	}
	p.conns = nil
	if p.member != nil {
		p.member.shut()
	}
	if h.frozen {
		h.frozen = false
		n.release()
	}
}

// process is a host's sockets and simulated cluster from its start to a Kill.
// It implements cluster.Network.
type process struct {
	host      *Host
	dead      bool
	listeners map[int]*listener
	packets   map[int]*packetConn
	conns     []*conn // a slice, because a map's order would not replay
	member    *member // the simulated cluster that has started, if any
	ephemeral int
}

func newProcess(h *Host) *process {
	return &process{host: h, listeners: make(map[int]*listener), packets: make(map[int]*packetConn), ephemeral: 32768}
}

// free is the next port that nothing uses.
func (p *process) free() int {
	for {
		p.ephemeral++
		if p.ephemeral > 65535 {
			p.ephemeral = 32769
		}
		if p.listeners[p.ephemeral] == nil && p.packets[p.ephemeral] == nil {
			return p.ephemeral
		}
	}
}

func split(addr string) (host string, port int, err error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		err = fmt.Errorf("weirtest: address %q: the port must be a number: %w", addr, err)
	}
	return host, int(number), err
}

// Listen opens a listener and a packet connection on one port of the host.
func (p *process) Listen(_ context.Context, addr string) (net.Listener, net.PacketConn, error) {
	host, at, err := split(addr)
	if err != nil {
		return nil, nil, err
	}
	n := p.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if at == 0 {
		at = p.free()
	}
	local := &net.TCPAddr{IP: p.host.ip, Port: at}
	fail := func(err error) (net.Listener, net.PacketConn, error) {
		return nil, nil, &net.OpError{Op: "listen", Net: "tcp", Addr: local, Err: err}
	}
	ip := net.ParseIP(host)
	switch {
	case p.dead:
		return fail(net.ErrClosed)
	case host != "" && (ip == nil || !ip.IsUnspecified()) && !slices.Contains(n.lookup(host), p.host):
		return fail(syscall.EADDRNOTAVAIL)
	case p.listeners[at] != nil || p.packets[at] != nil:
		return fail(syscall.EADDRINUSE)
	}
	l := &listener{process: p, addr: local}
	pc := &packetConn{socket: socket{process: p, local: &net.UDPAddr{IP: p.host.ip, Port: at}}}
	p.listeners[at], p.packets[at] = l, pc
	return l, pc, nil
}

// Dial opens a stream to "host:port". It waits for an answer until ctx is
// done, and no longer than 127 s.
func (p *process) Dial(ctx context.Context, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: textAddr(addr), Err: err}
	}
	host, port, err := split(addr)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, os.ErrDeadlineExceeded)
	defer cancel()

	n := p.host.net
	n.mu.Lock()
	to := n.lookup(host)
	if p.dead || len(to) == 0 {
		n.mu.Unlock()
		if p.dead {
			return fail(net.ErrClosed)
		}
		return fail(syscall.EHOSTUNREACH)
	}
	if l := n.link(p.host, to[0]); l.rejects {
		n.mu.Unlock()
		time.Sleep(2 * l.Latency)
		return fail(syscall.ECONNREFUSED)
	}
	c := newConn(p, &net.TCPAddr{IP: p.host.ip, Port: p.free()}, to[0], &net.TCPAddr{IP: to[0].ip, Port: port})
	answered := make(chan error, 1)
	n.send(&c.out, call(func() { c.arrive(port, answered) }))
	changed := c.changed.wait()
	n.mu.Unlock()

	select {
	case err = <-answered:
	case <-changed: // an answer and what came right after it, or a Kill here
		select {
		case err = <-answered:
		default:
			err = net.ErrClosed
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = c.Close()
		return fail(err)
	}
	return c, nil
}

// LookupHost is the addresses of a name: a host's, or SetName's.
func (p *process) LookupHost(ctx context.Context, host string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := p.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	hosts := n.lookup(host)
	if len(hosts) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	addrs := make([]string, len(hosts))
	for i, h := range hosts {
		addrs[i] = h.ip.String()
	}
	return addrs, nil
}

// textAddr is an address that has not been resolved.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

var _ cluster.Network = (*process)(nil)

// maxBacklog bounds the streams that wait for Accept; those above are refused.
const maxBacklog = 128

type listener struct {
	process *process
	addr    *net.TCPAddr
	backlog []*conn
	closed  bool
	changed signal
}

func (l *listener) Accept() (net.Conn, error) {
	n := l.process.host.net
	for {
		n.mu.Lock()
		if l.closed || l.process.dead {
			n.mu.Unlock()
			return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
		}
		if len(l.backlog) > 0 {
			c := l.backlog[0]
			l.backlog = l.backlog[1:]
			n.mu.Unlock()
			return c, nil
		}
		changed := l.changed.wait()
		n.mu.Unlock()
		await(changed, time.Time{})
	}
}

// Close closes the port for streams and breaks those that nobody accepted.
func (l *listener) Close() error {
	n := l.process.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	delete(l.process.listeners, l.addr.Port)
	for _, c := range l.backlog {
		c.end(syscall.ECONNRESET)
	}
	l.backlog = nil
	l.changed.wake()
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }
