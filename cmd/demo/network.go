package main

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/weir-go/weir/cluster"
)

// link is what is between a gateway and another.
type link struct {
	Cut   bool
	Delay time.Duration // each way, what it takes longer
}

// network is the machine's own, but that what a gateway and another say to each other can
// be cut or slowed. Both ends of a link are told of it: each sees to the connections
// that it has made, and to the packets that it sends and takes. Its methods are safe for
// concurrent use.
type network struct {
	ctx  context.Context // done when it is closed
	end  context.CancelFunc
	wait sync.WaitGroup

	mu    sync.Mutex
	paths map[string]*path // by address
}

var _ cluster.Network = (*network)(nil)

func newNetwork(links map[string]link) *network {
	n := &network{paths: make(map[string]*path)}
	n.ctx, n.end = context.WithCancel(context.Background())
	n.set(links)
	return n
}

// set changes the links to these addresses.
func (n *network) set(links map[string]link) {
	for addr, l := range links {
		p := n.path(addr)
		p.cut(l.Cut)
		p.mu.Lock()
		p.takes = l.Delay
		p.mu.Unlock()
	}
}

func (n *network) path(addr string) *path {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.paths[addr] == nil {
		n.paths[addr] = &path{open: closed()}
	}
	return n.paths[addr]
}

// known is the path to an address, nil if nothing was ever said of it.
func (n *network) known(addr net.Addr) *path {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.paths[addr.String()]
}

// isCut reports whether what comes now is lost.
func (p *path) isCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		return false
	default:
		return true
	}
}

// Dial implements cluster.Network. Through a cut it waits for the heal, as long as ctx
// has time, as a connection does whose first packets are lost.
func (n *network) Dial(ctx context.Context, addr string) (net.Conn, error) {
	p := n.path(addr)
	if err := p.pass(ctx); err != nil {
		return nil, err
	}
	there, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	relay, cancel := context.WithCancel(n.ctx)
	n.wait.Go(func() {
		defer cancel()
		p.join(relay, cancel, far, there)
	})
	return &relayed{near, there}, nil
}

// relayed is a connection whose bytes go through a path.
type relayed struct {
	net.Conn
	there net.Conn
}

func (c *relayed) LocalAddr() net.Addr  { return c.there.LocalAddr() }
func (c *relayed) RemoteAddr() net.Addr { return c.there.RemoteAddr() }

// Listen implements cluster.Network.
func (n *network) Listen(ctx context.Context, addr string) (net.Listener, net.PacketConn, error) {
	tcp, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	udp, err := new(net.ListenConfig).ListenPacket(ctx, "udp", tcp.Addr().String())
	if err != nil {
		tcp.Close()
		return nil, nil, err
	}
	all := &packets{PacketConn: udp, network: n, late: make(chan packet, underWay)}
	n.wait.Go(all.deliver)
	return tcp, all, nil
}

// LookupHost implements cluster.Network.
func (n *network) LookupHost(ctx context.Context, host string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, host)
}

// close ends every connection, and returns when all have ended.
func (n *network) close() {
	n.end()
	n.wait.Wait()
}

// packets is a UDP socket whose packets take their time, or are lost.
type packets struct {
	net.PacketConn
	network *network
	late    chan packet // underWay at most; what comes then is lost
}

type packet struct {
	due  time.Time
	to   net.Addr
	what []byte
}

func (c *packets) WriteTo(b []byte, to net.Addr) (int, error) {
	p := c.network.known(to)
	if p == nil {
		return c.PacketConn.WriteTo(b, to)
	}
	if p.isCut() {
		return len(b), nil
	}
	d := p.delay()
	if d <= 0 {
		return c.PacketConn.WriteTo(b, to)
	}
	select {
	case c.late <- packet{time.Now().Add(d), to, append([]byte(nil), b...)}:
	default:
	}
	return len(b), nil
}

func (c *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := c.PacketConn.ReadFrom(b)
		if err == nil {
			if p := c.network.known(from); p != nil && p.isCut() {
				continue
			}
		}
		return n, from, err
	}
}

// deliver sends each late packet when it is due, until the network is closed.
func (c *packets) deliver() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case next := <-c.late:
			timer.Reset(time.Until(next.due))
			select {
			case <-timer.C:
				c.PacketConn.WriteTo(next.what, next.to)
			case <-c.network.ctx.Done():
				return
			}
		case <-c.network.ctx.Done():
			return
		}
	}
}
