package cluster

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/gossip"
)

// silent states no versions. next and later are the versions of the two releases after this one.
var (
	silent = versions{}
	next   = versions{1, 2, 1 << 40}
	later  = versions{2, 3, 0}
)

func TestNodesSpeakTheNewestCommonVersion(t *testing.T) {
	for _, c := range []struct {
		name     string
		one, two versions
		agreed   uint8 // the version of the connection; 0 if the nodes refuse each other
		refusal  string
	}{
		{"1 and 1", ownVersions, ownVersions, 1, ""},
		{"1 and 2", ownVersions, next, 1, ""},
		{"2 and 2", next, next, 2, ""},
		{"2 and 3", next, later, 2, ""},
		{"1 and 3", ownVersions, later, 0, "it speaks 1, this node 2 to 3"},
		{"none and 1", silent, ownVersions, 0, "it speaks 0, this node 1"},
	} {
		for _, turned := range []bool{false, true} {
			one, two := c.one, c.two
			if turned {
				one, two = two, one
			}
			t.Run(fmt.Sprint(c.name, ", turned ", turned), func(t *testing.T) {
				inMemory(t, func(t *testing.T, lo *loopback) {
					served := make(chan Protocol, 1)
					speaks := func(v versions) func(*peersConfig) {
						return func(cfg *peersConfig) { cfg.Self = cfg.Self.withVersions(v) }
					}
					a := lo.peer(t, "a", nil, withSecret, speaks(one))
					b := lo.peer(t, "b", &testHandler{serve: func(batch *Batch) {
						served <- batch.Protocol
						batch.Reply(0, []byte("answer"))
					}}, withSecret, speaks(two))
					if c.agreed == 0 {
						_, err := a.probe(t.Context(), b.cfg.Self.Addr)
						synctest.Wait()
						require.ErrorIs(t, err, errVersion)
						require.ErrorContains(t, err, a.cfg.Self.versionError(b.cfg.Self.versionText()).Error())
						if !turned {
							require.ErrorContains(t, b.cfg.Self.versionError(a.cfg.Self.versionText()), c.refusal)
						}
						return
					}
					connectAll(t, a, b)
					want := Protocol{Version: c.agreed, Capabilities: one.capabilities & two.capabilities}
					require.Equal(t, want, a.peer("b").Protocol())
					require.Equal(t, want, b.peer("a").Protocol())
					got, err := a.peer("b").Ask(t.Context(), []byte("request"), nil, time.Second)
					require.NoError(t, err)
					require.Equal(t, "answer", string(got))
					require.Equal(t, want, <-served)
					time.Sleep(10 * time.Second)
					require.True(t, a.isConnectedTo(b) && b.isConnectedTo(a))
					require.Empty(t, a.stats().Refused)
					require.Empty(t, b.stats().Refused)
				})
			})
		}
	}
}

func TestUnknownFieldsOfHelloAreIgnored(t *testing.T) {
	text := gossip.Encode(hello{Name: "a", Region: "r", To: "r", Oldest: 8, Newest: 9})
	require.EqualValues(t, 0x80, text[0]&0xf0, "a short map")
	text[0]++
	text = append(text, 0xa3, 'n', 'e', 'w', 0x93, 1, 2, 3)     // a field of a later version
	text = append(text, "and whatever a later version adds"...) // after the hello
	got, err := decodeHello(text)
	require.NoError(t, err)
	require.Equal(t, hello{Name: "a", Region: "r", To: "r", Oldest: 8, Newest: 9}, got)
	_, err = decodeHello(gossip.Encode(hello{Name: "a", Oldest: 9, Newest: 8}))
	require.ErrorIs(t, err, errGarbage)
}

func TestUnknownFramesAreIgnored(t *testing.T) {
	unknown := func() []byte {
		b := appendFrame(nil, kindRows+1, 9, []byte("whatever this is"))
		return appendFrame(b, 255, 0, make([]byte, MaxMessage))
	}
	t.Run("by the answering side", func(t *testing.T) {
		inMemory(t, func(t *testing.T, lo *loopback) {
			b := lo.peer(t, "b", nil)
			conn := dialStranger(t, b)
			conn.Write(appendFrame(unknown(), kindAsk, 1<<32, []byte("x")))
			require.Equal(t, "x", string(readFrame(t, conn).body))
			require.Empty(t, b.stats().Refused)
		})
	})
	t.Run("by the asking side", func(t *testing.T) {
		inPair(t, func(t *testing.T, a, b *testPeer) {
			b.mu.Lock()
			for conn := range b.conns {
				conn.Write(unknown())
			}
			b.mu.Unlock()
			time.Sleep(time.Second)
			require.True(t, a.isConnectedTo(b))
			require.Empty(t, a.stats().Refused)
		})
	})
	t.Run("unknown bytes after a ping", func(t *testing.T) {
		inMemory(t, func(t *testing.T, lo *loopback) {
			b := lo.peer(t, "b", nil)
			conn := dialStranger(t, b)
			conn.Write(appendFrame(nil, kindPing, 3, make([]byte, maxPing)))
			f := readFrame(t, conn)
			require.Equal(t, kindPong, f.kind)
			require.EqualValues(t, 3, f.id)
		})
	})
}

// rewriter is an attacker between two members. It removes the versions from a hello that it finds in
// a write, as if the node stated no versions.
type rewriter struct {
	net.Conn
	prefix int // bytes before the length of the hello
	took   bool
}

func (r *rewriter) Write(b []byte) (int, error) {
	if len(b) > r.prefix+2 && bytes.Contains(b, []byte("\xa1v\x01")) {
		h, err := decodeHello(b[r.prefix+2:])
		if err != nil {
			return 0, err
		}
		r.took = true
		if _, err := r.Conn.Write(appendHello(b[:r.prefix:r.prefix], gossip.Encode(h.withVersions(silent)))); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	return r.Conn.Write(b)
}

// With a secret, no hello crosses the wire in the clear, and a changed record ends the handshake.
func TestHelloWithRemovedVersionsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shake := func(secrets [][]byte, wrap ...func(net.Conn) net.Conn) (dialled, accepted shaken) {
			id := func(name string) identity {
				return identity{self: hello{Name: name, Region: "r"}.withVersions(ownVersions), secrets: secrets}
			}
			return shakeHands(t, id("a"), id("b"), "r", wrap...)
		}
		for name, secrets := range map[string][][]byte{"with a secret": secrets("0123456789abcdef"), "without": nil} {
			asks, answers, open := &rewriter{}, &rewriter{prefix: 1}, secrets == nil
			on := func(r *rewriter) func(net.Conn) net.Conn {
				return func(conn net.Conn) net.Conn { r.Conn = conn; return r }
			}
			dialled, accepted := shake(secrets, on(asks))
			require.Equal(t, open, asks.took, name)
			require.Equal(t, open, accepted.err != nil, name)
			require.Equal(t, open, dialled.err != nil, name)
			dialled, _ = shake(secrets, func(conn net.Conn) net.Conn { return conn }, on(answers))
			require.Equal(t, open, answers.took, name)
			require.Equal(t, open, dialled.err != nil, name)
		}
	})
}
