package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/cluster/detect"
)

func secrets(all ...string) [][]byte {
	var s [][]byte
	for _, one := range all {
		s = append(s, []byte(one))
	}
	return s
}

func TestHandshakeComparesSecretsSeedsAndRegions(t *testing.T) {
	node := func(name, region string, seed byte, secret ...string) identity {
		return identity{self: hello{Name: name, Addr: "10.0.0.1:1", Region: region, Seed: [16]byte{seed}}, secrets: secrets(secret...)}
	}
	const old, new = "the old secret..", "the new secret.."
	to := func(region string, id identity) identity {
		id.self.To = region
		return id
	}
	var gone atomic.Bool
	gone.Store(true)
	left := func(id identity) identity {
		id.left = &gone
		return id
	}
	for name, c := range map[string]struct {
		dialler, listener identity
		want              error
		reason            string
	}{
		"to another region":                          {to("s", node("a", "r", 1, old)), node("b", "s", 1, old), nil, ""},
		"to another region, reaching its own":        {to("s", node("a", "r", 1)), node("b", "r", 1), errAstray, reasonRegion},
		"to another region, reaching a third":        {to("s", node("a", "r", 1)), node("b", "t", 1), errAstray, reasonRegion},
		"to another region, with another seed":       {to("s", node("a", "r", 2)), node("b", "s", 1), errSeed, reasonSeed},
		"to another region, with another secret":     {to("s", node("a", "r", 1, old)), node("b", "s", 1, new), errSecret, reasonAuthentication},
		"to another region, where the node has left": {to("s", node("a", "r", 1)), left(node("b", "s", 1)), errAway, ""},
		"to the own region, where the node has left": {node("a", "r", 1), left(node("b", "r", 1)), nil, ""},
		"from a node without a region to a region":   {to("s", node("a", "", 1)), node("b", "s", 1), errAstray, reasonRegion},
		"from a region to a node without a region":   {to("", node("a", "r", 1)), node("b", "", 1), errAstray, reasonRegion},
		"no regions at all":                          {to("", node("a", "", 1)), node("b", "", 1), nil, ""},
		"a region's name that is too long":           {to(strings.Repeat("s", detect.MaxRegion+1), node("a", "r", 1)), node("b", "s", 1), errForeign, reasonGarbage},
		"the own region's name is too long":          {to("s", node("a", strings.Repeat("r", detect.MaxRegion+1), 1)), node("b", "s", 1), errForeign, reasonGarbage},
		"no secrets on both sides":                   {node("a", "r", 1), node("b", "r", 1), nil, ""},
		"one secret on both sides":                   {node("a", "r", 1, old), node("b", "r", 1, old), nil, ""},
		"rotation: the listener accepts both":        {node("a", "r", 1, old), node("b", "r", 1, new, old), nil, ""},
		"rotation: the dialler has both":             {node("a", "r", 1, old, new), node("b", "r", 1, old), nil, ""},
		"rotation: the listener is a stage behind":   {node("a", "r", 1, new, old), node("b", "r", 1, old), nil, ""},
		"rotation: the listener is a stage ahead":    {node("a", "r", 1, old, new), node("b", "r", 1, new), nil, ""},
		"rotation: the first differs on both":        {node("a", "r", 1, old, new), node("b", "r", 1, new, old), nil, ""},
		"two secrets each, and none in common":       {node("a", "r", 1, old, new), node("b", "r", 1, "a third secret..", "a fourth secret."), errSecret, reasonAuthentication},
		"different secrets":                          {node("a", "r", 1, old), node("b", "r", 1, new), errSecret, reasonAuthentication},
		"only the listener has secrets":              {node("a", "r", 1), node("b", "r", 1, old), errSecret, reasonAuthentication},
		"only the dialler has secrets":               {node("a", "r", 1, old), node("b", "r", 1), errSecret, reasonAuthentication},
		"another seed":                               {node("a", "r", 1, old), node("b", "r", 2, old), errSeed, reasonSeed},
		"another region":                             {node("a", "r", 1, old), node("b", "s", 1, old), errRegion, reasonRegion},
		"another seed and region: the seed first":    {node("a", "r", 1), node("b", "s", 2), errSeed, reasonSeed},
		"a dialler without a name":                   {node("", "r", 1), node("b", "r", 1), errForeign, reasonGarbage},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				region := c.dialler.self.To
				if region == "" && c.listener.self.Region != "" {
					region = c.dialler.self.Region // as for a member
				}
				dialled, accepted := shakeHands(t, c.dialler, c.listener, region)
				require.Equal(t, c.reason, accepted.reason)
				if c.want != nil {
					require.ErrorIs(t, dialled.err, c.want)
					require.Error(t, accepted.err)
					if errors.Is(dialled.err, errRegion) || errors.Is(dialled.err, errAstray) {
						for _, said := range []error{dialled.err, accepted.err} {
							for _, region := range []string{c.dialler.self.Region, region, c.listener.self.Region} {
								require.ErrorContains(t, said, strconv.Quote(region))
							}
						}
					}
					return
				}
				require.NoError(t, dialled.err)
				require.NoError(t, accepted.err)
				require.Equal(t, c.listener.self, dialled.peer)
				c.dialler.self.To = region
				require.Equal(t, c.dialler.self, accepted.peer)
			})
		})
	}
}

// shaken is the result of a handshake on one side.
type shaken struct {
	peer   hello
	reason string
	err    error
}

// shakeHands performs a handshake over a pipe, in virtual time. The dialler expects a listener of the
// region. wrap returns the connections that the dialler and the listener use.
func shakeHands(t *testing.T, dialler, listener identity, region string, wrap ...func(net.Conn) net.Conn) (dialled, accepted shaken) {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	ends := [2]net.Conn{here, there}
	for i, conn := range ends {
		require.NoError(t, conn.SetDeadline(time.Now().Add(handshakeWait)))
		if i < len(wrap) {
			ends[i] = wrap[i](conn)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer there.Close()
		_, accepted.peer, accepted.reason, accepted.err = listener.accept(ends[1])
	}()
	_, dialled.peer, dialled.err = dialler.dial(ends[0], region)
	if dialled.err != nil {
		here.Close()
	}
	<-done
	return dialled, accepted
}

// recorder records the bytes of a connection in each direction.
type recorder struct {
	net.Conn
	sent, received bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent.Write(b)
	return r.Conn.Write(b)
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.received.Write(b[:n])
	return n, err
}

// recordHandshake performs a handshake between two members, and records the bytes.
func recordHandshake(t *testing.T, from, to *testPeer) *recorder {
	t.Helper()
	conn := &recorder{Conn: dialRaw(t, to)}
	_, _, err := from.identity.dial(conn, to.cfg.Self.Region)
	require.NoError(t, err)
	return conn
}

// An attacker without the secret may have recorded a handshake. The recorded bytes are not valid in a later
// handshake.
func TestReplayedHandshakeIsRefused(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		a, b := lo.peer(t, "a", nil, withSecret), lo.peer(t, "b", nil, withSecret)
		first := recordHandshake(t, a, b)

		again := dialRaw(t, b)
		again.Write(first.sent.Bytes())
		again.SetReadDeadline(time.Now().Add(handshakeWait))
		answer, err := io.ReadAll(again)
		require.NoError(t, err)
		require.Less(t, len(answer), first.received.Len()-len("a hello"), "the listener proves itself, and sends no hello to a node without the secret")
		eventually(t, time.Second, func() bool { return b.stats().Refused[reasonAuthentication] == 1 }, "%v", b.stats().Refused)

		impostor := lo.listen()
		defer impostor.Close()
		said := make(chan int64, 1)
		go func() {
			conn, err := impostor.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			offered := make([]byte, 1+openingSize+recordHeader)
			io.ReadFull(conn, offered)
			io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint16(offered[len(offered)-2:])))
			conn.Write(first.received.Bytes())
			told, _ := io.Copy(io.Discard, conn)
			said <- told
		}()
		_, err = a.probe(t.Context(), impostor.Addr().String())
		require.ErrorIs(t, err, errSecret)
		require.LessOrEqual(t, <-said, int64(alertSize), "the dialler sends no hello either")
	})
}

// An attacker that has recorded or received an offer knows the key ids of a secret, but does not
// have the key pair.
func TestKeyIDsWithoutKeyPairAreRefused(t *testing.T) {
	id := identity{self: hello{Name: "a"}, secrets: secrets("0123456789abcdef")}
	c := keysConfig()
	c.NextProtos = offerKeys(id.secrets)
	c.Certificates = []tls.Certificate{newKeyPair([]byte("another secret..")).certificate}

	conn := memoryPipe("listener")
	go tls.Client(conn, c).Handshake()
	_, _, reason, err := id.acceptKeys(conn.peer)
	require.ErrorIs(t, err, errSecret)
	require.Equal(t, reasonAuthentication, reason)

	conn = memoryPipe("dialler")
	go func() {
		io.ReadFull(conn.peer, make([]byte, openingSize))
		tls.Server(conn.peer, &tls.Config{GetConfigForClient: func(offer *tls.ClientHelloInfo) (*tls.Config, error) {
			c := c.Clone()
			c.NextProtos = offer.SupportedProtos[1:]
			return c, nil
		}}).Handshake()
	}()
	_, err = id.dialKeys(conn, id.secrets)
	require.ErrorIs(t, err, errSecret)
}

// alertSize is the size of the change of ciphers and the alert by which a side of TLS 1.3 refuses the other
// side.
const alertSize = recordHeader + 1 + recordHeader + 2 + 1 + 16

// meddler changes one byte that is written to a connection.
type meddler struct {
	net.Conn
	at int // position in all written bytes
}

func (m *meddler) Write(b []byte) (int, error) {
	at := m.at
	if m.at -= len(b); at >= 0 && at < len(b) {
		b = bytes.Clone(b)
		b[at] ^= 1
	}
	return m.Conn.Write(b)
}

// An attacker between two members cannot change a byte of a handshake, except a byte that is ignored: the
// side that reads the byte refuses the other side.
func TestChangedHandshakeIsRefused(t *testing.T) {
	t.Parallel()
	id := func(name string) identity {
		id := identity{self: hello{Name: name, Addr: "10.0.0.1:1", Region: "r"}, secrets: secrets("0123456789abcdef")}
		id.pairs = id.keyPairs()
		return id
	}
	dialler, listener := id("a"), id("b")
	for i, side := range []string{"of the dialler", "of the listener"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				shake := func(wrap func(net.Conn) net.Conn) (peers []hello, refused error) {
					wraps := slices.Repeat([]func(net.Conn) net.Conn{func(conn net.Conn) net.Conn { return conn }}, 2)
					wraps[i] = wrap
					dialled, accepted := shakeHands(t, dialler, listener, "r", wraps...)
					return []hello{dialled.peer, accepted.peer}, []error{accepted.err, dialled.err}[i]
				}
				var wire *recorder
				peers, err := shake(func(conn net.Conn) net.Conn { wire = &recorder{Conn: conn}; return wire })
				require.NoError(t, err)
				said := wire.sent.Bytes()
				require.Less(t, len(said), maxHandshake/2)
				first := openingSize * (1 - i)
				clear := clearVersions(said[first:], first)
				for at := 2; at < first; at++ {
					clear = append(clear, at) // the byte is reserved
				}
				for at := range said {
					changed, refused := shake(func(conn net.Conn) net.Conn { return &meddler{conn, at} })
					if refused == nil && slices.Contains(clear, at) {
						require.Equal(t, peers, changed)
						continue
					}
					require.Error(t, refused, "byte %d", at)
				}
			})
		})
	}
}

// clearVersions returns the positions of the version in the headers of records that are not encrypted.
// TLS 1.3 ignores that version (RFC 8446, section 5.1).
func clearVersions(wire []byte, at int) (all []int) {
	for len(wire) > 0 && (wire[0] == tlsHandshake || wire[0] == 20) {
		all = append(all, at+1, at+2)
		size := recordHeader + int(binary.BigEndian.Uint16(wire[3:]))
		wire, at = wire[size:], at+size
	}
	return all
}

// Earlier and later versions send other bytes. Each side sends its version to the other, so that
// both can report the problem.
func TestNodeOfOtherVersionLearnsThisVersion(t *testing.T) {
	for _, secrets := range [][][]byte{nil, secrets("0123456789abcdef")} {
		id := identity{self: hello{Name: "a", Region: "r"}.withVersions(ownVersions), secrets: secrets}
		for _, version := range []byte{0, opening - 1, opening + 1, plausibleVersions - 1} {
			listener := &recorder{Conn: &script{trickle{data: []byte{version}, step: 1}}}
			_, _, err := id.dial(listener, "r")
			require.ErrorIs(t, err, errVersion, "from a listener of version %d", version)
			require.ErrorContains(t, err, fmt.Sprintf("it speaks %d, this node 1", version))
			require.EqualValues(t, opening, listener.sent.Bytes()[0])

			dialler := &recorder{Conn: &script{trickle{data: []byte{version}, step: 1}}}
			_, _, reason, err := id.accept(dialler)
			require.ErrorIs(t, err, errVersion, "from a dialler of version %d", version)
			require.ErrorContains(t, err, fmt.Sprintf("it speaks %d, this node 1", version))
			require.Equal(t, reasonVersion, reason)
			require.EqualValues(t, opening, dialler.sent.Bytes()[0])
		}
	}
	_, _, reason, err := identity{}.accept(&script{trickle{data: []byte{plausibleVersions}, step: 1}})
	require.ErrorIs(t, err, errGarbage)
	require.Equal(t, reasonGarbage, reason)
}

// The listener does not use TLS, and answers with a given status.
func TestOnlyValidWelcomeIsAccepted(t *testing.T) {
	id := func(name string, secret ...string) identity {
		return identity{self: hello{Name: name, Region: "r"}, secrets: secrets(secret...)}
	}
	for name, c := range map[string]struct {
		dialler identity
		status  byte
		want    error
	}{
		"a welcome":                             {id("a"), statusWelcome, nil},
		"a refusal of the right region":         {id("a"), statusRegion, errForeign},
		"no version in common":                  {id("a"), statusVersion, errForeign},
		"a status of a later version":           {id("a"), statusVersion + 1, errRefused},
		"the greatest status":                   {id("a"), 255, errRefused},
		"garbage":                               {id("a"), statusGarbage, errForeign},
		"another Seed":                          {id("a"), statusSeed, errSeed},
		"the node has left":                     {id("a"), statusLeft, errAway},
		"in the clear, to a holder of a secret": {id("a", "0123456789abcdef"), statusWelcome, errSecret},
	} {
		t.Run(name, func(t *testing.T) {
			answer, _ := id("b").self.encode()
			said := appendHello([]byte{opening, 0, c.status}, answer)
			_, peer, err := c.dialler.dial(&script{trickle{data: said, step: len(said)}}, "r")
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "b", peer.Name)
		})
	}
}

func TestOverlongHelloIsNotSent(t *testing.T) {
	_, err := hello{Name: string(make([]byte, maxHello))}.encode()
	require.ErrorContains(t, err, "1024")
}

// offered returns the first bytes of a dialler that proves itself by a key pair.
func offered(secrets [][]byte) []byte {
	conn := &recorder{Conn: &script{}}
	identity{self: hello{Name: "a"}}.dialKeys(conn, secrets)
	return conn.sent.Bytes()
}

// FuzzHandshake sends a listener any bytes, as a node without the secret may do.
func FuzzHandshake(f *testing.F) {
	secret := secrets("0123456789abcdef")
	asked, err := hello{Name: "a", Region: "r"}.withVersions(ownVersions).encode()
	require.NoError(f, err)
	f.Add(appendHello(openWith(proofNone), asked))
	f.Add(append(openWith(proofTokens), 1))
	f.Add(openWith(proofTokens + 1))
	f.Add(offered(secrets("another secret..")))
	f.Add(offered(secret)) // an attacker that has overheard an offer can send it
	f.Add(append(offered(secret), 23, 3, 3, 0, 17, 1, 2, 3))
	f.Add(append(openWith(proofKeys), tlsHandshake, 3, 1, 255, 255, 1, 0, 255, 255))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte{tlsHandshake, 3, 1, 2, 0, 1})
	f.Add([]byte{2})
	id := identity{self: hello{Name: "b", Region: "r"}, secrets: secret}
	id.pairs = id.keyPairs()
	f.Fuzz(func(t *testing.T, wire []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, _, err := id.accept(&script{trickle{data: bytes.Clone(wire), step: 1 << 20}})
		runtime.ReadMemStats(&after)
		require.Error(t, err, "a node without the secret was accepted")
		spent := after.TotalAlloc - before.TotalAlloc
		require.True(t, spent <= 1<<20, "%d bytes allocated for %d that came", spent, len(wire))
	})
}

// A hello of a node that has proved a secret may still contain any bytes.
func FuzzHello(f *testing.F) {
	asked, err := hello{Name: "a", Region: "r"}.withVersions(ownVersions).encode()
	require.NoError(f, err)
	f.Add(asked)
	far, err := hello{Name: "a", Region: "far", To: "r"}.withVersions(ownVersions).encode()
	require.NoError(f, err)
	f.Add(far)
	f.Add([]byte{0x81, 0xA1, 'n', 0xDB, 0xFF, 0xFF, 0xFF, 0xFF})
	f.Add([]byte{0xDD, 0xFF, 0xFF, 0xFF, 0xFF})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > maxHello {
			return
		}
		h, err := decodeHello(b)
		require.False(t, err == nil && h.Name == "", "a hello without a name was accepted")
		if err == nil && (len(h.Region) > detect.MaxRegion || len(h.To) > detect.MaxRegion) {
			t.Fatal("a region with a name above the bound was accepted")
		}
		// An accepted node must be a member, or a node of a different region.
		if err == nil && h.checkRegion("r") == nil && (h.To != "r" || h.isAbroad() != (h.Region != "r") || h.Region == "") {
			t.Fatalf("%+v was accepted", h)
		}
		if err != nil && !errors.Is(err, errGarbage) {
			t.Fatal(err)
		}
	})
}

// A member closes a connection that it refuses. On a busy machine it may close the connection before the
// dialler has written a byte. A member that crashes, or has just started, closes a connection without an
// answer. That does not mean that its TLS configuration is wrong.
func TestProbeReportsWhyListenerClosedConnection(t *testing.T) {
	certificates := NewAuthority(t).Config(t)
	for name, c := range map[string]struct {
		tls   *tls.Config
		reads int64  // number of bytes that the server at the address reads before it closes the connection
		said  string // bytes that the server sends before it closes the connection
		want  error
	}{
		"no answer":                      {nil, 0, "", errHungUp},
		"an alert of TLS":                {nil, 0, string([]byte{tlsAlert, 3, 3, 0, 2, 2, 40}), errTLS},
		"another version":                {nil, 0, string(rune(opening + 1)), errVersion},
		"a server of HTTP":               {nil, 0, "HTTP/1.1 400 Bad Request\r\n\r\n", errForeign},
		"one byte of proof":              {nil, 0, string(rune(opening)), errSilent},
		"no answer after the opening":    {nil, 10, "", errHungUp},
		"no answer, with TLS":            {certificates, 0, "", errHungUp},
		"no answer in the TLS handshake": {certificates, 10, "", errHungUp},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, lo *loopback) {
				l := lo.listen()
				defer l.Close()
				dial := func(ctx context.Context, addr string) (net.Conn, error) {
					conn, err := lo.dial(ctx, addr)
					if err != nil {
						return nil, err
					}
					other, err := l.Accept()
					if err != nil {
						return nil, err
					}
					refuse := func() {
						io.CopyN(io.Discard, other, c.reads)
						other.Write([]byte(c.said))
						other.Close()
					}
					if c.reads == 0 {
						refuse() // before the dialler writes
					} else {
						go refuse()
					}
					return conn, nil
				}
				a := lo.peer(t, "a", nil, func(cfg *peersConfig) { cfg.TLS, cfg.Dial = c.tls, dial })
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := a.probe(ctx, l.Addr().String())
				require.ErrorIs(t, err, c.want)
				require.False(t, c.want == errHungUp && strings.Contains(err.Error(), "TLS"))
			})
		})
	}
}
