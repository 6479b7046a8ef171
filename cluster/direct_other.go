//go:build !linux

package cluster

import "net"

// newDirectConn returns c. Only Linux has a directConn.
func newDirectConn(c net.Conn) net.Conn { return c }
