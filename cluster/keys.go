package cluster

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
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

// derivedSize is the size of each key: of AES-256, and of HMAC-SHA256.
const derivedSize = 32

// derive returns the key that stands for secret where label says. salt, if not
// nil, is what differs each time.
func derive(secret, salt []byte, label string) []byte {
	key, err := hkdf.Key(sha256.New, secret, salt, label, derivedSize)
	if err != nil {
		panic(err) // only for a size above 255 hashes, or under fips140=only a secret below 14 bytes
	}
	return key
}

// gossipKeys returns what memberlist encrypts by, for each secret.
func gossipKeys(secrets [][]byte) [][]byte {
	keys := make([][]byte, len(secrets))
	for i, secret := range secrets {
		keys[i] = derive(secret, nil, gossipKeyLabel)
	}
	return keys
}

// keyID is how a dialler names a secret to a listener that holds it too. It is of
// one handshake alone, by its nonce, so that an eavesdropper does not see which
// connections are under one secret.
type keyID [keyIDSize]byte

const keyIDSize = 8

func keyIDOf(secret, nonce []byte) (id keyID) {
	m := hmac.New(sha256.New, derive(secret, nil, keyIDLabel))
	m.Write(nonce)
	copy(id[:], m.Sum(nil))
	return id
}
