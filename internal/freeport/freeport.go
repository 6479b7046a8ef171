// Package freeport finds tests ports that they bind later, or again.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// The ports below those that a system gives out itself: Linux and the BSDs begin at
// 32768 and 49152, and user-space stacks at 16000.
const first, last = 10_000, 15_999

// Addr is a port of the loopback at which nobody listens just now. A port that the system
// gave out would not stay free: it gives it to the next connection that somebody opens.
func Addr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.N(last-first+1)))
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		udp, taken := net.ListenPacket("udp", addr)
		if taken == nil {
			udp.Close()
		}
		if tcp.Close(); taken == nil {
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}
