package cluster

import (
	"container/list"
	"net"
	"sync"
)

// Bounds on connections that have not said yet who they are.
const (
	lobbySize    = 1024
	lobbyPerHost = 128 // several members may share a host
)

// lobby holds connections that nobody vouches for: those that have not said yet
// who they are, and the streams that gossip has been handed. It is bounded, in
// all and per host; when it is full the oldest is shown out, so that idle
// strangers cannot keep members from coming in: a member leaves after a round
// trip, and with gossip when rosters have been exchanged.
type lobby struct {
	size, perHost int

	mu     sync.Mutex
	guests *list.List // of *guest, the oldest first
	hosts  map[string]int
}

type guest struct {
	conn net.Conn
	host string
	at   *list.Element // nil once it has left
}

func newLobby(size, perHost int) *lobby {
	return &lobby{size: size, perHost: perHost, guests: list.New(), hosts: map[string]int{}}
}

// enter lets conn in and returns who had to go for it, if anyone did. The
// caller closes that one's connection.
func (l *lobby) enter(conn net.Conn) (in, out *guest) {
	in = &guest{conn: conn, host: host(conn.RemoteAddr())}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hosts[in.host] >= l.perHost {
		for e := l.guests.Front(); e != nil; e = e.Next() {
			if out = e.Value.(*guest); out.host == in.host {
				break
			}
		}
	} else if l.guests.Len() >= l.size {
		out = l.guests.Front().Value.(*guest)
	}
	if out != nil {
		l.remove(out)
	}
	in.at = l.guests.PushBack(in)
	l.hosts[in.host]++
	return in, out
}

// leave is called when the handshake or the stream is over. It says whether g
// was still in: false if it had been shown out.
func (l *lobby) leave(g *guest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.at == nil {
		return false
	}
	l.remove(g)
	return true
}

func (l *lobby) remove(g *guest) {
	l.guests.Remove(g.at)
	g.at = nil
	if l.hosts[g.host]--; l.hosts[g.host] == 0 {
		delete(l.hosts, g.host)
	}
}

func host(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	h, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return h
}
