//go:build unix

package main

import (
	"os"
	"slices"
	"strconv"
	"syscall"
)

// breakConnections ends all connections of this process, like a firewall that forgets them, and
// returns their number. It does not end a connection if its local port is in except.
func breakConnections(except ...int) (cut int, err error) {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if _, err := syscall.Getpeername(fd); err != nil {
			continue // no socket, or a socket without a connection
		}
		if near, err := syscall.Getsockname(fd); err != nil || slices.Contains(except, localPort(near)) {
			continue
		}
		if syscall.Shutdown(fd, syscall.SHUT_RDWR) == nil {
			cut++
		}
	}
	return cut, nil
}

func localPort(a syscall.Sockaddr) int {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return a.Port
	case *syscall.SockaddrInet6:
		return a.Port
	}
	return 0
}
