package cluster

import (
	"context"
	"net"
)

// Network is where ports are opened and names are looked up. Nil stands for
// the machine's own; an in-memory one lets whole clusters run in virtual time.
type Network interface {
	// Listen opens TCP and UDP on one port. Port 0 picks one that is free for both.
	Listen(ctx context.Context, addr string) (net.Listener, net.PacketConn, error)
	Dial(ctx context.Context, addr string) (net.Conn, error)
	LookupHost(ctx context.Context, host string) ([]string, error)
}
