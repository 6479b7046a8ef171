package lab

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// These ports are below the ephemeral ports of most systems: Linux begins at 32768, macOS
// and Windows at 49152, and user-space stacks at 16000. So no outgoing connection there has
// one of these ports, and no packet socket has one either. On FreeBSD, which begins at
// 10000, a socket may have one of them. Packet ports are not held.
const firstPort, lastPort = 10_000, 15_999

// FreeAddr calls HoldAddr, and releases the port when the test ends.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, release, err := HoldAddr()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addr
}

// HoldAddr returns an address of the loopback. On Linux it holds the TCP port until
// release is called. Connections to the address are refused. A server can listen there,
// for TCP and UDP, close, and listen again any number of times. The server must be a
// node, or another program that sets SO_REUSEADDR. While the port is held, no other call
// of HoldAddr returns it, in this process or another process. On other systems the port
// is not held.
//
// If only one node needs the address of another node, the test starts that node first, at
// port 0, and reads its address. HoldAddr is for nodes that need each other's addresses,
// for a node that comes back at its address, and for an address at which no process
// listens.
func HoldAddr() (addr string, release func(), err error) {
	for range 100 {
		port := firstPort + rand.N(lastPort-firstPort+1)
		release, err := holdPort(port)
		if err != nil {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if isFree(addr) {
			return addr, release, nil
		}
		release()
	}
	return "", nil, errors.New("lab: no port is free")
}

// isFree reports whether a node can listen at addr, although the port is held.
func isFree(addr string) bool {
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
