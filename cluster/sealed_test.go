package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-go/weir/internal/sealed"
)

// wires is the two ends of a sealed connection, of which what each writes is kept
// for the other to read when a test has had its way with it.
func wires(said string) (dialler, listener *sealedConn, asked, answered *bytes.Buffer) {
	asked, answered = new(bytes.Buffer), new(bytes.Buffer)
	secret := []byte("0123456789abcdef")
	dialler = seal(&halves{r: answered, w: asked}, secret, []byte(said), true)
	listener = seal(&halves{r: asked, w: answered}, secret, []byte(said), false)
	dialler.shaken()
	listener.shaken()
	return dialler, listener, asked, answered
}

// halves is a connection of what is read and of where writes go.
type halves struct {
	net.Conn
	r io.Reader
	w io.Writer
}

func (h *halves) Read(b []byte) (int, error)  { return h.r.Read(b) }
func (h *halves) Write(b []byte) (int, error) { return h.w.Write(b) }

func TestWhatIsSealedArrivesWholeHoweverItIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dialler, listener, asked, _ := wires("")
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
		listener.Conn = &trickle{data: asked.Bytes(), step: rapid.OneOf(rapid.IntRange(1, 50), rapid.IntRange(1, 1<<20)).Draw(t, "step")}
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
		require.LessOrEqual(t, len(listener.raw.buf), steadyIntake, "%d bytes of buffer", len(listener.raw.buf))
	})
}

// One write is one record, however many frames it is of.
func TestFramesThatGoOutTogetherShareARecord(t *testing.T) {
	dialler, listener, asked, _ := wires("")
	var frames []byte
	for id := range uint64(100) {
		frames = appendFrame(frames, kindAsk, id, []byte("request"))
	}
	_, err := dialler.Write(frames)
	require.NoError(t, err)
	require.Equal(t, recordHeader+len(frames)+recordTag, asked.Len())
	got := make([]byte, len(frames))
	n, err := listener.Read(got)
	require.NoError(t, err)
	require.Equal(t, frames, got[:n])
}

// What is on the path may be changed in any way: nothing but what was written, in the
// order in which it was, comes out at the other end.
func TestARecordOpensOnlyWhereItWasSealedFor(t *testing.T) {
	said := []string{"first", "second", "third"}
	records := func(of *sealedConn, asked *bytes.Buffer) (all [][]byte) {
		for _, text := range said {
			_, err := of.Write([]byte(text))
			require.NoError(t, err)
			all = append(all, bytes.Clone(asked.Bytes()))
			asked.Reset()
		}
		return all
	}
	other, _, elsewhere, _ := wires("other nonces")
	foreign := records(other, elsewhere)
	cases := map[string]struct {
		meddle func(r [][]byte) [][]byte
		comes  int // of said
		want   error
	}{
		"as it was sent":            {func(r [][]byte) [][]byte { return r }, 3, io.EOF},
		"one left out":              {func(r [][]byte) [][]byte { return r[1:] }, 0, errRecord},
		"one in the middle":         {func(r [][]byte) [][]byte { return [][]byte{r[0], r[2]} }, 1, errRecord},
		"two in another order":      {func(r [][]byte) [][]byte { return [][]byte{r[1], r[0], r[2]} }, 0, errRecord},
		"one sent twice":            {func(r [][]byte) [][]byte { return [][]byte{r[0], r[0], r[1]} }, 1, errRecord},
		"one of another connection": {func(r [][]byte) [][]byte { return [][]byte{foreign[0], r[1], r[2]} }, 0, errRecord},
		"what was never sealed":     {func(r [][]byte) [][]byte { return [][]byte{appendFrame(nil, kindAnswer, 1, nil)} }, 0, errOversized},
		"an end within a record":    {func(r [][]byte) [][]byte { return [][]byte{r[0], r[1][:len(r[1])-1]} }, 1, io.EOF},
		"a tag alone": {func(r [][]byte) [][]byte {
			return [][]byte{append([]byte{0, 0, 0, recordTag}, make([]byte, recordTag)...)}
		}, 0, errRecord},
	}
	for i := range len("first") + recordHeader + recordTag {
		c := cases["one left out"]
		c.comes, c.want = 1, nil // a length that was changed is another error, or waits for more
		c.meddle = func(r [][]byte) [][]byte {
			r[1][i] ^= 1
			return r[:2]
		}
		cases["byte "+string(rune('a'+i))] = c
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dialler, listener, asked, answered := wires("these nonces")
			sent := bytes.Join(c.meddle(records(dialler, asked)), nil)
			asked.Write(sent)
			got, err := io.ReadAll(onlyRead{listener})
			require.Equal(t, bytes.Join(texts(said[:c.comes]), nil), got)
			switch {
			case c.want == io.EOF:
				require.NoError(t, err)
			case c.want != nil:
				require.ErrorIs(t, err, c.want)
			}
			if err != nil {
				_, again := listener.Read(make([]byte, 10))
				require.Equal(t, err, again, "and nothing comes after it")
			}

			// Back to the side that sealed it.
			answered.Write(sent)
			got, err = io.ReadAll(onlyRead{dialler})
			require.Empty(t, got)
			require.Error(t, err)
		})
	}
}

// onlyRead keeps io.ReadAll from other ways.
type onlyRead struct{ r io.Reader }

func (o onlyRead) Read(b []byte) (int, error) { return o.r.Read(b) }

func texts(all []string) (b [][]byte) {
	for _, text := range all {
		b = append(b, []byte(text))
	}
	return b
}

// A length that is announced takes no memory, and one above the bound is refused as
// soon as it is here. Before both sides have proved themselves it is a hello's.
func TestARecordIsBoundedBeforeMemoryIsTakenForIt(t *testing.T) {
	announce := func(length uint32, shaken bool) (*sealedConn, error) {
		_, listener, asked, _ := wires("")
		if !shaken {
			listener.most = helloRecord
		}
		asked.Write(append(binary.BigEndian.AppendUint32(nil, length), make([]byte, 100)...))
		_, err := listener.Read(make([]byte, 1<<20))
		return listener, err
	}
	for _, shaken := range []bool{true, false} {
		most := uint32(helloRecord)
		if shaken {
			most = maxRecord
		}
		s, err := announce(most+recordTag, shaken)
		require.Equal(t, io.EOF, err, "it waits for the rest")
		require.LessOrEqual(t, len(s.raw.buf), firstIntake)
		for _, length := range []uint32{most + recordTag + 1, 1 << 31, 1<<32 - 1} {
			s, err = announce(length, shaken)
			require.Error(t, err)
			require.NotEqual(t, io.EOF, err)
			require.LessOrEqual(t, len(s.raw.buf), firstIntake)
		}
	}
}

func TestRecordsAllocateNothing(t *testing.T) {
	dialler, listener, asked, _ := wires("")
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
	require.Zero(t, testing.AllocsPerRun(1000, there))
}

// A key seals as many records as it safely can, and both sides know how many that is.
func TestAKeyIsNotUsedForMoreRecordsThanItMaySeal(t *testing.T) {
	dialler, listener, asked, _ := wires("")
	dialler.out.number, listener.in.number = recordsPerKey-1, recordsPerKey-1
	_, err := dialler.Write([]byte("the last"))
	require.NoError(t, err)
	got := make([]byte, 100)
	n, err := listener.Read(got)
	require.NoError(t, err)
	require.Equal(t, "the last", string(got[:n]))
	_, err = dialler.Write([]byte("one more"))
	require.ErrorIs(t, err, errSpent)
	require.Zero(t, asked.Len())

	asked.Write(append([]byte{0, 0, 0, recordTag + 1}, make([]byte, recordTag+1)...))
	_, err = listener.Read(got)
	require.ErrorIs(t, err, errSpent)
}

func TestAConnectionWhoseKeysAreSpentIsOpenedAgain(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		a, b := lo.peer(t, "a", nil, withSecret), lo.peer(t, "b", nil, withSecret)
		meet(t, a, b)
		l := a.peer("b").(*link)
		first := l.session.Load()
		first.out.mu.Lock() // nobody takes the duty to write
		spend := !first.out.writing
		if spend {
			first.conn.(*sealedConn).out.number = recordsPerKey
		}
		first.out.mu.Unlock()
		require.True(t, spend, "nothing is under way")
		eventually(t, 3*time.Second, func() bool { s := l.session.Load(); return s != nil && s != first && a.listens(b) }, "no other connection")
		_, err := a.peer("b").Ask(t.Context(), []byte("request"), nil, time.Second)
		require.NoError(t, err)
		require.Empty(t, a.stats().Refused)
		require.Empty(t, b.stats().Refused)
	})
}

// middle is between a node and those that it dials. It knows what is said where, and
// changes an answer of one byte from no to yes on its way back.
type middle struct {
	net.Conn
	flipped *atomic.Int64
}

func (m *middle) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	// One answer that came alone: in the clear, or sealed by a cipher that keeps places,
	// as a record of this package or of TLS 1.3 (RFC 8446, 5.2).
	for _, around := range [][2]int{{0, 0}, {recordHeader, recordTag}, {5, 1 + 16}} {
		if at := around[0] + headerSize; n == at+1+around[1] {
			b[at] ^= 'n' ^ 'y'
			m.flipped.Add(1)
		}
	}
	return n, err
}

// Before connections were sealed, each of these answers was taken.
func TestAnAnswerThatWasChangedOnItsWayIsNeverTaken(t *testing.T) {
	t.Parallel()
	covered := func(t *testing.T) *tls.Config {
		own, leaf := certificate(t)
		return serverTLS(&tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool(leaf)})
	}
	for name, with := range map[string]struct{ secrets, tls bool }{"Secrets": {true, false}, "TLS": {false, true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, func(t *testing.T, lo *loopback) {
				certs := covered(t)
				set := func(c *peersConfig) {
					if with.secrets {
						c.Secrets = secrets("0123456789abcdef")
					}
					if with.tls {
						c.TLS = certs
					}
				}
				var flipped atomic.Int64
				b := lo.peer(t, "b", each(func(b *Batch, i int, _ []byte) { b.Reply(i, []byte("n")) }), set)
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
					eventually(t, 4*time.Second, func() bool { return a.listens(b) }, "a does not hear b")
					answer, err := a.peer("b").Ask(t.Context(), []byte("may I?"), nil, time.Second)
					require.NotEqual(t, "y", string(answer), "an answer was changed, and taken")
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

// What a dialler says comes back to it.
func TestADiallerIsNotTakenInByWhatItSaysItself(t *testing.T) {
	t.Parallel()

	t.Run("on the same connection", func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		go func() {
			defer there.Close()
			b := make([]byte, offeredSize)
			io.ReadFull(there, b)
			there.Write(append(b, make([]byte, provenSize-offeredSize)...))
			b[greetingSize] = 0 // the first of its keys
			there.Write(append(b[:greetingSize+1], make([]byte, macSize)...))
		}()
		_, _, err := identity{self: hello{Name: "a"}, secrets: secrets("0123456789abcdef")}.dial(here, "r")
		require.ErrorIs(t, err, errSecret)
	})

	// It reaches itself: all is said by one that holds the secret, and by nobody that
	// was wanted.
	t.Run("to its own port", func(t *testing.T) {
		inMemory(t, func(t *testing.T, lo *loopback) {
			var log lines
			a := lo.peer(t, "a", nil, withSecret, log.log)
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
			require.Equal(t, "a", peer.Name, "it learns that it is itself")
			a.set([]Member{a.member(), {Name: "b", Addr: mirror.Addr().String(), Region: "r"}})
			eventually(t, 3*time.Second, func() bool { return log.with("leads back to this node") > 0 }, "it takes itself for b")
			_, err = a.peer("b").Ask(t.Context(), []byte("x"), nil, time.Second)
			require.ErrorIs(t, err, ErrDisconnected)
			r := reach(a, nil, mirror.Addr().String())
			eventually(t, 3*time.Second, func() bool { return a.stats().Refused[reasonRegion] > 0 }, "it is not refused as a region")
			_, err = r.Ask(t.Context(), nil, nil, time.Second)
			require.ErrorIs(t, err, ErrDisconnected)
		})
	})
}

// Gossip, each MAC and each direction have keys of their own, and none of them is the
// secret.
func TestEachKeyIsOfOneUse(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	keys := map[string]string{string(secret): "the secret"}
	for _, label := range []string{gossipKeyLabel, keyIDLabel, macLabel, channelLabel, dialledLabel, accepterLabel} {
		key := string(sealed.Derive(secret, nil, label))
		require.Empty(t, keys[key], label)
		keys[key] = label
		require.Equal(t, string(derived(secret, make([]byte, 32), label)), key, "as RFC 5869 has it")
	}
	require.Equal(t, [][]byte{sealed.Derive(secret, nil, gossipKeyLabel)}, gossipKeys([][]byte{secret}))
	require.NotEqual(t, keyIDOf(secret, []byte("a nonce")), keyIDOf(secret, []byte("another")))
}

// FuzzFramesToALiveNode has a member that holds the secret say anything after the
// handshake, in records that open, and somebody on its path say anything in their
// place.
func FuzzFramesToALiveNode(f *testing.F) {
	f.Add(appendFrame(nil, kindAsk, 1, []byte("request")), true, false)
	f.Add(appendFrame(appendFrame(nil, kindPing, 7, make([]byte, pingSize)), kindTell, 0, nil), true, false)
	f.Add(appendFrame(nil, kindNews, 0, []byte("news")), true, true)
	f.Add([]byte{opening, byte(kindAsk), 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 1}, true, false)
	f.Add(append([]byte{0, 0, 0, 17}, make([]byte, 17)...), false, false)
	f.Add([]byte{255, 255, 255, 255}, false, true)
	var served atomic.Int64
	count := each(func(b *Batch, i int, r []byte) {
		served.Add(1)
		b.Reply(i, r)
	})
	p := startPeer(f, "b", count, withSecret)
	f.Fuzz(func(t *testing.T, said []byte, opens, abroad bool) {
		here, there := net.Pipe()
		p.arrive(there)
		self := hello{Name: "a", Region: "r"}.speaking(spoken)
		if abroad {
			self.Region = "far"
		}
		here.SetDeadline(time.Now().Add(10 * time.Second))
		conn, _, err := identity{self: self, secrets: p.cfg.Secrets}.dial(here, "r")
		require.NoError(t, err)
		asked := served.Load()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		go io.Copy(io.Discard, here) // its answers
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
		require.False(t, !opens && served.Load() != asked, "what was not sealed was served")
	})
}
