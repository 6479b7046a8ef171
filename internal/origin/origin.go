// Package origin groups connections by where they come from, and tells which come from this
// machine alone.
package origin

import (
	"net"
	"net/netip"
	"strings"
)

// Of returns what connections of one origin have in common: the IPv4 address, or the 64
// bits of an IPv6 address that a network provider gives to one customer. That customer
// chooses the others freely. Addresses without a host, as those of Unix sockets, are their own text.
func Of(addr net.Addr) string {
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

// OnThisMachine reports whether nobody else reaches an address: there is none, or it is
// a loopback's.
func OnThisMachine(addr string) bool {
	if addr == "" || strings.HasPrefix(addr, "localhost:") {
		return true
	}
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}
