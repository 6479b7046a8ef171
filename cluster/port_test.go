package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
	"github.com/weir-go/weir/cluster/gossip"
	"github.com/weir-go/weir/cluster/gossip/gossiptest"
)

// startLive starts a member with a port on the loopback.
func startLive(t testing.TB, secrets [][]byte, c *tls.Config) *gossipCluster {
	t.Helper()
	g := NewGossip(Config{Name: "live-1", Bind: "127.0.0.1:0", Secrets: secrets, TLS: c, Logger: slog.New(slog.DiscardHandler)}).(*gossipCluster)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	require.NoError(t, g.Start(ctx, &testHandler{}))
	return g
}

// senderOf returns a sender of gossip of the cluster that c configures.
func senderOf(c Config) gossiptest.Sender {
	s := gossiptest.Sender{Label: gossiptest.LabelOf(c.Seed, c.Region)}
	if len(c.Secrets) > 0 {
		s.Key = gossipKeys(c.Secrets)[0]
	}
	return s
}

// packet returns a message as a packet of the cluster of g. onStream returns the message as the bytes of a
// connection.
func (g *gossipCluster) packet(message []byte) []byte { return senderOf(g.cfg).Packet(message) }

func (g *gossipCluster) onStream(message []byte) []byte {
	return append([]byte{firstByteGossip}, senderOf(g.cfg).Stream(message)...)
}

func (g *gossipCluster) addr() string { return net.JoinHostPort("127.0.0.1", g.port) }

func TestPhantomMembersAreBounded(t *testing.T) {
	g := startLive(t, nil, nil)
	conn, err := net.Dial("udp", g.addr())
	require.NoError(t, err)
	defer conn.Close()
	begin := time.Now()
	for i := 0; i < 2000 || g.Stats().Refused[gossip.ReasonMembers] == 0; i++ { // most packets are lost on a busy machine
		conn.Write(g.packet(gossiptest.Alive(fmt.Sprint("phantom-", i), g.cfg.Seed)))
		if i%100 == 0 {
			time.Sleep(time.Millisecond)
			require.Less(t, time.Since(begin), time.Minute)
		}
	}
	members := len(g.members())
	require.LessOrEqual(t, members, 1+detect.NewMembers+detect.NewMembersEach*int(1+time.Since(begin).Seconds()))
	require.LessOrEqual(t, len(g.peers.unmet), maxUnmetDials)
}

// sendFenced sends packets to g, one after another, and waits until g has read them.
func sendFenced(t testing.TB, g *gossipCluster, conn net.Conn, sent ...[]byte) {
	const fences = 2 // the packets may also be refused
	dropped := func() uint64 { return g.mux.gossiped.snapshot()[gossip.ReasonPacket] }
	before := dropped()
	for _, b := range sent {
		conn.Write(b)
	}
	for range len(sent) + fences {
		conn.Write([]byte{0})
	}
	for deadline := time.Now().Add(5 * time.Second); dropped() < before+uint64(len(sent)+fences); {
		require.False(t, time.Now().After(deadline), "the port reads no packets any more")
		time.Sleep(20 * time.Microsecond)
	}
}

// A packet may contain any bytes, also if a holder of the secret has encrypted it.
func FuzzPacketsToALivePort(f *testing.F) {
	for _, message := range [][]byte{
		nil, {0}, gossiptest.Bomb(), gossiptest.PushPull(1, 0),
		gossiptest.Ping("live-1"),
		gossiptest.Message(gossiptest.TypeIndirectPing, gossiptest.Fields{"SeqNo": 7, "Target": []byte{127, 0, 0, 1}, "Port": 9, "Nack": true}),
		gossiptest.Message(gossiptest.TypeSuspect, gossiptest.Fields{"Incarnation": 7, "Node": "live-1", "From": "x"}),
		gossiptest.Message(gossiptest.TypeDead, gossiptest.Fields{"Incarnation": 7, "Node": "live-1", "From": "x"}),
		append([]byte{gossiptest.TypeUser}, gossip.EncodeRecords([]detect.Record{{Name: "x", Addr: "x:1", Gone: time.Now()}}, time.Now())...),
		{gossiptest.TypeCompound, 2, 0, 1, 0, 1, 0, 0},
		{gossiptest.TypeChecksum, 0, 0, 0, 0, 0},
	} {
		f.Add(message)
	}
	open, sealed := startLive(f, nil, nil), startLive(f, secrets("0123456789abcdef"), nil)
	f.Add(gossiptest.Alive("x", open.cfg.Seed))
	conns := map[*gossipCluster]net.Conn{}
	for _, g := range []*gossipCluster{open, sealed} {
		conn, err := net.Dial("udp", g.addr())
		require.NoError(f, err)
		defer conn.Close()
		conns[g] = conn
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) > 2<<10 {
			return
		}
		for g, conn := range conns {
			memory := gossiptest.AllocatedBytes(func() { sendFenced(t, g, conn, message, g.packet(message)) })
			require.True(t, memory <= 8<<20, "%d bytes allocated for %d that came", memory, len(message))
		}
	})
}

// A connection with any bytes ends when its other side has sent all of them, and the memory that it takes
// is bounded.
func FuzzFirstBytesAtALivePort(f *testing.F) {
	open, sealed := startLive(f, nil, nil), startLive(f, secrets("0123456789abcdef"), nil)
	greeting := append([]byte{firstByteCheck, opening}, make([]byte, nonceSize)...)
	for _, b := range [][]byte{
		nil, {0}, {firstByteCheck}, {firstByteGossip}, greeting, append(bytes.Clone(greeting), 0, 9),
		[]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), {tlsHandshake, 3, 1, 2, 0, 1},
		open.onStream(gossiptest.PushPull(1, 10)), open.onStream(gossiptest.PushPull(1<<20, 0)), open.onStream(gossiptest.Bomb()),
		open.onStream(gossiptest.Ping("live-1")),
		sealed.onStream(gossiptest.PushPull(1, 10)), {firstByteGossip, gossiptest.TypeLabel, 255},
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, g := range []*gossipCluster{open, sealed} {
			memory := gossiptest.AllocatedBytes(func() {
				conn, err := net.Dial("tcp", g.addr())
				require.NoError(t, err)
				defer conn.Close()
				conn.Write(b)
				conn.(*net.TCPConn).CloseWrite()
				conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				_, err = io.Copy(io.Discard, conn)
				if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
					t.Fatal("the connection is still open")
				}
			})
			require.LessOrEqual(t, memory, 8<<20+16*uint64(len(b)), "%d bytes allocated for %d that came", memory, len(b))
		}
	})
}
