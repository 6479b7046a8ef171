package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// dialRaw returns a connection to p after its first byte.
func dialRaw(t *testing.T, p *testPeer) net.Conn {
	t.Helper()
	conn, err := p.cfg.Dial(t.Context(), p.cfg.Self.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.Write([]byte{firstByteCheck})
	return conn
}

// dialStranger returns a connection to p after the handshake.
func dialStranger(t *testing.T, p *testPeer) net.Conn {
	t.Helper()
	return dialAs(t, p, "stranger")
}

func requireClosed(t *testing.T, conn net.Conn, within time.Duration) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(within))
	_, err := io.Copy(io.Discard, conn)
	if timeout, ok := err.(net.Error); ok {
		require.False(t, timeout.Timeout(), "the connection is still open")
	}
}

func TestAbuseClosesOnlyItsConnection(t *testing.T) {
	t.Parallel()
	header := func(version, kind byte, length ...byte) []byte {
		return append(append([]byte{version, kind}, length...), 0, 0, 0, 0, 0, 0, 0, 1)
	}
	cases := map[string]struct {
		greeted bool
		send    []byte
		reason  string
		after   time.Duration
	}{
		"an HTTP request":                 {false, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), reasonGarbage, 0},
		"a TLS hello where there is none": {false, []byte{tlsHandshake, 3, 1, 2, 0, 1}, reasonTLS, 0},
		"a handshake of another version":  {false, append([]byte{opening + 1}, make([]byte, openingSize-1)...), reasonVersion, 0},
		"a hello above its bound":         {false, append(openWith(proofNone), 0xFF, 0xFF), reasonOversized, 0},
		"a hello without a name":          {false, append(openWith(proofNone), 0, 0), reasonGarbage, 0},
		"tokens without TLS":              {false, append(openWith(proofTokens), 1), reasonGarbage, 0},
		"a proof of a later version":      {false, openWith(proofTokens + 1), reasonGarbage, 0},
		"an offer of a key":               {false, offered(secrets("0123456789abcdef")), reasonAuthentication, 0},
		"an offer of no key":              {false, offered(nil), reasonGarbage, 0},
		"an offer of too many keys":       {false, offered(make([][]byte, maxSecrets+1)), reasonGarbage, 0},
		"half a handshake":                {false, []byte{opening}, reasonTimeout, handshakeWait},
		"silence":                         {false, nil, reasonTimeout, handshakeWait},
		"an answer to nothing":            {true, header(opening, byte(kindAnswer), 0, 0, 0, 0), reasonGarbage, 0},
		"a ping without its body":         {true, header(opening, byte(kindPing), 0, 0, 0, 0), reasonGarbage, 0},
		"a ping that is too short":        {true, append(header(opening, byte(kindPing), 0, 0, 0, 4), make([]byte, 4)...), reasonGarbage, 0},
		"a row that is cut off":           {true, append(header(opening, byte(kindRows), 0, 0, 0, 8), make([]byte, 8)...), reasonGarbage, 0},
		"a frame of another version":      {true, header(9, byte(kindAsk), 0, 0, 0, 0), reasonVersion, 0},
		"a frame of 4 GiB":                {true, header(opening, byte(kindAsk), 255, 255, 255, 255), reasonOversized, 0},
		"half a header":                   {true, []byte{opening, byte(kindAsk), 0}, reasonTimeout, idleWait},
		"half a body":                     {true, header(opening, byte(kindAsk), 0, 0, 1, 0), reasonTimeout, idleWait},
		"silence after a good handshake":  {true, nil, reasonTimeout, idleWait},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inPair(t, func(t *testing.T, a, b *testPeer) {
				open := dialRaw
				if c.greeted {
					open = dialStranger
				}
				conn, begun := open(t, b), time.Now()
				conn.Write(c.send)
				requireClosed(t, conn, time.Minute)
				require.Equal(t, c.after, time.Since(begun))
				synctest.Wait()
				require.Equal(t, map[string]uint64{c.reason: 1}, b.stats().Refused)
				require.True(t, a.isConnectedTo(b))
				require.NoError(t, askX(a.peer("b"), time.Second))
			})
		})
	}
}

func TestRestingConnectionIsWokenOnlyByPing(t *testing.T) {
	t.Parallel()
	ping := func(flags byte) []byte { return appendFrame(nil, kindPing, 1, []byte{0, 0, 0, 0, flags}) }
	ask := appendFrame(nil, kindAsk, 1<<32, []byte("x"))
	for name, c := range map[string]struct {
		rests time.Duration
		send  []byte
		open  bool
	}{
		"a request over a used connection":         {idleWait, ask, true},
		"a request that was held up":               {idleWait + 1, ask, false},
		"a request that was held up behind a ping": {idleWait + 1, append(ping(0), ask...), false},
		"a request after a ping with flagWakes":    {idleOnDemand - 1, append(ping(flagWakes), ask...), true},
		"a ping after more than idleOnDemand":      {idleOnDemand + 1, ping(flagWakes), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, func(t *testing.T, lo *loopback) {
				served := 0
				b := lo.peer(t, "b", &testHandler{serve: func(*Batch) { served++ }})
				conn := dialStranger(t, b)
				conn.Write(ping(0))
				time.Sleep(c.rests)
				conn.Write(c.send)
				synctest.Wait()
				if c.open {
					require.Equal(t, 1, served)
					return
				}
				requireClosed(t, conn, 1)
				require.Zero(t, served)
			})
		})
	}
}

func TestPartialFramesDoNotKeepConnectionOpen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		open   func(*testing.T, *testPeer) net.Conn
		begins []byte
		wait   time.Duration
	}{
		{dialStranger, []byte{opening, byte(kindAsk), 0, 0, 255, 255}, idleWait},
		{dialRaw, append(openWith(proofKeys), tlsHandshake, 3, 1, 0x40, 0), handshakeWait},
	} {
		inMemory(t, func(t *testing.T, lo *loopback) {
			b := lo.peer(t, "b", nil)
			conn := c.open(t, b)
			var drip sync.WaitGroup
			defer drip.Wait()
			drip.Go(func() {
				conn.Write(c.begins)
				for {
					if _, err := conn.Write([]byte{0}); err != nil {
						return
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
			begun := time.Now()
			requireClosed(t, conn, time.Minute)
			require.Equal(t, c.wait, time.Since(begun))
			synctest.Wait()
			require.EqualValues(t, 1, b.stats().Refused[reasonTimeout])
		})
	}
}

// Whatever the caller's TLS states about clients, each client needs a certificate that this node, or a
// function of the caller, verifies.
func TestClientsAreAlwaysVerified(t *testing.T) {
	verify := func(tls.ConnectionState) error { return nil }
	chains := func([][]byte, [][]*x509.Certificate) error { return nil }
	roots, clients := x509.NewCertPool(), x509.NewCertPool()
	for about, c := range map[string]struct {
		in   *tls.Config
		want tls.ClientAuthType
	}{
		"nothing":                        {&tls.Config{}, tls.RequireAndVerifyClientCert},
		"only requested":                 {&tls.Config{ClientAuth: tls.RequestClientCert}, tls.RequireAndVerifyClientCert},
		"verified if given":              {&tls.Config{ClientAuth: tls.VerifyClientCertIfGiven}, tls.RequireAndVerifyClientCert},
		"any":                            {&tls.Config{ClientAuth: tls.RequireAnyClientCert}, tls.RequireAndVerifyClientCert},
		"any, and VerifyConnection":      {&tls.Config{ClientAuth: tls.RequireAnyClientCert, VerifyConnection: verify}, tls.RequireAnyClientCert},
		"any, and VerifyPeerCertificate": {&tls.Config{ClientAuth: tls.RequireAnyClientCert, VerifyPeerCertificate: chains}, tls.RequireAnyClientCert},
		"none, and VerifyConnection":     {&tls.Config{VerifyConnection: verify}, tls.RequireAndVerifyClientCert},
		"verified":                       {&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}, tls.RequireAndVerifyClientCert},
	} {
		c.in.RootCAs = roots
		before := c.in.ClientAuth
		out := serverTLS(c.in)
		require.Equal(t, c.want, out.ClientAuth, about)
		require.Same(t, roots, out.ClientCAs, about)
		require.Equal(t, before, c.in.ClientAuth, "%s: the config of the caller is not modified", about)

		outer := serverTLS(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.in, nil }})
		chosen, err := outer.GetConfigForClient(nil)
		require.NoError(t, err)
		require.Equal(t, c.want, chosen.ClientAuth, "%s, for some clients", about)
		require.Same(t, roots, chosen.ClientCAs, about)
	}
	require.Same(t, clients, serverTLS(&tls.Config{RootCAs: roots, ClientCAs: clients}).ClientCAs)
	chosen, err := serverTLS(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }}).GetConfigForClient(nil)
	require.NoError(t, err)
	require.Nil(t, chosen, "without a chosen config, the outer config applies")
}

// If a Handler gives an answer that is too long, one asker receives no answer, and no other asker is affected.
func TestOverlongAnswerIsDropped(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		long := make([]byte, MaxMessage+1)
		b := lo.peer(t, "b", handleEach(func(batch *Batch, i int, r []byte) {
			switch string(r) {
			case "at once":
				batch.Reply(i, long)
			case "later":
				batch.Defer(i)(long)
			default:
				batch.Reply(i, long[1:])
			}
		}))
		a := lo.peer(t, "a", nil)
		connectAll(t, a, b)
		for i, request := range []string{"at once", "later"} {
			_, err := a.peer("b").Ask(t.Context(), []byte(request), nil, 50*time.Millisecond)
			require.ErrorIs(t, err, ErrTimeout, request)
			eventually(t, time.Second, func() bool { return b.stats().Dropped == uint64(i+1) }, "it is not counted")
		}
		got, err := a.peer("b").Ask(t.Context(), []byte("as long as may be"), nil, 2*time.Second)
		require.NoError(t, err)
		require.Len(t, got, MaxMessage)
		require.Empty(t, b.stats().Refused)
	})
}

// A member that asks and reads no answers takes no more memory than its queue. Dropped answers are
// counted.
func TestUnreadRepliesAreBounded(t *testing.T) {
	p := startPeer(t, "b", nil)
	c := newIncoming(p.peers, nil, hello{Name: "a", Region: "r", To: "r"})
	c.out.writing = true // as if a different goroutine was writing forever
	reply := make([]byte, 100<<10)
	for sent := 0; ; sent++ {
		c.ids = []uint64{1, 2, 3}
		c.replies = append(c.replies, reply...)
		c.send()
		require.LessOrEqual(t, len(c.out.buf), maxQueued)
		require.Empty(t, c.replies)
		if dropped := p.stats().Dropped; dropped > 0 {
			require.EqualValues(t, len(c.ids), dropped)
			require.Equal(t, maxQueued/len(reply), sent)
			break
		}
	}

	c.out.buf = nil
	c.replies = make([]byte, maxQueued+1)
	c.send()
	require.Len(t, c.out.buf, maxQueued+1, "replies above the bound are queued if the queue is empty")
	require.Zero(t, cap(c.replies), "the large buffer is not kept")
}

// Nodes of other regions send fewer pings over longer paths, so their timeouts are longer.
func TestOtherRegionsHaveLongerTimeouts(t *testing.T) {
	p := startPeer(t, "b", nil)
	for region, want := range map[string][]time.Duration{"r": {idleWait, writeWait}, "far": {idleAbroad, writeWaitAbroad}} {
		c := newIncoming(p.peers, nil, hello{Name: "a", Region: region, To: "r"})
		require.Equal(t, want, []time.Duration{c.idle, c.out.wait})
	}
	require.Greater(t, idleAbroad, 3*pingAbroad)
}
