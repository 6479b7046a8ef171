package cluster

import (
	"container/list"
	"net"
	"sync"

	"github.com/weir-go/weir/internal/conns"
)

// Bounds on connections that have not identified themselves yet.
const (
	pendingSize    = 1024
	pendingPerHost = 128 // several members may share a host
	pendingPart    = 8   // each pending set has this part of the file descriptors at most
)

// pending holds the connections that have not proved yet what they are, from when they
// are accepted, and the streams that gossip has been handed. It is bounded, in all and for
// each group of addresses. When it is full the oldest is closed, so that idle connections
// cannot keep members from coming in: a member leaves pending after a round trip, and with
// gossip when rosters have been exchanged. To refuse the newest instead would let idle
// connections lock members out.
//
// A stream of gossip is closed only where no other connection can be: it is bounded
// apart, and takes several round trips. groups has the number of connections in conns for
// each group, and no group without any, so that it is bounded too.
//
// A group is an IPv4 address, or the 64 bits of an IPv6 address that a network
// provider gives to one customer. That customer chooses the others freely.
type pending struct {
	size, perGroup int

	mu     sync.Mutex
	conns  *list.List // of *pendingConn, the oldest first
	groups map[string]int
}

type pendingConn struct {
	conn  net.Conn
	group string
	vouch bool          // it is bounded apart: others go first
	at    *list.Element // nil once it has left
}

// newPending is one of that size, or smaller where the process may have few file
// descriptors.
func newPending(size, perGroup int, descriptors uint64) *pending {
	most := int(min(uint64(size), max(1, descriptors/pendingPart)))
	return &pending{size: most, perGroup: max(1, perGroup*most/size), conns: list.New(), groups: map[string]int{}}
}

// part is a pending for some of those that are in l, of that size at most and no more than
// half of l.
func (l *pending) part(size, perGroup int) *pending {
	return &pending{size: max(1, min(size, l.size/2)), perGroup: min(perGroup, l.perGroup), conns: list.New(), groups: map[string]int{}}
}

// enter lets conn in and returns the one that had to go for it, nil if none had. The
// caller closes that one's connection.
func (l *pending) enter(conn net.Conn) (in, out *pendingConn) {
	in = &pendingConn{conn: conn, group: conns.Origin(conn.RemoteAddr())}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.groups[in.group] >= l.perGroup {
		out = l.oldest(func(g *pendingConn) bool { return g.group == in.group })
	} else if l.conns.Len() >= l.size {
		out = l.oldest(func(*pendingConn) bool { return true })
	}
	if out != nil {
		l.remove(out)
	}
	in.at = l.conns.PushBack(in)
	l.groups[in.group]++
	return in, out
}

// oldest returns the one of those that may go which came first, and is bounded here alone
// if there is such a one.
func (l *pending) oldest(may func(*pendingConn) bool) (first *pendingConn) {
	for e := l.conns.Front(); e != nil; e = e.Next() {
		g := e.Value.(*pendingConn)
		switch {
		case !may(g):
		case !g.vouch:
			return g
		case first == nil:
			first = g
		}
	}
	return first
}

// vouch notes that g is bounded apart from now on. It reports false if g was closed.
func (l *pending) vouch(g *pendingConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.vouch = true
	return g.at != nil
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
	l.conns.Remove(g.at)
	g.at = nil
	if l.groups[g.group]--; l.groups[g.group] == 0 {
		delete(l.groups, g.group)
	}
}

// shed removes the oldest, streams of gossip last; nil if nobody is in. The caller closes its connection.
func (l *pending) shed() (out *pendingConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if out = l.oldest(func(*pendingConn) bool { return true }); out != nil {
		l.remove(out)
	}
	return out
}
