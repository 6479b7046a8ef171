package main

import (
	"net/netip"
	"sync"
)

// doors bounds how many connections an address has open at once on this replica. It is an
// example of a limit in one process. To bound the connections over all replicas, use a rule
// with an in_flight limit for GET /chat: the middleware holds a unit until the hijacked
// connection is closed.
type doors struct {
	most int
	mu   sync.Mutex
	open map[netip.Prefix]int
}

func newDoors(most int) *doors { return &doors{most: most, open: make(map[netip.Prefix]int)} }

// enter counts a connection of an address until leave is called. It returns false, and
// counts nothing, if the address has too many connections.
func (d *doors) enter(from netip.Addr) bool {
	n := networkOf(from)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[n] >= d.most {
		return false
	}
	d.open[n]++
	return true
}

func (d *doors) leave(from netip.Addr) {
	n := networkOf(from)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[n]--; d.open[n] == 0 {
		delete(d.open, n)
	}
}

// networkOf returns the network under which an address is counted: an IPv4 address itself,
// and the /64 of an IPv6 address, whose users choose the other bits. Rules count addresses
// in the same way.
func networkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return netip.PrefixFrom(a, 32)
	}
	n, _ := a.Prefix(64) // the zero Prefix if the address is not known
	return n
}
