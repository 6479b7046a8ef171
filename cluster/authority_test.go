package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority is a certificate authority for tests.
type Authority struct {
	CA   *x509.Certificate
	Pool *x509.CertPool
	key  *ecdsa.PrivateKey
}

func NewAuthority(t testing.TB) Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	ca, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	a := Authority{ca, x509.NewCertPool(), key}
	a.Pool.AddCert(ca)
	return a
}

// Config returns a configuration that trusts a, with a certificate of the given URIs and DNS
// names. Without names, the certificate is for the loopback and for the first hosts in memory.
func (a Authority) Config(t testing.TB, names ...string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: a.CA.NotBefore, NotAfter: a.CA.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if len(names) == 0 {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		for i := range byte(9) {
			template.IPAddresses = append(template.IPAddresses, net.IPv4(10, 0, 0, 1+i))
		}
	}
	for _, name := range names {
		if !isURI(name) {
			template.DNSNames = append(template.DNSNames, name)
			continue
		}
		uri, err := url.Parse(name)
		require.NoError(t, err)
		template.URIs = append(template.URIs, uri)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.CA, &key.PublicKey, a.key)
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: a.Pool}
}
