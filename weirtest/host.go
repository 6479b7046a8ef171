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

// Host is a machine on a Network. A host runs one process at a time.
type Host struct {
	net     *Network
	name    string
	number  int // number of the host, from 1 in the order of creation
	ip      net.IP
	frozen  bool
	thawed  time.Time // when Thaw last ended a freeze
	pauses  pauses
	process *process // the process that runs; replaced by Kill; guarded by Network.mu
	starts  int      // number of simulated clusters that have started
}

// Name returns the name of the host, which resolves to its address.
func (h *Host) Name() string { return h.name }

// Network returns the network from the view of the host, for the process that runs on it
// now. After Kill has ended that process, Listen and Dial of the returned value fail with
// net.ErrClosed, and Network returns another value for the new process.
func (h *Host) Network() cluster.Network {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.process
}

// Freeze holds the messages of the host until Thaw, as if the process were stopped
// (SIGSTOP) or the machine hung. If more than 4,096 datagrams wait in the network, further
// datagrams are lost. The goroutines and timers of the process continue, but no other host
// notices. A node with Host.Cluster forgets no member during that time. A Freeze without a
// Thaw simulates a machine without power.
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

// Throttle pauses the host once in each period, as a CPU quota does, or a neighbour that
// takes the cores. The arguments are the length of a pause and the length of a period.
// The first pause begins at a random time within one period, which starts now or at the
// end of a present pause. Messages that the process sends during a pause leave the host
// at the end of the pause, and messages to the process arrive at that time. Between
// pauses, the host is as fast as ever. The times of the pauses depend on the seed of the
// network and on the name of the host, so hosts that are throttled together are out of
// step. Throttle applies to all processes on the host until the next call. If the pause
// is 0, the pauses end, but messages that were sent earlier may still wait for the end of
// an old pause. Throttle panics if the pause is negative, or if a pause above 0 is as
// long as the period or longer.
//
// A node with Host.Cluster judges other members like a process that did not run during
// the pauses. The pauses during a wait for an answer extend the wait. If the wait ends in
// a pause, an answer counts if it has arrived by the end of the pause. If a pause delays
// a check of the silence of other members, only a part of the delay counts as silence.
// All other timers of the node continue, as do the timers of a node with Host.Network.
func (h *Host) Throttle(pause, every time.Duration) {
	if pause < 0 || pause > 0 && pause >= every {
		panic(fmt.Sprintf("weirtest: Throttle of host %q has a pause of %v in every %v: use a pause of at least 0 that is shorter than the period", h.name, pause, every))
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	// If the host is in a pause, the pause may hold messages until its end. The first of
	// the new pauses must begin later, because otherwise the two would become one pause.
	runs := h.resumeTime(time.Now())
	h.pauses = pauses{pause: pause, every: every}
	if pause > 0 {
		h.pauses.from = runs.Add(1 + time.Duration(h.net.rand("pauses", h.name).Int64N(int64(every))))
	}
}

// Paused returns the rest of the present pause of Throttle, or 0 if the host is not
// paused. A paused process would send no request.
func (h *Host) Paused() time.Duration {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	now := time.Now()
	return h.resumeTime(now).Sub(now)
}

// resumeTime returns the end of the pause at a time, or that time if the host is not
// paused.
func (h *Host) resumeTime(at time.Time) time.Time { return h.pauses.resumeTime(at) }

// pauses is a sequence of pauses. The first pause begins at the time from, and a further
// pause begins after each period of length every. The zero value has no pauses.
type pauses struct {
	from         time.Time
	pause, every time.Duration
}

// resumeTime returns the end of the pause that contains the given time. If there is no
// such pause, it returns the given time.
func (p *pauses) resumeTime(at time.Time) time.Time {
	if p.pause == 0 || at.Before(p.from) {
		return at
	}
	return at.Add(max(0, p.pause-at.Sub(p.from)%p.every))
}

// pausedBetween returns how much of the time between two times was part of pauses.
func (p *pauses) pausedBetween(from, to time.Time) (sum time.Duration) {
	if p.pause == 0 || !to.After(p.from) {
		return 0
	}
	return p.pausedUntil(to) - p.pausedUntil(from)
}

// pausedUntil returns the sum of the pauses up to a time.
func (p *pauses) pausedUntil(at time.Time) time.Duration {
	since := max(0, at.Sub(p.from))
	return since/p.every*p.pause + min(since%p.every, p.pause)
}

// Kill ends the process of the host like the signal SIGKILL: its ports close, and the
// other ends of its connections read an error. Kill also ends a Freeze: then the stream
// data and simulated messages of the frozen process that have not arrived are lost. The
// test must still close the objects of the process, to end their goroutines. These
// objects send no further message to other hosts.
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
	for _, c := range slices.Clone(p.conns) { // closeWith removes c from p.conns
		if h.frozen {
			c.out.queue, c.out.due = nil, 0 // the process has not sent this
		}
		c.closeWith(syscall.ECONNRESET)
	}
	p.conns = nil
	if p.member != nil {
		p.member.end()
	}
	if h.frozen {
		h.frozen = false
		n.release()
	}
}

// process has the sockets and the simulated cluster of a host, until a Kill. It
// implements cluster.Network.
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

// freePort returns the next unused port.
func (p *process) freePort() int {
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

func splitAddr(addr string) (host string, port int, err error) {
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

// Listen opens a listener and a packet connection on the same port of the host.
func (p *process) Listen(_ context.Context, addr string) (net.Listener, net.PacketConn, error) {
	host, at, err := splitAddr(addr)
	if err != nil {
		return nil, nil, err
	}
	n := p.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if at == 0 {
		at = p.freePort()
	}
	local := &net.TCPAddr{IP: p.host.ip, Port: at}
	fail := func(err error) (net.Listener, net.PacketConn, error) {
		return nil, nil, &net.OpError{Op: "listen", Net: "tcp", Addr: local, Err: err}
	}
	ip := net.ParseIP(host)
	switch {
	case p.dead:
		return fail(net.ErrClosed)
	case host != "" && (ip == nil || !ip.IsUnspecified()) && !slices.Contains(n.lookUp(host), p.host):
		return fail(syscall.EADDRNOTAVAIL)
	case p.listeners[at] != nil || p.packets[at] != nil:
		return fail(syscall.EADDRINUSE)
	}
	l := &listener{process: p, addr: local}
	pc := &packetConn{socket: socket{process: p, local: &net.UDPAddr{IP: p.host.ip, Port: at}}}
	p.listeners[at], p.packets[at] = l, pc
	return l, pc, nil
}

// Dial opens a stream to "host:port". Dial waits for an answer until ctx is done, for at
// most 127 s.
func (p *process) Dial(ctx context.Context, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: textAddr(addr), Err: err}
	}
	host, port, err := splitAddr(addr)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, os.ErrDeadlineExceeded)
	defer cancel()

	n := p.host.net
	n.mu.Lock()
	to := n.lookUp(host)
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
	c := newConn(p, &net.TCPAddr{IP: p.host.ip, Port: p.freePort()}, to[0], &net.TCPAddr{IP: to[0].ip, Port: port})
	answered := make(chan error, 1)
	n.send(&c.out, call(func() { c.arrive(port, answered) }))
	changed := c.changed.wait()
	n.mu.Unlock()

	select {
	case err = <-answered:
	case <-changed: // data has arrived right after the answer, the connection broke, or this host was killed
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

// LookupHost returns the addresses of a name, which is the name of a host or was set by
// SetName.
func (p *process) LookupHost(ctx context.Context, host string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := p.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	hosts := n.lookUp(host)
	if len(hosts) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	addrs := make([]string, len(hosts))
	for i, h := range hosts {
		addrs[i] = h.ip.String()
	}
	return addrs, nil
}

// textAddr is an address as text, in the error of a Dial.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

var _ cluster.Network = (*process)(nil)

// maxBacklog is the maximum number of streams that wait for Accept; further streams are
// refused.
const maxBacklog = 4096 // as Linux since 5.4

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

// Close closes the port for streams, and breaks the streams that were not accepted.
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
		c.closeWith(syscall.ECONNRESET)
	}
	l.backlog = nil
	l.changed.wake()
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }
