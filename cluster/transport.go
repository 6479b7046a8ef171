package cluster

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// transport is memberlist's way to the network: UDP on our port, and TCP
// through the mux and under TLS. It implements memberlist.Transport.
type transport struct {
	network   Network
	tls       *tls.Config // nil: none
	mux       *mux
	udp       net.PacketConn
	advertise netip.AddrPort
	packets   chan *memberlist.Packet
	wg        sync.WaitGroup
}

func newTransport(n Network, c *tls.Config, m *mux, udp net.PacketConn, advertise netip.AddrPort) *transport {
	t := &transport{network: n, tls: c, mux: m, udp: udp, advertise: advertise, packets: make(chan *memberlist.Packet)}
	t.wg.Go(t.receive)
	return t
}

func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.advertise.Addr().AsSlice(), int(t.advertise.Port()), nil
}

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	if t.mux.ctx.Err() != nil {
		return time.Time{}, net.ErrClosed // without net.OpError, at which memberlist would try other ways
	}
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.udp.WriteTo(b, net.UDPAddrFromAddrPort(to))
	return time.Now(), err
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

func (t *transport) StreamCh() <-chan net.Conn { return t.mux.streams }

// DialTimeout opens a connection of gossip's to addr.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.mux.ctx, timeout)
	defer cancel()
	conn, err := openStream(ctx, t.network.Dial, t.tls, addr, firstByteGossip)
	if err != nil {
		return nil, err
	}
	if err := t.mux.member(conn); err != nil {
		sever(conn)
		return nil, err
	}
	s := t.mux.newStream(conn, false, new(atomic.Int64))
	s.closed = func() { t.mux.release(s) }
	if !t.mux.keep(s) {
		return nil, net.ErrClosed
	}
	deadline, _ := ctx.Deadline()
	_ = s.SetDeadline(deadline) // memberlist sets its own where it needs one
	return s, nil
}

// Shutdown closes the port and waits for what reads from it.
func (t *transport) Shutdown() error {
	err := t.mux.close()
	if closing := t.udp.Close(); err == nil {
		err = closing
	}
	t.wg.Wait()
	return err
}

// receive reads packets and hands on those that a member may have sent, within
// bounds; while memberlist is behind, they wait in the kernel and are dropped there.
func (t *transport) receive() {
	const pause = 10 * time.Millisecond
	buf := make([]byte, maxPacket+1)
	rates := newPacketRates()
	for {
		n, from, err := t.udp.ReadFrom(buf)
		if t.mux.ctx.Err() != nil {
			return
		}
		if err != nil {
			if !sleep(t.mux.ctx, pause) {
				return
			}
			continue
		}
		now := time.Now()
		if reason, err := t.judge(buf[:n], rates, now); err != nil {
			t.mux.gossiped.add(reason, from, err)
			continue
		}
		p := &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: from, Timestamp: now}
		select {
		case t.packets <- p:
		case <-t.mux.ctx.Done():
			return
		}
	}
}

// judge is why a packet is dropped, if it is.
func (t *transport) judge(b []byte, rates packetRates, now time.Time) (reason string, err error) {
	if len(b) > maxPacket {
		return reasonPacket, errLongPacket
	}
	l, err := t.mux.inspect.packet(b)
	if err != nil {
		return reasonPacket, err
	}
	if !rates.take(l, now) {
		return reasonFlood, errFlood
	}
	return "", nil
}
