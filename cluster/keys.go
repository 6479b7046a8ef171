package cluster

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/weir-go/weir/internal/sealed"
)

// A secret is used for nothing itself. Each use has its own key, derived from the
// secret by HKDF-SHA256 (RFC 5869) under one of these labels, so that a key says
// nothing of another one or of the secret: a key of gossip's that leaks, say, shakes
// hands with nobody.
const (
	gossipKeyLabel = "weir gossip"
	keyIDLabel     = "weir key id"
	macLabel       = "weir handshake"
	channelLabel   = "weir channel"
	dialledLabel   = "weir records of the dialler"
	accepterLabel  = "weir records of the listener"
)

// gossipKeys returns the keys by which memberlist encrypts, one for each secret.
func gossipKeys(secrets [][]byte) [][]byte { return deriveAll(secrets, nil, gossipKeyLabel) }

// deriveAll derives a key from each secret.
func deriveAll(secrets [][]byte, salt []byte, label string) [][]byte {
	keys := make([][]byte, len(secrets))
	for i, secret := range secrets {
		keys[i] = sealed.Derive(secret, salt, label)
	}
	return keys
}

// keyID is how a dialler names a secret to a listener that holds it too. It is of
// one handshake alone, by its nonce, so that an eavesdropper does not see which
// connections are under one secret.
type keyID [keyIDSize]byte

const keyIDSize = 8

func keyIDOf(secret, nonce []byte) (id keyID) {
	m := hmac.New(sha256.New, sealed.Derive(secret, nil, keyIDLabel))
	m.Write(nonce)
	copy(id[:], m.Sum(nil))
	return id
}
