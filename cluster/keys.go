package cluster

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"time"

	"github.com/weir-go/weir/internal/sealed"
)

// A secret is not used directly. Each use has a key, which HKDF-SHA256 (RFC 5869) derives from the
// secret with one of these labels. So a key reveals neither the other keys nor the secret: a holder of
// a leaked gossip key cannot connect to a member.
const (
	gossipKeyLabel   = "weir gossip"
	keyIDLabel       = "weir key id"
	keyPairLabel     = "weir key pair"
	dialTokenLabel   = "weir token of the dialler"
	acceptTokenLabel = "weir token of the listener"
)

// gossipKeys returns an encryption key for memberlist for each secret.
func gossipKeys(secrets [][]byte) [][]byte { return deriveAll(secrets, nil, gossipKeyLabel) }

// deriveAll derives a key from each secret.
func deriveAll(secrets [][]byte, salt []byte, label string) [][]byte {
	keys := make([][]byte, len(secrets))
	for i, secret := range secrets {
		keys[i] = sealed.Derive(secret, salt, label)
	}
	return keys
}

// keyPair is the key pair that all holders of a secret have, with a certificate. The other side
// compares only the public key, so the certificate has no names, and does not expire.
type keyPair struct {
	public      ed25519.PublicKey
	certificate tls.Certificate
}

func newKeyPair(secret []byte) keyPair {
	private := ed25519.NewKeyFromSeed(sealed.Derive(secret, nil, keyPairLabel))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		panic(err) // the template and the kind of the key are constant
	}
	return keyPair{private.Public().(ed25519.PublicKey), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}}
}

// verify returns an error unless the other side of a TLS connection has the key pair. crypto/tls
// verifies that the other side holds the private key.
func (p keyPair) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errSecret
	}
	public, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || subtle.ConstantTimeCompare(public, p.public) != 1 {
		return errSecret
	}
	return nil
}
