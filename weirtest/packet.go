package weirtest

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
)

const (
	maxPacket  = 65507 // maximum of UDP over IPv4
	maxPackets = 1024  // maximum number of unread packets; further packets are lost
)

type packet struct {
	from net.Addr
	body []byte
}

// packetConn sends datagrams, which links may lose, and which may overtake each other.
type packetConn struct {
	socket
	queue []packet
}

func (c *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n := c.process.host.net
	fail := func(err error) (int, net.Addr, error) {
		n.mu.Unlock()
		return 0, nil, &net.OpError{Op: "read", Net: "udp", Source: c.local, Err: err}
	}
	for {
		n.mu.Lock()
		switch {
		case c.closed || c.process.dead:
			return fail(net.ErrClosed)
		case hasPassed(c.readDeadline):
			return fail(os.ErrDeadlineExceeded)
		case len(c.queue) > 0:
			p := c.queue[0]
			c.queue = c.queue[1:]
			n.mu.Unlock()
			return copy(b, p.body), p.from, nil
		}
		changed, deadline := c.changed.wait(), c.readDeadline
		n.mu.Unlock()
		await(changed, deadline)
	}
}

// WriteTo does not block. As with UDP, it returns no error if no process listens at addr.
func (c *packetConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	n := c.process.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	fail := func(err error) (int, error) {
		return 0, &net.OpError{Op: "write", Net: "udp", Source: c.local, Addr: addr, Err: err}
	}
	to, err := netip.ParseAddrPort(addr.String())
	switch {
	case c.closed || c.process.dead:
		return fail(net.ErrClosed)
	case hasPassed(c.writeDeadline):
		return fail(os.ErrDeadlineExceeded)
	case len(b) > maxPacket:
		return fail(syscall.EMSGSIZE)
	case err != nil:
		return fail(err)
	}
	hosts := n.lookUp(to.Addr().Unmap().String())
	if len(hosts) == 0 {
		return fail(syscall.EHOSTUNREACH)
	}
	n.count(len(b))
	p := packet{c.local, slices.Clone(b)}
	n.sendDatagram(&datagram{from: c.process.host, to: hosts[0], deliver: func() {
		if there := hosts[0].process.packets[int(to.Port())]; there != nil && len(there.queue) < maxPackets {
			there.queue = append(there.queue, p)
			there.changed.wake()
		}
	}})
	return len(b), nil
}

func (c *packetConn) Close() error {
	n := c.process.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	delete(c.process.packets, c.local.(*net.UDPAddr).Port)
	c.changed.wake()
	return nil
}
