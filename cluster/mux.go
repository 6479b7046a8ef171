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
	// firstByteTimeout bounds the time from accept until the mux passes a
	// connection on, including the TLS handshake.
	firstByteTimeout = 5 * time.Second
	// maxStreams bounds the accepted streams of gossip, because each may hold a roster
	// in memory.
	maxStreams = 64
	// maxStreamBytes bounds the bytes read from one stream of gossip: the member list of
	// memberlist, and the roster.
	maxStreamBytes = gossip.MaxStream
	// maxGossipBytes bounds the bytes read from all accepted streams that are open: gossip holds a
	// whole message before it can check whether the message is allowed. Above the bound, only messages
	// of up to about shortStreamBytes pass, so that a sender that reaches the bound does not lock
	// members out.
	maxGossipBytes   = 2 * maxStreamBytes
	shortStreamBytes = 256 << 10
)

// mux accepts the connections to the port. The first byte of a connection decides whether mux passes
// the connection to gossip or to peers. With Config.TLS, the TLS handshake follows this byte.
//
// At every stage from accept until it has identified itself, a connection is in pending. The bounds on
// unidentified connections rely on this: a connection that left pending between two stages would not be
// counted.
type mux struct {
	listener net.Listener
	tls      *tls.Config // nil without TLS
	log      *slog.Logger
	refused  *refusals
	gossiped *refusals                                          // refused packets, streams and members of gossip
	member   func(net.Conn) error                               // returns why the certificate of a stream of gossip is not a member's
	inspect  func(r io.Reader, isIncoming bool) ([]byte, error) // reads and checks the message of a stream

	streams chan net.Conn                // streams that are passed to gossip
	serve   func(net.Conn, *pendingConn) // passes a connection to peers, which remove it from pending
	pending *pending                     // connections that have not identified themselves yet
	gossips *pending                     // the part of pending that gossip uses
	held    atomic.Int64                 // bytes read from the streams in gossips

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // closed together with the mux; nil once it is closed
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
		gossips:  in.newPart(maxStreams),
		conns:    make(map[net.Conn]struct{}),
	}
	if t != nil {
		m.tls = serverTLS(t)
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.wg.Go(m.accept)
	return m
}

// close closes the port and the connections in conns, and waits for the goroutines of the
// mux. Peers close their own connections.
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

// track adds conn to the set of connections that close will close. If the mux is closed, track closes
// conn at once and returns false.
func (m *mux) track(conn net.Conn) bool {
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

// After a failure, accept pauses for acceptPause. Each further failure doubles the pause, up to
// acceptPauses. A log line is written at most once in acceptLogPace.
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
			// A member may wait for a descriptor, so an unidentified connection is closed.
			if out := m.pending.evict(); out != nil {
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

// enter adds conn to l. If l is full, enter closes the connection that was removed.
func (m *mux) enter(l *pending, conn net.Conn) *pendingConn {
	in, out := l.enter(conn)
	if out != nil {
		m.refuse(out.conn, reasonCrowded, errCrowded)
	}
	return in
}

// admit reads the first byte of the connection of g, and passes the connection on.
func (m *mux) admit(g *pendingConn) {
	raw, handed := g.conn, false
	defer func() {
		if !handed {
			m.pending.leave(g)
		}
	}()
	if !m.track(raw) {
		return
	}
	defer m.release(raw)
	// Setting a deadline fails only on a closed connection, as will the read.
	_ = raw.SetDeadline(time.Now().Add(firstByteTimeout))
	var first [1]byte
	if _, err := io.ReadFull(raw, first[:]); err != nil {
		// A connection without a byte is a port scan, or the health check of a
		// load balancer.
		m.refuse(raw, refusalReason(err), err)
		return
	}
	if first[0] != firstByteCheck && first[0] != firstByteGossip {
		m.refuse(raw, reasonGarbage, fmt.Errorf("%w: the connection starts with %#x", errGarbage, first[0]))
		return
	}
	conn := raw
	if m.tls != nil {
		secured, err := acceptTLS(m.ctx, raw, m.tls)
		if err != nil {
			reason := refusalReason(err)
			if reason == "" && !closedByPeer(err) && !errors.Is(err, net.ErrClosed) {
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
	} else if m.pending.moveToStreams(g) { // otherwise the connection was closed meanwhile
		m.gossip(conn)
	}
}

// gossip passes conn to memberlist, which sets a deadline and closes conn. gossip returns when conn is
// closed.
func (m *mux) gossip(conn net.Conn) {
	if err := m.member(conn); err != nil {
		m.refuse(conn, reasonIdentity, err)
		return
	}
	closed := make(chan struct{})
	s := m.newStream(conn, true, &m.held)
	s.closed = func() { close(closed) }
	if !m.track(s) {
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

// refuse closes conn and counts the refusal under reason. An empty reason is not counted.
func (m *mux) refuse(conn net.Conn, reason string, err error) {
	if m.ctx.Err() == nil {
		m.refused.add(reason, conn.RemoteAddr(), err)
	}
	sever(conn)
}

// stream is a connection of gossip. It carries a single message, which is read whole, and within
// bounds, before memberlist receives the first byte. The first call of Close calls closed.
type stream struct {
	net.Conn
	inspect func(io.Reader) ([]byte, error)
	refused func(error)
	left    int           // bytes that may still be read; memberlist reads from one goroutine
	held    *atomic.Int64 // bytes read by all open streams that share the counter
	taken   atomic.Int64  // bytes read by this stream
	closed  func()
	once    sync.Once

	inspected bool
	message   []byte // the part of the message that memberlist has not read
	err       error  // returned by Read after the message
}

// newStream returns the stream of gossip over conn. The caller must set closed. listens reports whether
// this node accepted conn: a listener receives a label, and a dialler does not.
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
	if !m.track(s) {
		return nil, net.ErrClosed
	}
	return s, nil
}

// reasonOfStream returns the reason in Stats.Refused for a stream whose message was not passed on
// because of err, and "" if the stream just ended.
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

// unread reads from the connection of a stream, within the bounds of the stream.
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

// sleep waits for d. If ctx is done first, it returns false.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
