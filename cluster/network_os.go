package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// systemNetwork is the network of the machine.
type systemNetwork struct{}

// udpBuffer is the size that memberlist requests too, so that bursts of gossip wait in the
// kernel and are not lost.
const udpBuffer = 2 << 20

// portTries bounds the search for a port that is free for both TCP and UDP.
const portTries = 20

func (systemNetwork) Listen(ctx context.Context, addr string) (net.Listener, net.PacketConn, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, nil, err
	}
	tries := 1
	if port == "0" {
		tries = portTries
	}
	for {
		tcp, udp, err := listenBoth(ctx, addr)
		if tries--; err == nil || tries == 0 || !errors.Is(err, syscall.EADDRINUSE) {
			return tcp, udp, err
		}
	}
}

func listenBoth(ctx context.Context, addr string) (net.Listener, net.PacketConn, error) {
	lc := net.ListenConfig{Control: resendSoon}
	lc.SetMultipathTCP(false) // sockets of Multipath TCP do not support the options of resendSoon
	tcp, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, explainTaken(addr, err)
	}
	// The host may be a name with several addresses, so UDP uses the address that TCP got.
	udp, err := new(net.ListenConfig).ListenPacket(ctx, "udp", tcp.Addr().String())
	if err != nil {
		return nil, nil, errors.Join(explainTaken(addr, err), tcp.Close())
	}
	if conn, ok := udp.(*net.UDPConn); ok {
		_ = conn.SetReadBuffer(udpBuffer) // the bound of the kernel may be lower
	}
	return directListener{tcp}, udp, nil
}

func explainTaken(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("the port of %s is taken: stop the process that has it, or choose another port (port 0 picks a free one): %w", addr, err)
	}
	return err
}

func (systemNetwork) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAlive: 15 * time.Second, Control: resendSoon}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return newDirectConn(conn), nil
}

func (systemNetwork) LookupHost(ctx context.Context, host string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, host)
}

// directListener accepts connections as newDirectConn returns them.
type directListener struct{ net.Listener }

// Accept implements net.Listener.
func (l directListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newDirectConn(conn), nil
}
