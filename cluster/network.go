package cluster

import (
	"context"
	"net"
)

// Network opens ports and connections, and looks up names. With an in-memory Network, whole clusters can
// run in virtual time.
type Network interface {
	// Listen opens TCP and UDP on one port. Port 0 picks a port that is free for both.
	Listen(ctx context.Context, addr string) (net.Listener, net.PacketConn, error)
	Dial(ctx context.Context, addr string) (net.Conn, error)
	LookupHost(ctx context.Context, host string) ([]string, error)
}
