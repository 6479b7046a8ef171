package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shakeTLS performs the TLS handshake of two members. The dialling side then reads the bytes that the
// listening side sends after the handshake: a ticket, if there is one.
func shakeTLS(t *testing.T, listens, dials *tls.Config, addr string) (listener, dialler tls.ConnectionState, err error) {
	port, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer port.Close()
	accepted := make(chan tls.ConnectionState, 1)
	go func() {
		defer close(accepted)
		conn, err := port.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		server := tls.Server(conn, listens)
		if _, err := server.Write([]byte("x")); err == nil {
			accepted <- server.ConnectionState()
		}
	}()
	conn, err := net.Dial("tcp", port.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	client := tls.Client(conn, clientTLS(dials, addr))
	if _, err = io.ReadFull(client, make([]byte, 1)); err != nil {
		return listener, dialler, err
	}
	return <-accepted, client.ConnectionState(), nil
}

func pool(leaves ...*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, leaf := range leaves {
		p.AddCert(leaf)
	}
	return p
}

// With tickets, a certificate that is no longer accepted would stay valid for the lifetime of a ticket,
// which is a week.
func TestConnectionsAreVerifiedAndNotResumed(t *testing.T) {
	own, leaf := certificate(t)
	both := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool(leaf), ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	chosen := both.Clone()
	chosen.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return both, nil }
	for _, listens := range []*tls.Config{serverTLS(both), serverTLS(chosen)} {
		for range 3 {
			listener, dialler, err := shakeTLS(t, listens, both, "127.0.0.1:1")
			require.NoError(t, err)
			require.False(t, listener.DidResume)
			require.False(t, dialler.DidResume)
		}
	}
}

func TestChosenConfigInheritsRoots(t *testing.T) {
	own, leaf := certificate(t)
	outsider, other := certificate(t)
	dials := func(c tls.Certificate) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{c}, RootCAs: pool(leaf, other)}
	}
	chooses := func(roots *x509.CertPool, chosen *tls.Config) *tls.Config {
		chosen.Certificates = []tls.Certificate{own}
		return &tls.Config{ClientCAs: roots, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }}
	}
	for about, c := range map[string]struct {
		listens  *tls.Config
		dials    tls.Certificate
		accepted bool
	}{
		"its own roots":                  {chooses(nil, &tls.Config{ClientCAs: pool(leaf)}), own, true},
		"its own roots, an outsider":     {chooses(nil, &tls.Config{ClientCAs: pool(leaf)}), outsider, false},
		"its own roots before the outer": {chooses(pool(other), &tls.Config{ClientCAs: pool(leaf)}), own, true},
		"the outer roots":                {chooses(pool(leaf), &tls.Config{}), own, true},
		"the outer roots, an outsider":   {chooses(pool(leaf), &tls.Config{}), outsider, false},
		"no roots":                       {chooses(nil, &tls.Config{}), own, false},
	} {
		_, _, err := shakeTLS(t, serverTLS(c.listens), dials(c.dials), "127.0.0.1:1")
		require.Equal(t, c.accepted, err == nil, "%s: %v", about, err)
	}
	_, err := serverTLS(chooses(nil, &tls.Config{})).GetConfigForClient(nil)
	require.ErrorIs(t, err, errRoots)
}

func TestVerifyConnectionReceivesDialledHost(t *testing.T) {
	own, leaf := certificate(t)
	listens := serverTLS(&tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool(leaf)})
	for addr, want := range map[string]string{"127.0.0.1:7946": "127.0.0.1", "[::1]:7946": "::1", "limits.example:7946": "limits.example"} {
		told := ""
		dials := &tls.Config{
			Certificates: []tls.Certificate{own}, InsecureSkipVerify: true,
			VerifyConnection: func(s tls.ConnectionState) error { told = s.ServerName; return nil },
		}
		_, _, err := shakeTLS(t, listens, dials, addr)
		require.NoError(t, err)
		require.Equal(t, want, told)
		dials.ServerName = "members.internal"
		_, _, err = shakeTLS(t, listens, dials, addr)
		require.NoError(t, err)
		require.Equal(t, "members.internal", told)
	}
}

// A node may send any number of certificates before it has proved anything.
func TestHandshakesByCertificatesAreBounded(t *testing.T) {
	const real = 40 << 10 // a long chain, and the names of 150 CAs
	for about, c := range map[string]struct {
		dials, listens            int // bytes of certificates
		diallerEnds, listenerEnds bool
	}{
		"as long as real ones":       {real, real, false, false},
		"the dialler's is too long":  {maxCertificates, 0, false, true},
		"the listener's is too long": {0, maxCertificates, true, false},
	} {
		t.Run(about, func(t *testing.T) {
			inMemory(t, func(t *testing.T, lo *loopback) {
				own, leaf := certificate(t)
				with := func(size int) *tls.Config {
					sends := own
					sends.Certificate = slices.Repeat(own.Certificate, 1+size/len(own.Certificate[0]))
					return &tls.Config{Certificates: []tls.Certificate{sends}, RootCAs: pool(leaf)}
				}
				at, accepted := lo.listen(), make(chan error, 1)
				defer at.Close()
				after := make([]byte, 2*maxCertificates) // the bound applies only to the handshake
				go acceptEach(at, func(conn net.Conn) {
					defer conn.Close()
					io.ReadFull(conn, make([]byte, 1))
					secured, err := acceptTLS(t.Context(), conn, serverTLS(with(c.listens)))
					if err == nil {
						_, err = secured.Write(after)
					}
					accepted <- err
				})
				conn, err := openStream(t.Context(), lo.dial, with(c.dials), at.Addr().String(), firstByteCheck)
				if err == nil {
					_, err = io.ReadFull(conn, after)
					sever(conn)
				}
				told := <-accepted
				require.Equal(t, c.diallerEnds, errors.Is(err, errTLS), "%v", err)
				require.Equal(t, c.listenerEnds, refusalReason(told) == reasonOversized, "%v", told)
				require.Equal(t, c.diallerEnds || c.listenerEnds, err != nil || told != nil, "%v, %v", err, told)
			})
		})
	}
}

// With Secrets and TLS, an attacker that ends TLS between two members reads and changes their
// messages: a certificate must not be enough for that.
func TestCertificateAloneDoesNotAllowInterception(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		own, leaf := certificate(t)
		both := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool(leaf)}
		with := func(c *peersConfig) { c.Secrets, c.TLS = secrets("0123456789abcdef"), serverTLS(both) }
		a, b := lo.peer(t, "a", nil, with), lo.peer(t, "b", nil, with)
		probe := func(addr string) error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := a.probe(ctx, addr)
			return err
		}
		require.NoError(t, probe(b.cfg.Self.Addr))

		between := lo.listen()
		defer between.Close()
		go acceptEach(between, func(conn net.Conn) {
			back, err := openStream(t.Context(), lo.dial, both, b.cfg.Self.Addr, firstByteCheck)
			if err != nil {
				conn.Close()
				return
			}
			conn.Read(make([]byte, 1))
			relay(tls.Server(conn, serverTLS(both)), back)
		})
		require.ErrorIs(t, probe(between.Addr().String()), errSecret)
		eventually(t, time.Second, func() bool { return b.stats().Refused[reasonAuthentication] == 1 }, "%v", b.stats().Refused)
	})
}

// tcp is the network of the machine.
type tcp struct{ net.Dialer }

func (n *tcp) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return n.DialContext(ctx, "tcp", addr)
}

// A member may close a connection without an answer if it crashes or has just started. This does
// not mean that its TLS configuration is wrong.
func TestConnectionClosedWithoutAnswerDoesNotAccuseTLS(t *testing.T) {
	own, leaf := certificate(t)
	both := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool(leaf)}
	for about, c := range map[string]*tls.Config{"with TLS": both, "without": nil} {
		for _, reads := range []int{0, 1, 10} { // bytes that the member reads before it closes the connection
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			go acceptEach(l, func(conn net.Conn) {
				_, _ = io.ReadFull(conn, make([]byte, reads))
				_ = conn.Close()
			})
			p := startPeer(t, "a", nil, func(cfg *peersConfig) { cfg.TLS, cfg.Dial = c, new(tcp).Dial })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = p.probe(ctx, l.Addr().String())
			require.ErrorIs(t, err, errHungUp, "%s, %d bytes read", about, reads)
			require.NotContains(t, err.Error(), "TLS")
		}
	}
}

// Each side learns from the bytes of the other side that only one side has TLS.
func TestTLSOnOneSideIsReportedOnBoth(t *testing.T) {
	own, leaf := certificate(t)
	both := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool(leaf)}
	with := func(c *tls.Config) *testPeer {
		return startPeer(t, "a", nil, func(cfg *peersConfig) { cfg.TLS, cfg.Dial = c, new(tcp).Dial })
	}
	secured, plain := with(serverTLS(both)), with(nil)
	for _, c := range []struct{ from, to *testPeer }{{secured, plain}, {plain, secured}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.from.probe(ctx, c.to.cfg.Self.Addr)
		require.ErrorIs(t, err, errTLS)
		require.ErrorContains(t, err, "set TLS on all nodes or on none")
		eventually(t, time.Minute, func() bool { return c.to.stats().Refused[reasonTLS] == 1 }, "%v", c.to.stats().Refused)
	}
}
