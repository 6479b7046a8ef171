package main

import (
	"net/netip"
	"sync"
)

// doors bounds how many connections an address has open at once on this replica. A rule
// with an in_flight limit for GET /chat bounds them over all replicas: the middleware holds
// a unit until the hijacked connection is closed. doors is an example of a limit in one process.
type doors struct {
	most int
	mu   sync.Mutex
	open map[netip.Prefix]int
}

func newDoors(most int) *doors { return &doors{most: most, open: make(map[netip.Prefix]int)} }

// enter takes one of the connections that an address may have, until leave.
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

// networkOf is what counts of an address: of an IPv6 one the network, as its users
// pick the rest. Rules count so, too.
func networkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return netip.PrefixFrom(a, 32)
	}
	n, _ := a.Prefix(64) // the zero one, of an address that is not known
	return n
}
