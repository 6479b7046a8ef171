package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

// live is a member with its port on the loopback.
func live(t testing.TB, secrets ...[]byte) *gossip {
	t.Helper()
	g := NewGossip(Config{Name: "live-1", Bind: "127.0.0.1:0", Secrets: secrets, Logger: slog.New(slog.DiscardHandler)}).(*gossip)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	require.NoError(t, g.Start(ctx, &testHandler{}))
	return g
}

// labelled is message as gossip of g's cluster, sealed where g has secrets.
func (g *gossip) labelled(message []byte) []byte {
	label := g.mux.inspect.label
	if len(g.mux.inspect.keys) > 0 {
		key := g.mux.inspect.keys[0]
		nonce := make([]byte, key.NonceSize())
		message = key.Seal(append([]byte{sealVersion}, nonce...), nonce, message, []byte(label))
	}
	return append(append([]byte{gossipLabel, byte(len(label))}, label...), message...)
}

// onStream is the same for a connection.
func (g *gossip) onStream(message []byte) []byte {
	label := g.mux.inspect.label
	b := append(append([]byte{firstByteGossip, gossipLabel, byte(len(label))}, label...), message...)
	if len(g.mux.inspect.keys) == 0 {
		return b
	}
	key := g.mux.inspect.keys[0]
	nonce := make([]byte, key.NonceSize())
	head := binary.BigEndian.AppendUint32([]byte{gossipEncrypted}, uint32(1+len(nonce)+len(message)+key.Overhead()))
	sealed := key.Seal(append([]byte{sealVersion}, nonce...), nonce, message, append(bytes.Clone(head), label...))
	return append(append(b[:len(b)-len(message)], head...), sealed...)
}

func (g *gossip) addr() string { return net.JoinHostPort("127.0.0.1", g.port) }

// alive is gossip's word of a member.
func (g *gossip) alive(name string) []byte {
	return append([]byte{gossipAlive}, encode(map[string]any{
		"Node": name, "Addr": []byte{127, 1, 2, 3}, "Port": 9, "Incarnation": 1, "Vsn": []uint8{1, 5, 2, 1, 1, 1},
		"Meta": encode(metadata{Version: membershipVersion, Addr: name + ".example:9", Seed: g.cfg.Seed[:], Born: 1, State: Serving}),
	})...)
}

func TestPhantomMembersAreBounded(t *testing.T) {
	g := live(t)
	conn, err := net.Dial("udp", g.addr())
	require.NoError(t, err)
	defer conn.Close()
	begin := time.Now()
	for i := 0; i < 2000 || g.Stats().Refused[reasonMembers] == 0; i++ { // a busy machine loses most before they are read
		conn.Write(g.labelled(g.alive(fmt.Sprint("phantom-", i))))
		if i%100 == 0 {
			time.Sleep(time.Millisecond)
			require.Less(t, time.Since(begin), time.Minute)
		}
	}
	members := len(g.members())
	require.LessOrEqual(t, members, 1+detect.NewMembers+detect.NewMembersEach*int(1+time.Since(begin).Seconds()))
	require.LessOrEqual(t, g.list.NumMembers(), len(g.members()), "memberlist has no others")
	require.LessOrEqual(t, len(g.peers.unmet), maxUnmetDials)
}

// fenced sends packets to g, one after the other, and waits until they are read.
func fenced(t testing.TB, g *gossip, conn net.Conn, sent ...[]byte) {
	const fences = 2 // what is sent may be refused as well
	dropped := func() uint64 { return g.mux.gossiped.snapshot()[reasonPacket] }
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

// A packet may hold anything, and so may what a holder of the secret has sealed.
func FuzzPacketsToALivePort(f *testing.F) {
	for _, message := range [][]byte{
		nil, {0}, bomb(), testPush(1, 0),
		append([]byte{gossipPing}, encode(map[string]any{"SeqNo": 7, "Node": "live-1", "SourceAddr": []byte{127, 0, 0, 1}, "SourcePort": 9})...),
		append([]byte{gossipIndirectPing}, encode(map[string]any{"SeqNo": 7, "Target": []byte{127, 0, 0, 1}, "Port": 9, "Nack": true})...),
		append([]byte{gossipSuspect}, encode(map[string]any{"Incarnation": 7, "Node": "live-1", "From": "x"})...),
		append([]byte{gossipDead}, encode(map[string]any{"Incarnation": 7, "Node": "live-1", "From": "x"})...),
		append([]byte{gossipUser}, encodeRecords([]detect.Record{{Name: "x", Addr: "x:1", Gone: time.Now()}}, time.Now())...),
		{gossipCompound, 2, 0, 1, 0, 1, 0, 0},
		{gossipChecksum, 0, 0, 0, 0, 0},
	} {
		f.Add(message)
	}
	open, sealed := live(f), live(f, []byte("0123456789abcdef"))
	f.Add(open.alive("x"))
	conns := map[*gossip]net.Conn{}
	for _, g := range []*gossip{open, sealed} {
		conn, err := net.Dial("udp", g.addr())
		require.NoError(f, err)
		defer conn.Close()
		conns[g] = conn
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) > maxPacket {
			return
		}
		for g, conn := range conns {
			memory := took(func() { fenced(t, g, conn, message, g.labelled(message)) })
			require.True(t, memory <= 8<<20, "%d bytes allocated for %d that came", memory, len(message))
		}
	})
}

// Whatever a connection begins with, it ends when its other side has said all, and
// takes no more than it brings.
func FuzzFirstBytesAtALivePort(f *testing.F) {
	open, sealed := live(f), live(f, []byte("0123456789abcdef"))
	greeting := append([]byte{firstByteCheck, opening}, make([]byte, nonceSize)...)
	for _, b := range [][]byte{
		nil, {0}, {firstByteCheck}, {firstByteGossip}, greeting, append(bytes.Clone(greeting), 0, 9),
		[]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), {tlsHandshake, 3, 1, 2, 0, 1},
		open.onStream(testPush(1, 10)), open.onStream(testPush(1<<20, 0)), open.onStream(bomb()),
		open.onStream(append([]byte{gossipPing}, encode(map[string]any{"SeqNo": 7, "Node": "live-1"})...)),
		sealed.onStream(testPush(1, 10)), {firstByteGossip, gossipLabel, 255},
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, g := range []*gossip{open, sealed} {
			memory := took(func() {
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
