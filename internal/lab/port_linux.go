package lab

import (
	"fmt"
	"syscall"
)

// holdPort binds a port of the loopback and does not listen there. A second hold of the port fails,
// because neither socket may share the port when bound. Afterwards a listener of Go may share the
// port: it has SO_REUSEADDR, and so has the holding socket by then. On Linux, such sockets can
// share a port if none of them is a listener.
func holdPort(port int) (release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("lab: %w", err)
	}
	return func() { syscall.Close(fd) }, nil
}
