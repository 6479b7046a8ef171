package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/cluster"
)

// link is what is between a gateway and another.
type link struct {
	Cut    bool
	Delay  time.Duration // each way, what it takes longer
	Jitter time.Duration // and so much more or less, at most Delay
}

// network is the machine's own, but that what a gateway and another say to each other can
// be cut or slowed. Both ends of a link are told of it: each sees to the connections
// that it has made, and to the packets that it sends and takes. To addresses of which it was
// never told it adds nothing. Its methods are safe for concurrent use.
type network struct {
	ctx  context.Context // done when it is closed
	end  context.CancelFunc
	wait sync.WaitGroup

	mu    sync.Mutex
	paths map[string]*path // by address
}

var _ cluster.Network = (*network)(nil)

// path is one link. While it is cut, what is under way on connections waits, as with TCP,
// whose packets are lost and sent anew until somebody gives up.
type path struct {
	mu   sync.Mutex
	link link
	open chan struct{} // closed while it is not cut
}

func newNetwork(links map[string]link) *network {
	n := &network{paths: make(map[string]*path)}
	n.ctx, n.end = context.WithCancel(context.Background())
	n.set(links)
	return n
}

// set changes the links to these addresses.
func (n *network) set(links map[string]link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for addr, l := range links {
		p := n.paths[addr]
		if p == nil {
			p = &path{open: make(chan struct{}), link: link{Cut: true}}
			n.paths[addr] = p
		}
		p.mu.Lock()
		if p.link.Cut && !l.Cut {
			close(p.open)
		} else if !p.link.Cut && l.Cut {
			p.open = make(chan struct{})
		}
		p.link = l
		p.mu.Unlock()
	}
}

// path is the one to an address, nil if nothing was ever said of it.
func (n *network) path(addr string) *path {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.paths[addr]
}

// now is the link as it is, and how long the next that is sent takes.
func (p *path) now() (l link, takes time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	takes = p.link.Delay
	if p.link.Jitter > 0 {
		takes += rand.N(2*p.link.Jitter) - p.link.Jitter
	}
	return p.link, takes
}

// pass waits until the path is not cut.
func (p *path) pass(ctx context.Context) error {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Dial implements cluster.Network. Through a cut it waits for the heal, as long as ctx
// has time, as a connection does whose first packets are lost.
func (n *network) Dial(ctx context.Context, addr string) (net.Conn, error) {
	p := n.path(addr)
	if p != nil {
		if err := p.pass(ctx); err != nil {
			return nil, err
		}
	}
	there, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil || p == nil {
		return there, err
	}
	near, far := net.Pipe()
	n.wait.Go(func() { p.relay(n.ctx, far, there) })
	return &relayed{near, there}, nil
}

// relayed is a connection whose bytes go through a path.
type relayed struct {
	net.Conn
	there net.Conn
}

func (c *relayed) LocalAddr() net.Addr  { return c.there.LocalAddr() }
func (c *relayed) RemoteAddr() net.Addr { return c.there.RemoteAddr() }

// relay takes what is said at each end to the other, until one of them is closed or ctx is
// done, and then closes both.
func (p *path) relay(ctx context.Context, ends ...net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	for i, from := range ends {
		context.AfterFunc(ctx, func() { from.Close() })
		parcels := make(chan parcel, underWay)
		all.Go(func() {
			defer close(parcels)
			p.post(ctx, parcels, from)
		})
		all.Go(func() {
			defer cancel() // without one way there is no connection
			p.deliver(ctx, ends[1-i], parcels)
		})
	}
}

// parcel is what was sent at once.
type parcel struct {
	due  time.Time
	what []byte
}

const (
	parcelBytes = 16 << 10
	// underWay is how many parcels one connection has on its way at most; then its
	// sender has to wait.
	underWay = 256
)

// post reads what is sent, until its connection is closed. What is sent first is due first,
// as TCP has it.
func (p *path) post(ctx context.Context, parcels chan<- parcel, from io.Reader) {
	last := time.Time{}
	for {
		b := make([]byte, parcelBytes)
		n, err := from.Read(b)
		_, takes := p.now()
		if due := time.Now().Add(takes); due.After(last) {
			last = due
		}
		if n > 0 {
			select {
			case parcels <- parcel{last, b[:n:n]}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver writes each parcel when it is due and the path is not cut, until there
// are no more or nobody takes them.
func (p *path) deliver(ctx context.Context, to io.Writer, parcels <-chan parcel) {
	for next := range parcels {
		if !sleep(ctx, time.Until(next.due)) || p.pass(ctx) != nil {
			return
		}
		if _, err := to.Write(next.what); err != nil {
			return
		}
	}
}

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
	return tcp, &packets{udp, n, make(chan struct{}, underWay)}, nil
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
	late    chan struct{} // has one for each packet under way; what comes when it is full is lost
}

func (c *packets) WriteTo(b []byte, to net.Addr) (int, error) {
	p := c.network.path(to.String())
	if p == nil {
		return c.PacketConn.WriteTo(b, to)
	}
	l, takes := p.now()
	switch {
	case l.Cut:
	case takes <= 0:
		return c.PacketConn.WriteTo(b, to)
	default:
		select {
		case c.late <- struct{}{}:
			late := slices.Clone(b)
			c.network.wait.Go(func() {
				if sleep(c.network.ctx, takes) {
					c.PacketConn.WriteTo(late, to)
				}
				<-c.late
			})
		default:
		}
	}
	return len(b), nil
}

func (c *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := c.PacketConn.ReadFrom(b)
		if err == nil {
			if p := c.network.path(from.String()); p != nil {
				if l, _ := p.now(); l.Cut {
					continue
				}
			}
		}
		return n, from, err
	}
}
