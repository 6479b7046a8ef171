// Package conns helps a server to bound its connections: by the number of files that this process
// may open, and by origin.
package conns

import (
	"net"
	"net/netip"
	"strings"
)

// Origin returns the text that connections of an origin have in common: the IPv4 address, or the
// first 64 bits of the IPv6 address. A network provider assigns these 64 bits to a single
// customer, who can choose the other bits freely. The origin of an address without a host, such as
// that of a Unix socket, is its own text.
func Origin(addr net.Addr) string {
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

// OnThisMachine reports whether only this machine reaches a "host:port": the text is empty, or its
// host is localhost or a loopback address.
func OnThisMachine(addr string) bool {
	if addr == "" || strings.HasPrefix(addr, "localhost:") {
		return true
	}
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap().IsLoopback()
}
