package cluster

import (
	"container/list"
	"net"
	"sync"

	"github.com/weir-go/weir/internal/conns"
)

// These are the bounds for connections that have not yet identified themselves.
const (
	pendingSize = 1024
	pendingPart = 8 // these connections use at most 1/pendingPart of the file descriptors
)

// pending holds the accepted connections that have not identified themselves yet, and the streams of
// gossip. When pending is full, the oldest connection of the origin with most connections is closed. So
// a sender with few addresses displaces its own connections, unless another address has more, while many
// members may connect from the same address. If the newest connection were refused instead, idle connections could lock members
// out. A member leaves pending after a round trip, or, with gossip, after the exchange of rosters.
//
// A stream of gossip is closed only if there is no other connection, because streams have
// their own bound and take several round trips.
//
// An origin is an IPv4 address, or the first 64 bits of an IPv6 address, which a network
// provider gives to one customer. That customer chooses the other 64 bits freely.
type pending struct {
	size int

	mu      sync.Mutex
	origins map[string]*origin // the origins in bySize
	// bySize[n] has the origins with n connections, in the order in which they reached n. bySize ends
	// with the last list that is not empty, so the search for an origin does not depend on their number.
	bySize  []*list.List // the values are *origin
	streams *list.List   // streams of gossip, the oldest first; the values are *pendingConn
	count   int          // connections in all
}

// origin contains the connections from an address or network, except streams of gossip.
type origin struct {
	name  string
	conns *list.List    // the oldest first; the values are *pendingConn
	at    *list.Element // the element of this origin in bySize
}

type pendingConn struct {
	conn   net.Conn
	origin *origin
	stream bool          // a stream of gossip, which is closed last
	at     *list.Element // the element in streams or origin.conns; nil after the connection was removed
}

// newPending returns a pending of the given size, or a smaller one if the process may have few
// file descriptors.
func newPending(size int, descriptors uint64) *pending {
	return &pending{
		size: int(min(uint64(size), max(1, descriptors/pendingPart))), origins: map[string]*origin{},
		bySize: []*list.List{list.New()}, streams: list.New(),
	}
}

// newPart returns a pending for some of the connections in l. The size is at most the given size and
// half of l, and at least 1.
func (l *pending) newPart(size int) *pending { return newPending(max(1, min(size, l.size/2)), 1<<20) }

// enter adds conn, and returns the connection that it removed to make room, or nil. The caller
// must close the removed connection.
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

// sort moves an origin to the list for its number of connections. The argument before is the number
// before the last change.
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

// removeFirst removes and returns the oldest connection of an origin with most connections, or the
// oldest stream of gossip if there are only streams. Without a connection, removeFirst returns nil.
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

// moveToStreams makes g a stream of gossip. The result is false if g has been removed.
func (l *pending) moveToStreams(g *pendingConn) bool {
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

// leave is called when the handshake or the stream is over. The result is false if g had been removed
// before.
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

// evict acquires the lock and calls removeFirst. The caller must close the removed connection.
func (l *pending) evict() *pendingConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.removeFirst()
}
