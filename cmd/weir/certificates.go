package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// files contains the paths of a certificate, of its key, and of the certificates of the
// authorities that sign the certificate of the peer. weir serve reads Cert and Key for each
// connection, so that they can be replaced.
type files struct {
	Cert string `placeholder:"FILE" help:"${cert}"`
	Key  string `placeholder:"FILE" help:"its key file"`
	CA   string `name:"ca" placeholder:"FILE" help:"${ca}"`
}

// fileList contains the files of a flag, separated by commas.
type fileList struct{ files }

// UnmarshalText parses CERT,KEY or CERT,KEY,CA. If text is empty, there are no files.
func (f *fileList) UnmarshalText(text []byte) error {
	var names list
	if err := names.UnmarshalText(text); err != nil {
		return err
	}
	switch len(names) {
	case 0:
		f.files = files{}
	case 2:
		f.files = files{Cert: names[0], Key: names[1]}
	case 3:
		f.files = files{Cert: names[0], Key: names[1], CA: names[2]}
	default:
		return fmt.Errorf("%q names %d files: use CERT,KEY,CA", text, len(names))
	}
	return nil
}

// credentials returns the credentials for connections from Envoy and for the connection
// to the management server. Both sides of each connection present a certificate. Without
// a certificate the connections are plain TCP.
func (f files) credentials() (serving, asking credentials.TransportCredentials, err error) {
	if f.Cert == "" {
		return insecure.NewCredentials(), insecure.NewCredentials(), nil
	}
	c, err := f.mutualConfig()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(c), credentials.NewTLS(c), nil
}

// mutualConfig returns a TLS configuration for clients and servers that both present a certificate.
func (f files) mutualConfig() (*tls.Config, error) {
	c, err := f.server()
	if err != nil {
		return nil, err
	}
	c.RootCAs = c.ClientCAs
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.certificate() }
	return c, nil
}

// server returns a TLS configuration for a server. If f.CA is set, the client must present
// a certificate.
func (f files) server() (*tls.Config, error) {
	if _, err := f.certificate(); err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.certificate() },
	}
	if f.CA == "" {
		return c, nil
	}
	pool, err := readPool(f.CA)
	if err != nil {
		return nil, err
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, pool
	return c, nil
}

func readPool(name string) (*x509.CertPool, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("weir: %s has no certificate in PEM", name)
	}
	return pool, nil
}

func (f files) certificate() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	return &c, err
}
