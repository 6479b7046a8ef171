package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

var errRoots = errors.New("cluster: TLS.GetConfigForClient has returned a config without roots, and the roots of the machine sign certificates for anybody: set ClientCAs of that config to the CA of the members' certificates")

// maxCertificates bounds the bytes that TLS reads in a handshake with certificates, before the other
// side has proved anything. crypto/tls alone would read 256 KiB of certificates. A chain takes a few
// KiB. A listener that trusts all CAs of its machine sends the names of these CAs, which take 15 KiB.
const maxCertificates = 64 << 10

// serverTLS returns the configuration for the accepting end. A client without a trusted certificate is
// refused, whatever c states, unless c has RequireAnyClientCert and a function that verifies. Tickets
// are disabled, so that each connection is verified: with a ticket, a node that had a certificate could
// return without it.
func serverTLS(c *tls.Config) *tls.Config {
	c = c.Clone()
	own := c.VerifyPeerCertificate != nil || c.VerifyConnection != nil
	if c.ClientAuth != tls.RequireAnyClientCert || !own {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if c.ClientCAs == nil {
		c.ClientCAs = c.RootCAs
	}
	c.SessionTicketsDisabled, c.DynamicRecordSizingDisabled = true, true
	if choose, roots := c.GetConfigForClient, c.ClientCAs; choose != nil {
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if chosen == nil || err != nil {
				return nil, err
			}
			if chosen = serverTLS(chosen); chosen.ClientCAs == nil {
				chosen.ClientCAs = roots
			}
			if chosen.ClientCAs == nil && chosen.ClientAuth == tls.RequireAndVerifyClientCert {
				return nil, errRoots
			}
			return chosen, nil
		}
	}
	return c
}

// clientTLS returns the configuration for the dialling end of a connection to addr.
func clientTLS(c *tls.Config, addr string) *tls.Config {
	c = c.Clone()
	c.DynamicRecordSizingDisabled = true
	if c.ServerName == "" {
		c.ServerName, _, _ = net.SplitHostPort(addr)
	}
	if verify, name := c.VerifyConnection, c.ServerName; verify != nil {
		c.VerifyConnection = func(s tls.ConnectionState) error {
			s.ServerName = name // crypto/tls leaves ServerName empty for an IP address
			if err := verify(s); err != nil {
				return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
			}
			return nil
		}
	}
	return c
}

// acceptTLS is the listener's side of a TLS handshake. A dialler without TLS receives an alert, because
// it could not distinguish a refusal from a crash otherwise.
func acceptTLS(ctx context.Context, raw net.Conn, c *tls.Config) (net.Conn, error) {
	secured := newTLSConn(raw, c, tls.Server)
	err := secured.performHandshake(ctx, maxCertificates)
	if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && plain.Conn != nil {
		sendAlert(raw)
		return nil, fmt.Errorf("%w: %v", errTLS, err)
	}
	if err != nil {
		return nil, err
	}
	return secured, nil
}

// sendAlert writes a fatal alert of TLS, unexpected_message, in the clear. The caller
// closes conn, so an error has no effect.
func sendAlert(conn net.Conn) { _, _ = conn.Write([]byte{tlsAlert, 3, 3, 0, 2, 2, 10}) }

// dialTLSError returns the meaning of a failed TLS handshake for the dialler. It is errCertificate if
// the dialler does not trust the listener's certificate, and errTLS if the listener has answered
// otherwise: with an alert, or not in TLS. Without an answer the result is errHungUp or errSilent,
// because a crash of the member does not show a problem of TLS. An expired certificate is errTLS,
// because the configuration of the dialler cannot fix it.
func dialTLSError(err error) error {
	var certificate *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &certificate):
	case closedByPeer(err):
		return errHungUp
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.Canceled), errors.Is(err, net.ErrClosed):
		return errSilent
	default:
		return errTLS
	}
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return errTLS
	}
	return errCertificate
}
