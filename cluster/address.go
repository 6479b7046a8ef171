package cluster

import (
	"fmt"
	"net"
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
