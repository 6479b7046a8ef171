package cluster

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// Bounds on connections that have not said yet who they are.
const (
	lobbySize    = 1024
	lobbyPerHost = 128 // several members may share a host
	lobbyPart    = 8   // each lobby has this part of the file descriptors at most
)

// lobby holds connections that nobody vouches for: those that have not said yet
// who they are, and the streams that gossip has been handed. It is bounded, in
// all and per group of addresses; when it is full the oldest is shown out, so that
// idle strangers cannot keep members from coming in: a member leaves after a round
// trip, and with gossip when rosters have been exchanged.
//
// A group is an IPv4 address, or the 64 bits of an IPv6 address that a network
// provider gives to one customer, who chooses the others freely.
type lobby struct {
	size, perGroup int

	mu     sync.Mutex
	guests *list.List // of *guest, the oldest first
	groups map[string]int
}

type guest struct {
	conn  net.Conn
	group string
	at    *list.Element // nil once it has left
}

// newLobby is one of that size, or smaller where the process may have few file
// descriptors.
func newLobby(size, perGroup int, descriptors uint64) *lobby {
	most := int(min(uint64(size), max(1, descriptors/lobbyPart)))
	return &lobby{size: most, perGroup: max(1, perGroup*most/size), guests: list.New(), groups: map[string]int{}}
}

// enter lets conn in and returns who had to go for it, if anyone did. The
// caller closes that one's connection.
func (l *lobby) enter(conn net.Conn) (in, out *guest) {
	in = &guest{conn: conn, group: group(conn.RemoteAddr())}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.groups[in.group] >= l.perGroup {
		for e := l.guests.Front(); e != nil; e = e.Next() {
			if out = e.Value.(*guest); out.group == in.group {
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
	l.groups[in.group]++
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
	if l.groups[g.group]--; l.groups[g.group] == 0 {
		delete(l.groups, g.group)
	}
}

// shed shows the oldest out; nil if nobody is in. The caller closes its connection.
func (l *lobby) shed() (out *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.guests.Front(); e != nil {
		out = e.Value.(*guest)
		l.remove(out)
	}
	return out
}

// group is what connections of one origin have in common.
func group(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip, err := netip.ParseAddr(host)
	if ip = ip.Unmap(); err != nil || ip.Is4() {
		if err == nil {
			host = ip.String() // ::ffff:192.0.2.1 is 192.0.2.1
		}
		return host
	}
	network, _ := ip.Prefix(64) // without its zone
	return network.String()
}
