package gossip

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// The reasons that are passed to Config.Refused.
const (
	ReasonPacket  = "packet"  // the packet is not of this cluster, or no member sends such a packet
	ReasonFlood   = "flood"   // too many packets have arrived
	ReasonMembers = "members" // the roster is full, or new members arrive too fast
)

// transport is the access of memberlist to the network. It implements memberlist.Transport.
type transport struct {
	port      Port
	advertise netip.AddrPort
	inspector *inspector
	refused   func(reason string, from net.Addr, err error)
	packets   chan *memberlist.Packet
	wg        sync.WaitGroup
}

func newTransport(p Port, advertise netip.AddrPort, i *inspector, refused func(reason string, from net.Addr, err error)) *transport {
	t := &transport{port: p, advertise: advertise, inspector: i, refused: refused, packets: make(chan *memberlist.Packet)}
	t.wg.Go(t.receive)
	return t
}

func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.advertise.Addr().AsSlice(), int(t.advertise.Port()), nil
}

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	if t.port.Context.Err() != nil {
		return time.Time{}, net.ErrClosed // without net.OpError, at which memberlist would try other ways
	}
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.port.UDP.WriteTo(b, net.UDPAddrFromAddrPort(to))
	return time.Now(), err
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

func (t *transport) StreamCh() <-chan net.Conn { return t.port.Streams }

// DialTimeout opens a stream to addr.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.port.Context, timeout)
	defer cancel()
	conn, err := t.port.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline) // memberlist sets its own deadline if necessary
	return conn, nil
}

// Shutdown closes the port and waits for the goroutine that reads from it.
func (t *transport) Shutdown() error {
	err := errors.Join(t.port.Close(), t.port.UDP.Close())
	t.wg.Wait()
	return err
}

// receive reads packets, and passes to memberlist the packets that a member may have sent, within
// bounds. While memberlist is behind, packets wait in the kernel and are dropped there.
func (t *transport) receive() {
	const pause = 10 * time.Millisecond
	buf := make([]byte, maxPacket+1)
	rates := newPacketRates()
	for {
		n, from, err := t.port.UDP.ReadFrom(buf)
		if t.port.Context.Err() != nil {
			return
		}
		if err != nil {
			time.Sleep(pause)
			continue
		}
		now := time.Now()
		if reason, err := t.check(buf[:n], rates, now); err != nil {
			t.refused(reason, from, err)
			continue
		}
		p := &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: from, Timestamp: now}
		select {
		case t.packets <- p:
		case <-t.port.Context.Done():
			return
		}
	}
}

// check returns an error if a packet must be dropped, and the reason for Config.Refused.
func (t *transport) check(b []byte, rates packetRates, now time.Time) (reason string, err error) {
	if len(b) > maxPacket {
		return ReasonPacket, errLongPacket
	}
	l, err := t.inspector.packet(b)
	if err == nil && !rates.takeLoad(l, now) {
		return ReasonFlood, errFlood
	}
	return ReasonPacket, err
}
