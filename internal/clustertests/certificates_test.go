package clustertests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// memberName is in the certificates of all members. Nodes dial addresses, and verify this name.
const memberName = "members.weir.internal"

// authority signs members' certificates.
type authority struct {
	key    *ecdsa.PrivateKey
	root   *x509.Certificate
	serial int64
}

func newAuthority(t *testing.T, name string) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	root, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{key: key, root: root, serial: 1}
}

// leaf returns a new certificate.
func (a *authority) leaf(t *testing.T) *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(lifetime),
		DNSNames: []string{memberName}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, &key.PublicKey, a.key)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// bundle returns a pool with the roots of these authorities.
func bundle(all ...*authority) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, a := range all {
		pool.AddCert(a.root)
	}
	return pool
}

// credentials are the certificate and the roots that a process has last read from its files.
type credentials struct {
	leaf  *tls.Certificate
	roots *x509.CertPool
}

// reloaded returns the tls.Config of docs/rotation.md. A TLS handshake always uses the current
// credentials.
func reloaded(now *atomic.Pointer[credentials]) *tls.Config {
	return &tls.Config{
		ServerName: memberName,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := now.Load()
			return &tls.Config{Certificates: []tls.Certificate{*c.leaf}, ClientCAs: c.roots}, nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return now.Load().leaf, nil
		},
		InsecureSkipVerify: true, // VerifyConnection does
		VerifyConnection: func(s tls.ConnectionState) error {
			between := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				between.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: s.ServerName, Roots: now.Load().roots, Intermediates: between})
			return err
		},
	}
}
