package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-go/weir/cluster/gossip"
)

const (
	// firstByteTimeout bounds the time from accept until the mux hands a
	// connection on, the TLS handshake included.
	firstByteTimeout = 5 * time.Second
	// maxStreams bounds gossip's connections that others opened; each may hold a
	// roster in memory.
	maxStreams = 64
	// maxStreamBytes bounds what is read from one gossip connection: gossip's
	// own list of members and the roster.
	maxStreamBytes = gossip.MaxStream
	// maxGossipBytes bounds what is read from all of them that are open: gossip
	// holds a message whole before it can tell whether its sender may send it.
	// Above it only short messages pass, so that a sender that fills it locks nobody out.
	maxGossipBytes   = 2 * maxStreamBytes
	shortStreamBytes = 256 << 10
)

// mux accepts the connections to the port and hands each to gossip or to the
// peers, by its first byte. That byte comes before TLS, if there is TLS; all
// others come within.
//
// A connection is in pending from accept until it has proved what it is, at every stage:
// the bounds on connections that prove nothing rest on that, and one that left pending
// between two stages would count for neither.
type mux struct {
	listener net.Listener
	tls      *tls.Config // nil: none
	log      *slog.Logger
	refused  *refusals
	gossiped *refusals                                          // what came for gossip, in packets and on streams
	member   func(net.Conn) error                               // why the other end of a stream of gossip is no member, by its certificate
	inspect  func(r io.Reader, isIncoming bool) ([]byte, error) // reads the message of a stream

	streams chan net.Conn                // to gossip
	serve   func(net.Conn, *pendingConn) // to the peers, which have the connection leave pending
	pending *pending                     // connections that have not identified themselves yet
	gossips *pending                     // of these, those that gossip has
	held    atomic.Int64                 // bytes that were read from them

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // those to close when the mux does; nil once it has
}

func newMux(l net.Listener, t *tls.Config, member func(net.Conn) error, inspect func(io.Reader, bool) ([]byte, error), log *slog.Logger, in *pending, serve func(net.Conn, *pendingConn)) *mux {
	m := &mux{
		listener: l,
		log:      log,
		member:   member,
		refused:  newRefusals(log),
		gossiped: newRefusals(log),
		inspect:  inspect,
		streams:  make(chan net.Conn),
		serve:    serve,
		pending:  in,
		gossips:  in.part(maxStreams),
		conns:    make(map[net.Conn]struct{}),
	}
	if t != nil {
		m.tls = serverTLS(t)
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.wg.Go(m.accept)
	return m
}

// close closes the port and what gossip has open, and waits. Peers close their
// own connections.
func (m *mux) close() error {
	m.cancel()
	err := m.listener.Close()
	m.mu.Lock()
	conns := m.conns
	m.conns = nil
	m.mu.Unlock()
	for conn := range conns {
		conn.Close()
	}
	m.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// keep has close close conn; it reports false, and closes it at once, if the
// mux is closed.
func (m *mux) keep(conn net.Conn) bool {
	m.mu.Lock()
	open := m.conns != nil
	if open {
		m.conns[conn] = struct{}{}
	}
	m.mu.Unlock()
	if !open {
		conn.Close()
	}
	return open
}

func (m *mux) release(conn net.Conn) {
	m.mu.Lock()
	delete(m.conns, conn)
	m.mu.Unlock()
}

// After a failure accept pauses, twice as long each time up to a bound, and logs at
// most once in acceptLogPace.
const (
	acceptPause   = 5 * time.Millisecond
	acceptPauses  = time.Second
	acceptLogPace = time.Second
)

func (m *mux) accept() {
	pause, logged, unlogged := acceptPause, time.Time{}, 0
	for {
		conn, err := m.listener.Accept()
		if m.ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err == nil {
			pause = acceptPause
			g := m.enter(m.pending, conn)
			m.wg.Go(func() { m.admit(g) })
			continue
		}
		if now := time.Now(); now.Sub(logged) >= acceptLogPace {
			m.log.Warn("accepting a connection failed; trying again", "error", err, "retry", pause.String(), "unlogged", unlogged)
			logged, unlogged = now, 0
		} else {
			unlogged++
		}
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			// A member may be waiting: an unidentified connection makes room.
			if out := m.pending.shed(); out != nil {
				m.refuse(out.conn, reasonCrowded, err)
			}
		}
		if !sleep(m.ctx, pause) {
			return
		}
		pause = min(2*pause, acceptPauses)
	}
}

var errCrowded = errors.New("cluster: too many connections that have not authenticated")

// enter counts conn in, and closes the connection that has to go for it.
func (m *mux) enter(l *pending, conn net.Conn) *pendingConn {
	in, out := l.enter(conn)
	if out != nil {
		m.refuse(out.conn, reasonCrowded, errCrowded)
	}
	return in
}

// admit reads the first byte of g's connection and hands it on.
func (m *mux) admit(g *pendingConn) {
	raw, handed := g.conn, false
	defer func() {
		if !handed {
			m.pending.leave(g)
		}
	}()
	if !m.keep(raw) {
		return
	}
	defer m.release(raw)
	// Setting a deadline fails only on a closed connection, as will the read.
	_ = raw.SetDeadline(time.Now().Add(firstByteTimeout))
	var first [1]byte
	if _, err := io.ReadFull(raw, first[:]); err != nil {
		// Without a byte it was a port scan, or a load balancer that looks
		// whether we live.
		m.refuse(raw, stopped(err), err)
		return
	}
	if first[0] != firstByteCheck && first[0] != firstByteGossip {
		m.refuse(raw, reasonGarbage, fmt.Errorf("%w: it starts with %#x", errGarbage, first[0]))
		return
	}
	conn := raw
	if m.tls != nil {
		secured, err := acceptTLS(m.ctx, raw, m.tls)
		if err != nil {
			reason := stopped(err)
			if reason == "" {
				reason = reasonTLS
			}
			m.refuse(raw, reason, err)
			return
		}
		conn = secured
	}
	_ = raw.SetDeadline(time.Time{})
	if handed = first[0] == firstByteCheck; handed {
		m.serve(conn, g)
	} else if m.pending.vouch(g) { // else it was shown out, and closed, meanwhile
		m.gossip(conn)
	}
}

// gossip hands conn to memberlist, which gives it a deadline and closes it, and
// waits for that.
func (m *mux) gossip(conn net.Conn) {
	if err := m.member(conn); err != nil {
		m.refuse(conn, reasonIdentity, err)
		return
	}
	closed := make(chan struct{})
	s := m.newStream(conn, true, &m.held)
	s.closed = func() { close(closed) }
	if !m.keep(s) {
		return
	}
	defer m.release(s)
	defer m.gossips.leave(m.enter(m.gossips, s))
	select {
	case m.streams <- s:
	case <-m.ctx.Done():
		s.Close()
	}
	<-closed
}

// refuse closes conn and counts it under reason; an empty one is not counted.
func (m *mux) refuse(conn net.Conn, reason string, err error) {
	if m.ctx.Err() == nil {
		m.refused.add(reason, conn.RemoteAddr(), err)
	}
	sever(conn)
}

// stream is a connection of gossip's. The one message that comes on it is read whole,
// within bounds, before memberlist sees a byte of it; nothing comes after it. Its first
// Close is told.
type stream struct {
	net.Conn
	inspect func(io.Reader) ([]byte, error)
	refused func(error)
	left    int           // bytes that may still be read; memberlist reads from one goroutine
	held    *atomic.Int64 // by all streams
	taken   atomic.Int64  // by this one
	closed  func()
	once    sync.Once

	inspected bool
	message   []byte // what memberlist has not read of it
	err       error  // what it reads after that
}

// newStream is conn as gossip has it; closed is yet to be set. A listener is sent a
// label, and a dialler is not.
func (m *mux) newStream(conn net.Conn, listens bool, held *atomic.Int64) *stream {
	s := &stream{Conn: conn, left: maxStreamBytes, held: held}
	s.inspect = func(r io.Reader) ([]byte, error) { return m.inspect(r, listens) }
	s.refused = func(err error) {
		if m.ctx.Err() == nil {
			m.gossiped.add(reasonOfStream(err), conn.RemoteAddr(), err)
		}
	}
	return s
}

// dial opens a stream of gossip to a member.
func (m *mux) dial(ctx context.Context, n Network, c *tls.Config, addr string) (net.Conn, error) {
	conn, err := openStream(ctx, n.Dial, c, addr, firstByteGossip)
	if err != nil {
		return nil, err
	}
	if err := m.member(conn); err != nil {
		sever(conn)
		return nil, err
	}
	s := m.newStream(conn, false, new(atomic.Int64))
	s.closed = func() { m.release(s) }
	if !m.keep(s) {
		return nil, net.ErrClosed
	}
	return s, nil
}

// reasonOfStream returns what a stream counts under whose message is not handed on, and
// nothing if the stream just ended.
func reasonOfStream(err error) string {
	switch {
	case errors.Is(err, gossip.ErrOversized):
		return reasonOversized
	case errors.Is(err, gossip.ErrSealed):
		return reasonAuthentication
	case errors.Is(err, gossip.ErrLabel), errors.Is(err, gossip.ErrMalformed):
		return reasonGarbage
	}
	return ""
}

func (s *stream) Read(b []byte) (int, error) {
	if !s.inspected {
		s.inspected = true
		s.message, s.err = s.inspect(unread{s})
		if s.err == nil {
			s.err = io.EOF
		} else {
			s.refused(s.err)
		}
	}
	if len(s.message) == 0 {
		return 0, s.err
	}
	n := copy(b, s.message)
	s.message = s.message[n:]
	return n, nil
}

// unread is what a stream has not read yet, within its bounds.
type unread struct{ s *stream }

func (u unread) Read(b []byte) (int, error) {
	s := u.s
	if s.left == 0 || s.held.Load() >= maxGossipBytes && s.taken.Load() >= shortStreamBytes {
		return 0, gossip.ErrOversized
	}
	n, err := s.Conn.Read(b[:min(len(b), s.left)])
	s.left -= n
	s.held.Add(int64(n))
	s.taken.Add(int64(n))
	return n, err
}

func (s *stream) Close() error {
	sever(s.Conn)
	s.once.Do(func() {
		s.held.Add(-s.taken.Load())
		s.closed()
	})
	return nil
}

// sleep waits for d; it reports false if ctx was done first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
