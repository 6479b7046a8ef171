package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// files are where a certificate is, its key, and those that sign the other side's.
// A certificate is read for each connection, so that it may change.
type files struct {
	Cert string `placeholder:"FILE" help:"${cert}"`
	Key  string `placeholder:"FILE" help:"its key file"`
	CA   string `name:"ca" placeholder:"FILE" help:"${ca}"`
}

// fileList is files in one flag, with commas between them.
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

// credentials are for Envoy's connections and for that to the management server. Both
// sides of each show a certificate; plain TCP without one.
func (f files) credentials() (serving, asking credentials.TransportCredentials, err error) {
	if f.Cert == "" {
		return insecure.NewCredentials(), insecure.NewCredentials(), nil
	}
	c, err := f.both()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(c), credentials.NewTLS(c), nil
}

// both is for either end of a connection on which both show a certificate.
func (f files) both() (*tls.Config, error) {
	c, err := f.server()
	if err != nil {
		return nil, err
	}
	c.RootCAs = c.ClientCAs
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.certificate() }
	return c, nil
}

// server is for the end that accepts; with ca, it wants a certificate of the other.
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
