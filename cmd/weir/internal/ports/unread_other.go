//go:build !unix

package ports

import "net"

// unread reports false, because this system does not show whether a connection has received data
// that this process has not read yet.
func unread(net.Conn) bool { return false }
