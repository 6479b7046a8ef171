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
func shakeTLS(listens, dials *tls.Config, addr string) (listener, dialler tls.ConnectionState, err error) {
	conn, accepted := memoryPipe(addr), make(chan tls.ConnectionState, 1)
	go func() {
		server := tls.Server(conn.peer, listens)
		server.Write([]byte("x"))
		accepted <- server.ConnectionState()
		conn.peer.Close()
	}()
	client := tls.Client(conn, clientTLS(dials, addr))
	_, err = io.ReadFull(client, make([]byte, 1))
	conn.Close()
	return <-accepted, client.ConnectionState(), err
}

// With tickets, a certificate that is no longer accepted would stay valid for the lifetime of a ticket,
// which is a week.
func TestConnectionsAreVerifiedAndNotResumed(t *testing.T) {
	both := NewAuthority(t).Config(t)
	both.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	chosen := both.Clone()
	chosen.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return both, nil }
	for _, listens := range []*tls.Config{serverTLS(both), serverTLS(chosen)} {
		for range 3 {
			listener, dialler, err := shakeTLS(listens, both, "127.0.0.1:1")
			require.NoError(t, err)
			require.False(t, listener.DidResume)
			require.False(t, dialler.DidResume)
		}
	}
}

func TestChosenConfigInheritsRoots(t *testing.T) {
	certs, others := NewAuthority(t), NewAuthority(t)
	own, outsider := certs.Config(t), others.Config(t)
	outsider.RootCAs = certs.Pool
	chooses := func(roots *x509.CertPool, chosen *tls.Config) *tls.Config {
		chosen.Certificates = own.Certificates
		return &tls.Config{ClientCAs: roots, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }}
	}
	for about, c := range map[string]struct {
		listens, dials *tls.Config
		accepted       bool
	}{
		"its own roots":                  {chooses(nil, &tls.Config{ClientCAs: certs.Pool}), own, true},
		"its own roots, an outsider":     {chooses(nil, &tls.Config{ClientCAs: certs.Pool}), outsider, false},
		"its own roots before the outer": {chooses(others.Pool, &tls.Config{ClientCAs: certs.Pool}), own, true},
		"the outer roots":                {chooses(certs.Pool, &tls.Config{}), own, true},
		"the outer roots, an outsider":   {chooses(certs.Pool, &tls.Config{}), outsider, false},
		"no roots":                       {chooses(nil, &tls.Config{}), own, false},
	} {
		_, _, err := shakeTLS(serverTLS(c.listens), c.dials, "127.0.0.1:1")
		require.Equal(t, c.accepted, err == nil, "%s: %v", about, err)
	}
	_, err := serverTLS(chooses(nil, &tls.Config{})).GetConfigForClient(nil)
	require.ErrorIs(t, err, errRoots)
}

func TestVerifyConnectionReceivesDialledHost(t *testing.T) {
	certs := NewAuthority(t).Config(t)
	for addr, want := range map[string]string{"127.0.0.1:7946": "127.0.0.1", "[::1]:7946": "::1", "limits.example:7946": "limits.example"} {
		told := ""
		dials := &tls.Config{
			Certificates: certs.Certificates, InsecureSkipVerify: true,
			VerifyConnection: func(s tls.ConnectionState) error { told = s.ServerName; return nil },
		}
		_, _, err := shakeTLS(serverTLS(certs), dials, addr)
		require.NoError(t, err)
		require.Equal(t, want, told)
		dials.ServerName = "members.internal"
		_, _, err = shakeTLS(serverTLS(certs), dials, addr)
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
		"of a usual length":          {real, real, false, false},
		"the dialler's is too long":  {maxCertificates, 0, false, true},
		"the listener's is too long": {0, maxCertificates, true, false},
	} {
		t.Run(about, func(t *testing.T) {
			inMemory(t, func(t *testing.T, lo *loopback) {
				certs := NewAuthority(t)
				with := func(size int) *tls.Config {
					sends := certs.Config(t)
					own := &sends.Certificates[0]
					own.Certificate = slices.Repeat(own.Certificate, 1+size/len(own.Certificate[0]))
					return sends
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

// With Secrets and TLS, a certificate does not allow an attacker to end TLS between two members, and so
// to read and change their messages.
func TestCertificateAloneDoesNotAllowInterception(t *testing.T) {
	t.Parallel()
	inMemory(t, func(t *testing.T, lo *loopback) {
		both := NewAuthority(t).Config(t)
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

// Each side learns from the bytes of the other side that only one side has TLS.
func TestTLSOnOneSideIsReportedOnBoth(t *testing.T) {
	both := NewAuthority(t).Config(t)
	with := func(c *tls.Config) *testPeer {
		return startPeer(t, "a", nil, func(cfg *peersConfig) { cfg.TLS = c })
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
