//go:build !unix

package ports

import "net"

// unread reports whether c has received data that this process has not read yet. Here the
// system does not provide this, so it reports false.
func unread(net.Conn) bool { return false }
