package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// checkAddress returns an error if addr is not a valid "host:port" to listen on or to
// dial. The host may be empty or a name. The port is a number from 0 to 65535.
func checkAddress(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not host:port: write it like 10.0.0.1:7946 or [::1]:7946", addr)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q has port %q: give a number from 0 to 65535", addr, port)
	}
	return nil
}

// isLoopback reports whether only this machine can reach a "host:port" to listen on. A
// name other than localhost is not looked up, because its addresses may change before the
// node listens. The advertised address has no influence: no other machine reaches a
// loopback address unless another process forwards to it.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
