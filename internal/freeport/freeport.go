// Package freeport gives tests and the demo addresses that a node of theirs binds
// later, or again, and at which nobody listens until then.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports below those that a system gives out itself: Linux and the BSDs begin at
// 32768 and 49152, and user-space stacks at 16000. So no connection that somebody opens
// has one of them, nor has a socket for packets, which are not held.
const first, last = 10_000, 15_999

// Addr is Hold until the test ends.
func Addr(t T) string {
	t.Helper()
	addr, release, err := Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addr
}

// T is what Addr needs of a testing.TB.
type T interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// Hold returns an address of the loopback, and holds its TCP port until release is called.
// Connections to it are refused. A server can listen there, for TCP and UDP, close, and listen
// there again, as often as it likes: a node, or another program that sets SO_REUSEADDR. No
// other call of Hold returns the port meanwhile, in this process or another one.
//
// A test in which one node is told the address of another starts that one first, at port 0,
// and reads its address. Hold is for nodes that are told each other's, for one that comes back
// at its address, and for an address at which nobody listens.
func Hold() (addr string, release func(), err error) {
	for range 100 {
		port := first + rand.N(last-first+1)
		release, err := hold(port)
		if err != nil {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if free(addr) {
			return addr, release, nil
		}
		release()
	}
	return "", nil, errors.New("freeport: no port is free")
}

// free reports whether a node can listen at addr, although the port is held.
func free(addr string) bool {
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	return udp.Close() == nil
}
