//go:build unix

package ports

import (
	"net"
	"syscall"
)

// unread reports whether c has received data that this process has not read yet.
func unread(c net.Conn) (hasData bool) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // fails on a closed connection
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		hasData = err == nil && n > 0
	})
	return hasData
}
