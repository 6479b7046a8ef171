// Package freeport gives tests addresses that a node of theirs binds later, or again, and at
// which nobody listens until then.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// The ports below those that a system gives out itself: Linux and the BSDs begin at
// 32768 and 49152, and user-space stacks at 16000. So no connection that somebody opens
// has one of them, nor has a socket for packets, which are not held.
const first, last = 10_000, 15_999

// Addr returns an address of the loopback, and holds its TCP port for the test until the
// test ends. Connections to it are refused. A node of the test can listen there, for TCP and
// UDP, close, and listen there again: every time before the test ends. No other call of Addr
// returns the port meanwhile, in this process or another one.
//
// A test in which one node is told the address of another starts that one first, at port 0,
// and reads its address. Addr is for nodes that are told each other's, for one that comes back
// at its address, and for an address at which nobody listens.
func Addr(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := first + rand.N(last-first+1)
		release, err := hold(port)
		if err != nil {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if !free(addr) {
			release()
			continue
		}
		t.Cleanup(release)
		return addr
	}
	t.Fatal("no port is free")
	return ""
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
