package cluster

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/sealed"
	"github.com/weir-go/weir/internal/testenv"
)

// tlsPair returns the two ends of a TLS connection with a secret, over the two given connections.
func tlsPair(t testing.TB, here, there net.Conn, secret string) (dialler, listener *tlsConn) {
	id, accepted := identity{secrets: secrets(secret)}, make(chan *tlsConn, 1)
	go func() {
		proof, _, err := id.self.readOpening(there)
		if err != nil {
			proof = 255
		}
		conn, _, _, _ := id.acceptProof(there, proof)
		listener, _ := conn.(*tlsConn)
		accepted <- listener
	}()
	conn, err := id.dialProof(here, id.secrets)
	require.NoError(t, err)
	dialler, listener = conn.(*tlsConn), <-accepted
	require.NotNil(t, listener)
	return dialler, listener
}

// wires returns the two ends of a connection under TLS, and the buffers that hold the bytes that each end
// writes, so that a test can change these bytes before the other end reads them.
func wires(t testing.TB) (dialler, listener *tlsConn, asked, answered *bytes.Buffer) {
	here := memoryPipe("wires")
	dialler, listener = tlsPair(t, here, here.peer, "0123456789abcdef")
	asked, answered = new(bytes.Buffer), new(bytes.Buffer)
	dialler.records.Conn = &halves{r: answered, w: asked}
	listener.records.Conn = &halves{r: asked, w: answered}
	return dialler, listener, asked, answered
}

// halves is a connection that reads from one end and writes to another.
type halves struct {
	net.Conn
	r      io.Reader
	w      io.Writer
	writes int
}

func (h *halves) Read(b []byte) (int, error)  { return h.r.Read(b) }
func (h *halves) Write(b []byte) (int, error) { h.writes++; return h.w.Write(b) }

func TestRecordsInPiecesArriveWhole(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		dialler, listener, asked, _ := wires(outer)
		sizes := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 3*maxRecord))
		var sent []byte
		for i := range rapid.IntRange(0, 12).Draw(t, "writes") {
			b := bytes.Repeat([]byte{byte(i)}, sizes.Draw(t, "size"))
			n, err := dialler.Write(b)
			if err != nil || n != len(b) {
				t.Fatal(n, err)
			}
			sent = append(sent, b...)
		}
		listener.records.Conn = &trickle{data: asked.Bytes(), step: rapid.OneOf(rapid.IntRange(1, 50), rapid.IntRange(1, 1<<20)).Draw(t, "step")}
		var got []byte
		for {
			b := make([]byte, rapid.OneOf(rapid.IntRange(1, 50), rapid.IntRange(1, 1<<17)).Draw(t, "room"))
			n, err := listener.Read(b)
			got = append(got, b[:n]...)
			if err == io.EOF {
				break
			}
			if n == 0 || err != nil {
				t.Fatal(n, err)
			}
		}
		require.True(t, bytes.Equal(got, sent), "%d bytes arrived, %d were sent", len(got), len(sent))
		require.LessOrEqual(t, len(listener.records.in.buf), steadyIntake)
		require.LessOrEqual(t, cap(dialler.records.out), keepQueued)
	})
}

// A flush takes one write, and frames that are written together are read together.
func TestFramesWrittenTogetherArriveTogether(t *testing.T) {
	dialler, listener, asked, _ := wires(t)
	below := dialler.records.Conn.(*halves)
	for _, c := range []struct{ frames, records int }{{100, 1}, {3000, 4}} {
		var frames []byte
		for id := range uint64(c.frames) {
			frames = appendFrame(frames, kindAsk, id, []byte("request"))
		}
		for round := range 10 {
			below.writes = 0
			_, err := dialler.Write(frames)
			require.NoError(t, err)
			require.Equal(t, 1, below.writes)
			require.Equal(t, c.records*(recordHeader+1+16)+len(frames), asked.Len())
			got, reads := make([]byte, len(frames)), 0
			for n := 0; n < len(got); reads++ {
				more, err := listener.Read(got[n:])
				require.NoError(t, err)
				n += more
			}
			require.True(t, bytes.Equal(frames, got))
			require.True(t, reads == 1 || round < 9, "the buffer grows to the size of a flush")
			asked.Reset()
		}
	}
}

// A record may contain no frame, such as an update of keys. A read that has data does not wait for the
// next record.
func TestReadThatMayNotWaitKeepsConnectionState(t *testing.T) {
	dialler, listener, _, _ := wires(t)
	b := make([]byte, 10)
	for _, text := range []string{"one", "two"} {
		listener.records.hurried = true
		_, err := listener.Conn.Read(b)
		require.ErrorIs(t, err, errWait)
		listener.records.hurried = false
		_, err = dialler.Write([]byte(text))
		require.NoError(t, err)
		n, err := listener.Read(b)
		require.NoError(t, err)
		require.Equal(t, text, string(b[:n]))
	}
}

// An attacker on the path may change the bytes in any way. The other end reads only bytes that were
// written, in their order.
func TestRecordIsValidOnlyInItsPlace(t *testing.T) {
	records := func(of *tlsConn, asked *bytes.Buffer) (all [][]byte) {
		for _, text := range []string{"first ", "second ", "third"} {
			of.Write([]byte(text))
			all = append(all, bytes.Clone(asked.Bytes()))
			asked.Reset()
		}
		return all
	}
	other, _, elsewhere, _ := wires(t)
	foreign := records(other, elsewhere)[0]
	for name, c := range map[string]struct {
		meddle func(r [][]byte) [][]byte
		want   string // the text that arrives
	}{
		"nothing is changed":      {func(r [][]byte) [][]byte { return r }, "first second third"},
		"left out":                {func(r [][]byte) [][]byte { return [][]byte{r[0], r[2]} }, "first "},
		"in another order":        {func(r [][]byte) [][]byte { return [][]byte{r[1], r[0], r[2]} }, ""},
		"sent twice":              {func(r [][]byte) [][]byte { return [][]byte{r[0], r[0], r[1]} }, "first "},
		"from another connection": {func(r [][]byte) [][]byte { return [][]byte{foreign, r[1], r[2]} }, ""},
		"never sealed":            {func(r [][]byte) [][]byte { return [][]byte{appendFrame(nil, kindAnswer, 1, nil)} }, ""},
		"cut":                     {func(r [][]byte) [][]byte { return [][]byte{r[0], r[1][:len(r[1])-1]} }, "first "},
	} {
		t.Run(name, func(t *testing.T) {
			dialler, listener, asked, answered := wires(t)
			sent := bytes.Join(c.meddle(records(dialler, asked)), nil)
			asked.Write(sent)
			got, err := io.ReadAll(struct{ io.Reader }{listener})
			require.Equal(t, c.want, string(got))
			if name != "nothing is changed" {
				_, again := listener.Read(make([]byte, 10))
				require.Equal(t, err, again, "nothing follows")
			}
			answered.Write(sent) // sent back
			got, err = io.ReadAll(struct{ io.Reader }{dialler})
			require.Empty(t, got)
			require.Error(t, err)
		})
	}
}

// An announced length takes at most the memory of one record, and a length above the bound is refused
// as soon as it is read. Before both sides have proved themselves, the bytes that they send are bounded.
func TestRecordIsBoundedBeforeAllocation(t *testing.T) {
	for _, length := range []uint16{maxRecord + 256, maxRecord + 257, 1<<16 - 1} {
		_, listener, asked, _ := wires(t)
		asked.Write(append(binary.BigEndian.AppendUint16([]byte{23, 3, 3}, length), make([]byte, 100)...))
		_, err := listener.Read(make([]byte, 1<<20))
		require.Equal(t, length <= maxRecord+256, errors.Is(err, io.ErrUnexpectedEOF), "%d: %v", length, err)
		require.LessOrEqual(t, len(listener.records.in.buf), firstIntake)
	}

	// The hello is longer than the bound. Its records have the smallest size, a small size or the largest size.
	id := identity{secrets: secrets("0123456789abcdef")}
	for _, size := range []int{1, 100, maxRecord} {
		for _, dials := range []bool{false, true} {
			from := &script{trickle{step: 1 << 20}}
			hello := append([]byte{1, 0, 255, 255}, make([]byte, 8*maxHandshake)...)
			if dials {
				hello[0] = 2
			}
			for part := range slices.Chunk(hello, size) {
				from.data = append(append(from.data, tlsHandshake, 3, 1, byte(len(part)>>8), byte(len(part))), part...)
			}
			all := len(from.data)
			if dials {
				_, err := id.dialKeys(from, id.secrets)
				require.ErrorContains(t, err, "more than 16384 bytes", "%d", size)
			} else {
				_, _, reason, err := id.acceptKeys(from)
				require.ErrorIs(t, err, errOversized, "%d", size)
				require.Equal(t, reasonOversized, reason)
			}
			require.LessOrEqual(t, all-len(from.data), 5*maxHandshake, "what it reads")
		}
	}
}

// crypto/tls allocates a reader of 24 bytes for each record that it reads.
func TestRecordAllocatesOneReader(t *testing.T) {
	dialler, listener, asked, _ := wires(t)
	frames, got := bytes.Repeat([]byte("frame"), 100), make([]byte, steadyIntake)
	there := func() {
		dialler.Write(frames)
		n, err := listener.Read(got)
		if n != len(frames) || err != nil {
			t.Error(n, err)
		}
		asked.Reset()
	}
	there()
	if testenv.Race {
		t.Skip("the race detector empties the pool of crypto/tls")
	}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, there), 1.0)
}

// A key seals at most as many bytes as is safe, counted in blocks of 16.
func TestBytesUnderOneKeyAreCounted(t *testing.T) {
	dialler, _, asked, _ := wires(t)
	for _, size := range []int{1, 15, 16, 100, maxRecord, maxRecord + 1, 5 * maxRecord} {
		before, blocks := dialler.sealed, 0
		_, err := dialler.Write(make([]byte, size))
		require.NoError(t, err)
		for asked.Len() > 0 {
			header := asked.Next(recordHeader)
			inner := len(asked.Next(int(binary.BigEndian.Uint16(header[3:])))) - 16
			blocks += (inner+15)/16 + 1
		}
		require.GreaterOrEqual(t, dialler.sealed-before, int64(16*blocks), "%d bytes", size)
	}
}

func TestConnectionWithSpentKeysIsReplaced(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		a, b := lo.peer(t, "a", nil, withSecret), lo.peer(t, "b", nil, withSecret)
		connectAll(t, a, b)
		l := a.peer("b").(*link)
		first := l.session.Load()
		first.out.mu.Lock() // no goroutine takes the duty to write
		spend := !first.out.writing
		if spend {
			first.conn.(*tlsConn).sealed = maxSealed
		}
		first.out.mu.Unlock()
		require.True(t, spend, "nothing is under way")
		eventually(t, 3*time.Second, func() bool { s := l.session.Load(); return s != nil && s != first && a.isConnectedTo(b) }, "no other connection")
		_, err := a.peer("b").Ask(t.Context(), []byte("request"), nil, time.Second)
		require.NoError(t, err)
		require.Empty(t, a.stats().Refused)
		require.Empty(t, b.stats().Refused)
	})
}

// middle is an attacker on the path from a node to the nodes that it dials. It knows the positions of
// messages, and changes an answer of a single byte from no to yes.
type middle struct {
	net.Conn
	flipped *atomic.Int64
}

func (m *middle) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	// A message with an answer of one byte has a known length, in the clear and in a record of
	// TLS 1.3. In the record, the encrypted answer is at a known position too (RFC 8446, 5.2).
	for _, around := range [][2]int{{0, 0}, {recordHeader, 1 + 16}} {
		if at := around[0] + headerSize; n == at+1+around[1] {
			b[at] ^= 'n' ^ 'y'
			m.flipped.Add(1)
		}
	}
	return n, err
}

// In the clear, each of these changed answers would be accepted.
func TestChangedAnswerIsRefused(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]struct{ secrets, tls bool }{"Secrets": {true, false}, "TLS": {false, true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, func(t *testing.T, lo *loopback) {
				certs := serverTLS(NewAuthority(t).Config(t))
				set := func(c *peersConfig) {
					if with.secrets {
						c.Secrets = secrets("0123456789abcdef")
					}
					if with.tls {
						c.TLS = certs
					}
				}
				var flipped atomic.Int64
				b := lo.peer(t, "b", handleEach(func(b *Batch, i int, _ []byte) { b.Reply(i, []byte("n")) }), set)
				a := lo.peer(t, "a", nil, set, func(c *peersConfig) {
					dial := c.Dial
					c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
						conn, err := dial(ctx, addr)
						if err != nil {
							return nil, err
						}
						return &middle{Conn: conn, flipped: &flipped}, nil
					}
				})
				a.set([]Member{a.member(), b.member()})
				for round := range int64(3) {
					eventually(t, 4*time.Second, func() bool { return a.isConnectedTo(b) }, "a does not hear b")
					answer, err := a.peer("b").Ask(t.Context(), []byte("may I?"), nil, time.Second)
					require.NotEqual(t, "y", string(answer), "a changed answer was accepted")
					if flipped.Load() > round {
						require.ErrorIs(t, err, ErrBroken, "the connection has ended")
					}
					eventually(t, time.Second, func() bool { return a.stats().Refused[reasonRecord] == uint64(flipped.Load()) }, "it is not counted: %v", a.stats().Refused)
				}
				require.NotZero(t, flipped.Load(), "nothing was changed at all")
			})
		})
	}
}

// A mirror returns the bytes of a dialler to the dialler.
func TestReflectedHandshakeIsRefused(t *testing.T) {
	t.Parallel()

	t.Run("on the same connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			conn := memoryPipe("127.0.0.1:1")
			conn.SetDeadline(time.Now().Add(time.Second))
			go io.Copy(conn.peer, conn.peer)
			_, _, err := identity{self: hello{Name: "a"}, secrets: secrets("0123456789abcdef")}.dial(conn, "r")
			require.ErrorIs(t, err, errSecret)
			sever(conn)
			sever(conn.peer)
		})
	})

	// The mirror connects node a to the listener of a. So the other end of the connection holds
	// the secret, but is not the node b that a wants to reach.
	t.Run("to its own port", func(t *testing.T) {
		inMemory(t, func(t *testing.T, lo *loopback) {
			var log lines
			a := lo.peer(t, "a", nil, withSecret, log.setLog)
			mirror := lo.listen()
			defer mirror.Close()
			go acceptEach(mirror, func(conn net.Conn) {
				back, err := lo.dial(t.Context(), a.cfg.Self.Addr)
				if err != nil {
					conn.Close()
					return
				}
				relay(conn, back)
			})
			peer, err := a.probe(t.Context(), mirror.Addr().String())
			require.NoError(t, err)
			require.Equal(t, "a", peer.Name, "the dialler learns that it has reached itself")
			a.set([]Member{a.member(), {Name: "b", Addr: mirror.Addr().String(), Region: "r"}})
			eventually(t, 3*time.Second, func() bool { return log.countLines("leads back to this node") > 0 }, "it takes itself for b")
			require.ErrorIs(t, askX(a.peer("b"), time.Second), ErrDisconnected)
			r := reach(a, nil, mirror.Addr().String())
			eventually(t, 3*time.Second, func() bool { return a.stats().Refused[reasonRegion] > 0 }, "it is not refused as a region")
			_, err = r.Ask(t.Context(), nil, nil, time.Second)
			require.ErrorIs(t, err, ErrDisconnected)
		})
	})
}

// Gossip, each proof and each side have their own keys, and no key is the secret. A change of the keys
// needs another version of the protocol: otherwise two releases would report to each other
// that they do not have a common secret.
func TestEachKeyHasOneUse(t *testing.T) {
	require.EqualValues(t, 1, opening)
	derive := func(secret, salt []byte, label string) []byte {
		key, err := hkdf.Key(sha256.New, secret, salt, label, 32)
		require.NoError(t, err)
		return key
	}
	secret := []byte("0123456789abcdef0123456789abcdef")
	keys := map[string]string{string(secret): "the secret"}
	for _, label := range []string{gossipKeyLabel, keyIDLabel, keyPairLabel, dialTokenLabel, acceptTokenLabel} {
		key := string(sealed.Derive(secret, nil, label))
		require.Empty(t, keys[key], label)
		keys[key] = label
		require.Equal(t, string(derive(secret, nil, label)), key, "HKDF-SHA256 (RFC 5869)")
	}
	require.Equal(t, [][]byte{sealed.Derive(secret, nil, gossipKeyLabel)}, gossipKeys([][]byte{secret}))

	pair := newKeyPair(secret)
	require.Equal(t, ed25519.NewKeyFromSeed(derive(secret, nil, "weir key pair")).Public(), pair.public)
	leaf, err := x509.ParseCertificate(pair.certificate.Certificate[0])
	require.NoError(t, err)
	require.Equal(t, pair.public, leaf.PublicKey)
	require.NoError(t, pair.verify(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}))
	certs := NewAuthority(t)
	require.ErrorIs(t, pair.verify(tls.ConnectionState{PeerCertificates: []*x509.Certificate{certs.CA}}), errSecret)
	require.ErrorIs(t, pair.verify(tls.ConnectionState{}), errSecret)
	require.ErrorIs(t, newKeyPair([]byte("0123456789abcdef")).verify(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}), errSecret)

	offer := offerKeys([][]byte{secret, secret})
	id := string(derive(secret, []byte(offer[0]), "weir key id"))
	require.Equal(t, []string{id, id}, offer[1:])
	require.Len(t, offer[0], nonceSize)
	require.NotEqual(t, offer[0], offerKeys(nil)[0])

	// Each token is valid for one connection and one side.
	here, there := net.Pipe()
	certificates := certs.Config(t)
	dialler, listener := newTLSConn(here, clientTLS(certificates, "127.0.0.1:1"), tls.Client), newTLSConn(there, serverTLS(certificates), tls.Server)
	defer sever(dialler)
	dialled := make(chan error, 1)
	go func() {
		err := dialler.Handshake()
		if err == nil {
			err = identity{}.dialTokens(dialler, [][]byte{secret})
		}
		dialled <- err
	}()
	said := make([]byte, openingSize+1+tokenSize)
	_, err = io.ReadFull(listener, said)
	require.NoError(t, err)
	state := listener.ConnectionState()
	exported, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
	require.NoError(t, err)
	require.Equal(t, append([]byte{1, proofTokens, 0, 0, 0, 0, 0, 0, 0, 0, 1}, derive(secret, exported, "weir token of the dialler")...), said)
	_, err = listener.Write(append([]byte{opening, 0}, said[openingSize+1:]...))
	require.NoError(t, err)
	require.ErrorIs(t, <-dialled, errSecret, "the token of the dialler is not a valid answer")
}

// FuzzFramesToALiveNode sends any bytes after the handshake: from a node that holds the secret, in
// valid records, and from an attacker on its path, in place of records.
func FuzzFramesToALiveNode(f *testing.F) {
	f.Add(appendFrame(nil, kindAsk, 1, []byte("request")), true, false)
	f.Add(appendFrame(appendFrame(nil, kindPing, 7, make([]byte, pingSize)), kindTell, 0, nil), true, false)
	f.Add(appendFrame(nil, kindNews, 0, []byte("news")), true, true)
	f.Add([]byte{opening, byte(kindAsk), 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 1}, true, false)
	f.Add(append([]byte{0, 0, 0, 17}, make([]byte, 17)...), false, false)
	f.Add([]byte{255, 255, 255, 255}, false, true)
	var served atomic.Int64
	count := handleEach(func(b *Batch, i int, r []byte) {
		served.Add(1)
		b.Reply(i, r)
	})
	p := startPeer(f, "b", count, withSecret)
	f.Fuzz(func(t *testing.T, said []byte, opens, abroad bool) {
		here, there := net.Pipe()
		in, _ := p.pending.enter(there)
		p.serve(there, in)
		self := hello{Name: "a", Region: "r"}.withVersions(ownVersions)
		if abroad {
			self.Region = "far"
		}
		here.SetDeadline(time.Now().Add(10 * time.Second))
		conn, _, err := identity{self: self, secrets: p.cfg.Secrets}.dial(here, "r")
		require.NoError(t, err)
		asked := served.Load()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		go io.Copy(io.Discard, here) // the answers of the node
		if opens {
			conn.Write(said)
		} else {
			here.Write(said)
		}
		here.Close()
		eventually(t, 10*time.Second, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.conns) == 0
		}, "the connection is still served")
		runtime.ReadMemStats(&after)
		spent := after.TotalAlloc - before.TotalAlloc
		require.LessOrEqual(t, spent, 1<<20+16*uint64(len(said)), "%d bytes allocated for %d that came", spent, len(said))
		require.False(t, !opens && served.Load() != asked, "bytes that were not sealed were served")
	})
}
