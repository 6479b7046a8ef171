package main

import (
	"context"
	"io"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/weir-go/weir/cluster"
	"github.com/weir-go/weir/internal/lab"
)

// link is the state of the connection between two gateways.
type link struct {
	Cut   bool
	Delay time.Duration // added to the latency of connections in each direction
}

// network is the network of the machine, except that messages between gateways can be cut
// or delayed. Both ends of a link must set it: each end applies it to the connections
// that it has dialled, and a cut also to the packets that it sends and receives. Messages to an
// address without a link do not change. While a link is cut, data on connections waits,
// as with TCP, which retransmits lost packets until an end gives up. Methods are safe for
// concurrent use.
type network struct {
	*net.Resolver
	ctx  context.Context // done when the network is closed
	end  context.CancelFunc
	wait sync.WaitGroup

	mu      sync.Mutex
	links   map[string]link // keyed by address
	changed chan struct{}   // closed when links change, and then replaced
}

var _ cluster.Network = (*network)(nil)

func newNetwork(links map[string]link) *network {
	n := &network{Resolver: net.DefaultResolver, links: links, changed: make(chan struct{})}
	n.ctx, n.end = context.WithCancel(context.Background())
	return n
}

func (n *network) set(links map[string]link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !maps.Equal(n.links, links) {
		close(n.changed)
		n.links, n.changed = links, make(chan struct{})
	}
}

// link returns the link to an address, and a channel that is closed when links change.
func (n *network) link(addr string) (l link, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[addr], n.changed
}

// pass waits until the link to an address is not cut.
func (n *network) pass(ctx context.Context, addr string) error {
	for {
		l, changed := n.link(addr)
		if !l.Cut {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Dial implements cluster.Network. Through a cut, Dial waits for the heal until ctx is done,
// like a connection whose first packets are lost.
func (n *network) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if err := n.pass(ctx, addr); err != nil {
		return nil, err
	}
	there, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	n.mu.Lock()
	_, known := n.links[addr]
	n.mu.Unlock()
	if err != nil || !known {
		return there, err
	}
	near, far := net.Pipe()
	n.wait.Go(func() { n.relay(addr, far, there) })
	return &relayed{near, there}, nil
}

// relayed is a connection whose bytes pass through a link.
type relayed struct {
	net.Conn
	there net.Conn
}

func (c *relayed) LocalAddr() net.Addr  { return c.there.LocalAddr() }
func (c *relayed) RemoteAddr() net.Addr { return c.there.RemoteAddr() }

// relay copies the data of each end of a connection to the other end. When an end or the
// network is closed, relay closes both ends.
func (n *network) relay(addr string, ends ...net.Conn) {
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	for i, from := range ends {
		context.AfterFunc(ctx, func() { from.Close() })
		parcels := make(chan parcel, underWay)
		all.Go(func() {
			defer close(parcels)
			n.post(ctx, addr, parcels, from)
		})
		all.Go(func() {
			defer cancel() // a connection needs both directions
			n.deliver(ctx, addr, ends[1-i], parcels)
		})
	}
}

// parcel is the data that one call of Read returned.
type parcel struct {
	due  time.Time // earliest time of its delivery
	what []byte
}

const (
	parcelBytes = 16 << 10
	// underWay is the maximum number of parcels of a connection that are under way;
	// above it, the sender waits.
	underWay = 256
)

// post reads the data that is sent on a connection until the connection is closed. Data
// that is sent first is due first, as in TCP.
func (n *network) post(ctx context.Context, addr string, parcels chan<- parcel, from io.Reader) {
	last := time.Time{}
	for {
		b := make([]byte, parcelBytes)
		read, err := from.Read(b)
		l, _ := n.link(addr)
		if due := time.Now().Add(l.Delay); due.After(last) {
			last = due
		}
		if read > 0 {
			select {
			case parcels <- parcel{last, b[:read:read]}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver writes each parcel when it is due and the link is not cut. deliver returns when
// there are no more parcels or a write fails.
func (n *network) deliver(ctx context.Context, addr string, to io.Writer, parcels <-chan parcel) {
	for next := range parcels {
		if !lab.Sleep(ctx, time.Until(next.due)) || n.pass(ctx, addr) != nil {
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
	return tcp, &packets{udp, n}, nil
}

// close ends every connection whose bytes pass through a link, and returns when all of these
// have ended.
func (n *network) close() {
	n.end()
	n.wait.Wait()
}

// packets is a net.PacketConn. It drops packets to and from an address if the link to the
// address is cut.
type packets struct {
	net.PacketConn
	network *network
}

func (c *packets) WriteTo(b []byte, to net.Addr) (int, error) {
	if l, _ := c.network.link(to.String()); l.Cut {
		return len(b), nil
	}
	return c.PacketConn.WriteTo(b, to)
}

func (c *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := c.PacketConn.ReadFrom(b)
		if err == nil {
			if l, _ := c.network.link(from.String()); l.Cut {
				continue
			}
		}
		return n, from, err
	}
}
