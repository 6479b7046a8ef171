package cluster

import (
	"container/list"
	"net"
	"sync"

	"github.com/weir-go/weir/internal/conns"
)

// Bounds on connections that have not identified themselves yet.
const (
	pendingSize = 1024
	pendingPart = 8 // each pending set has this part of the file descriptors at most
)

// pending holds the connections that have not proved yet what they are, from when they
// are accepted, and the streams that gossip has been handed. It is bounded. When it is full,
// the oldest connection of the origin that has most is closed. So a sender with few addresses
// displaces only its own connections, while many members may connect from one address. To
// refuse the newest instead would let idle connections lock members out: a member leaves
// pending after a round trip, and with gossip when rosters have been exchanged.
//
// A stream of gossip is closed only where no other connection can be: it is bounded
// apart, and takes several round trips.
//
// An origin is an IPv4 address, or the 64 bits of an IPv6 address that a network
// provider gives to one customer. That customer chooses the others freely.
type pending struct {
	size int

	mu      sync.Mutex
	origins map[string]*origin // those with connections in bySize
	// bySize[n] has the origins with n connections, each in the order in which it came to have n. The
	// last list that is not empty ends bySize, so that no search for an origin depends on their number.
	bySize  []*list.List // of *origin
	streams *list.List   // of *pendingConn: those that are bounded apart, the oldest first
	count   int          // connections in all
}

// origin is the connections from one origin, except streams of gossip.
type origin struct {
	name  string
	conns *list.List    // of *pendingConn, the oldest first
	at    *list.Element // in bySize
}

type pendingConn struct {
	conn   net.Conn
	origin *origin
	stream bool          // it is bounded apart: others go first
	at     *list.Element // nil once it has left
}

// newPending is one of that size, or smaller where the process may have few file
// descriptors.
func newPending(size int, descriptors uint64) *pending {
	return &pending{
		size: int(min(uint64(size), max(1, descriptors/pendingPart))), origins: map[string]*origin{},
		bySize: []*list.List{list.New()}, streams: list.New(),
	}
}

// part is a pending for some of those that are in l, of that size at most and no more than
// half of l.
func (l *pending) part(size int) *pending { return newPending(max(1, min(size, l.size/2)), 1<<20) }

// enter lets conn in and returns the one that had to go for it, nil if none had. The
// caller closes that one's connection.
func (l *pending) enter(conn net.Conn) (in, out *pendingConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= l.size {
		out = l.removeFirst()
	}
	name := conns.Origin(conn.RemoteAddr())
	o := l.origins[name]
	if o == nil {
		o = &origin{name: name, conns: list.New()}
		l.origins[name] = o
	}
	in = &pendingConn{conn: conn, origin: o}
	in.at = o.conns.PushBack(in)
	l.count++
	l.sort(o, o.conns.Len()-1)
	return in, out
}

// sort moves an origin to the list of its present number of connections. Before the last change it had
// so many.
func (l *pending) sort(o *origin, before int) {
	if before > 0 {
		l.bySize[before].Remove(o.at)
	}
	now := o.conns.Len()
	if now == len(l.bySize) {
		l.bySize = append(l.bySize, list.New())
	}
	if now == 0 {
		delete(l.origins, o.name)
	} else {
		o.at = l.bySize[now].PushBack(o)
	}
	if last := len(l.bySize) - 1; last > 0 && l.bySize[last].Len() == 0 {
		l.bySize = l.bySize[:last]
	}
}

// removeFirst removes the connection that goes first, and returns nil if there is none: the oldest of
// an origin with most, and a stream of gossip if all connections are.
func (l *pending) removeFirst() (out *pendingConn) {
	if most := l.bySize[len(l.bySize)-1].Front(); most != nil {
		out = most.Value.(*origin).conns.Front().Value.(*pendingConn)
	} else if oldest := l.streams.Front(); oldest != nil {
		out = oldest.Value.(*pendingConn)
	}
	if out != nil {
		l.remove(out)
	}
	return out
}

// vouch records that g is bounded apart from now on. It reports false if g was closed.
func (l *pending) vouch(g *pendingConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.at == nil {
		return false
	}
	l.remove(g)
	g.stream, g.at = true, l.streams.PushBack(g)
	l.count++
	return true
}

// leave is called when the handshake or the stream is over. It reports whether g
// was still in: false if it had been closed.
func (l *pending) leave(g *pendingConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.at == nil {
		return false
	}
	l.remove(g)
	return true
}

func (l *pending) remove(g *pendingConn) {
	l.count--
	if g.stream {
		l.streams.Remove(g.at)
	} else {
		g.origin.conns.Remove(g.at)
		l.sort(g.origin, g.origin.conns.Len()+1)
	}
	g.at = nil
}

// shed removes the connection that goes first; nil if nobody is in. The caller closes its connection.
func (l *pending) shed() *pendingConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.removeFirst()
}
