package testnode

import (
	"context"
	"net"

	"github.com/weir-go/weir/cluster"
)

// TappedNetwork is the network of a node. It calls Sent with all data that the node sends, before the
// data is sent. Sent must not keep or modify the data.
type TappedNetwork struct {
	cluster.Network
	Sent func(b []byte)
}

// Listen implements cluster.Network.
func (n TappedNetwork) Listen(ctx context.Context, addr string) (net.Listener, net.PacketConn, error) {
	l, p, err := n.Network.Listen(ctx, addr)
	return tappedListener{l, n.Sent}, tappedPackets{p, n.Sent}, err
}

// Dial implements cluster.Network.
func (n TappedNetwork) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := n.Network.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &tappedConn{conn, n.Sent}, nil
}

type tappedListener struct {
	net.Listener
	sent func(b []byte)
}

func (l tappedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tappedConn{conn, l.sent}, nil
}

type tappedConn struct {
	net.Conn
	sent func(b []byte)
}

func (c *tappedConn) Write(b []byte) (int, error) {
	c.sent(b)
	return c.Conn.Write(b)
}

type tappedPackets struct {
	net.PacketConn
	sent func(b []byte)
}

func (p tappedPackets) WriteTo(b []byte, to net.Addr) (int, error) {
	p.sent(b)
	return p.PacketConn.WriteTo(b, to)
}
