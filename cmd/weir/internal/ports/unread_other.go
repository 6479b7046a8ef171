//go:build !unix

package ports

import "net"

// unread reports whether bytes have come on c that this process has not read yet, where the
// system tells.
func unread(net.Conn) bool { return false }
